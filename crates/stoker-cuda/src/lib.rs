//! Pinned memory, and copies on streams of their own, for a CUDA device that another library computes on.
//!
//! The driver is loaded when a [`Device`] is opened, so a program that has this crate starts on machines without one. The
//! computation is whatever is asked for on the legacy default stream of the device's primary context, as libtorch does
//! unless it is told otherwise; a [`CopyStream`] is ordered with it by events:
//!
//! ```text
//! computation   ... the last use of x ──┐             ┌── the next use of x ...
//! copy stream                           └─ copy to x ─┘
//! ```

mod clock;
mod device;
mod pinned;
mod rates;
mod stream;

pub use device::{Device, Held, Memory};
pub use pinned::{PinnedMemory, pinned_bytes};
pub use rates::PinnedRates;
pub use stream::{CopyStream, Mark};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What the driver refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no driver to load.
    #[error("no CUDA driver is installed (libcuda.so is not found); compute on the CPU, or install NVIDIA's driver")]
    NoDriver,
    /// A call failed.
    #[error("CUDA failed while {doing}")]
    Driver {
        /// What was asked for.
        doing: &'static str,
        /// The driver's own error.
        source: cudarc::driver::DriverError,
    },
}

impl From<Error> for stoker_core::Error {
    fn from(error: Error) -> Self {
        let doing = match &error {
            Error::NoDriver => "opening a device",
            Error::Driver { doing, .. } => doing,
        };
        Self::Plugin { plugin: "cuda".to_owned(), doing: doing.to_owned(), source: error.into() }
    }
}

fn failed(doing: &'static str) -> impl FnOnce(cudarc::driver::DriverError) -> Error {
    move |source| Error::Driver { doing, source }
}
