//! What tch does not bind of libtorch and stoker needs, behind safe functions.
//!
//! One file of C++ (`cpp/`) for each, compiled with the headers that torch-sys itself builds against. An exception of
//! libtorch comes back as an `Error` with its text: out of memory is among them.
//!
//! Without the feature `libtorch` there is nothing here.

#[cfg(feature = "libtorch")]
mod adam;
#[cfg(feature = "libtorch")]
mod convolution;
#[cfg(feature = "libtorch")]
pub mod cuda;
#[cfg(feature = "libtorch")]
mod error;

#[cfg(feature = "libtorch")]
pub use adam::Adam;
#[cfg(feature = "libtorch")]
pub use convolution::{Convolution, Operand};
#[cfg(feature = "libtorch")]
pub use error::{Error, Result};
