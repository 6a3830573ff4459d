//! How bytes move between host memory and the buffers of a Burn backend: one file per backend.

pub(crate) mod flex;
#[cfg(feature = "libtorch")]
pub(crate) mod libtorch;

use stoker_core::Error;

/// A gradient that is not what its parameter is.
fn misfit(found: usize, wanted: usize) -> Error {
    Error::OutOfRange {
        what: "the number of elements of a gradient".to_owned(),
        found: found as u64,
        wanted: wanted as u64,
    }
}
