//! How bytes move between host memory and the buffers of a Burn backend: one file per backend.

#[cfg(feature = "libtorch")]
mod cuda;
pub(crate) mod flex;
#[cfg(feature = "libtorch")]
pub(crate) mod libtorch;
#[cfg(feature = "libtorch")]
pub(crate) mod resident;

use burn::tensor::DType;
use stoker_core::Error;

/// A gradient that is not what its parameter is.
fn misfit(found: usize, wanted: usize) -> Error {
    Error::OutOfRange {
        what: "the number of elements of a gradient".to_owned(),
        found: found as u64,
        wanted: wanted as u64,
    }
}

/// A gradient of a type that no parameter has.
fn strange(found: &str) -> Error {
    Error::Plugin {
        plugin: "bridge".to_owned(),
        doing: format!("landing a gradient that is {found}; parameters are f32, bf16 or f16"),
        source: "a parameter was cast inside its unit by an operation that does not cast its gradient back".into(),
    }
}

/// Burn's name of an element type.
pub(crate) fn burn_type(dtype: stoker_core::DType) -> DType {
    match dtype {
        stoker_core::DType::F16 => DType::F16,
        stoker_core::DType::BF16 => DType::BF16,
        stoker_core::DType::F32 => DType::F32,
        stoker_core::DType::F64 => DType::F64,
    }
}
