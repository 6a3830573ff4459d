//! CUDA, in a program that also starts without it.

use crate::{Error, Result};
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

unsafe extern "C" {
    fn stoker_cuda_prepare(cudnn: c_int, devices: *mut i64, error: *mut *mut c_char) -> c_int;
}

/// Whether convolutions are cuDNN's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Convolutions {
    /// By cuDNN, with algorithms that give the same in every run: for bf16 and f16.
    CuDnn,
    /// By libtorch's own kernels: for f32. cuDNN's only repeatable gradient of a small weight in f32 is off by up to 2e-3
    /// of it (version 9.19 on an H200, where libtorch's own is off by 2e-7), which is worse than TF32.
    Own,
}

/// Loads libtorch's CUDA half and says how many devices there are. Call it before anything else asks libtorch for CUDA: it
/// remembers the answer. From then on, for the whole process, f32 is computed in f32 (no TF32) and convolutions give the
/// same in every run. May be called again.
///
/// # Errors
/// When `libtorch_cuda.so`, or a library that it needs, is not found, or the driver fails.
pub fn prepare(convolutions: Convolutions) -> Result<usize> {
    let (mut devices, mut text) = (0, null_mut());
    let cudnn = c_int::from(convolutions == Convolutions::CuDnn);
    // SAFETY: both may be written.
    let failed = unsafe { stoker_cuda_prepare(cudnn, &raw mut devices, &raw mut text) };
    if failed != 0 {
        // SAFETY: a call that fails leaves null or a text that is the caller's to free.
        return Err(unsafe { Error::take("starting CUDA", text) });
    }
    Ok(usize::try_from(devices).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code reports by panicking")]

    use super::*;

    #[test]
    fn without_cuda_it_is_told() {
        match prepare(Convolutions::Own) {
            Err(error) => assert!(error.to_string().starts_with("starting CUDA: libtorch_cuda.so"), "{error}"),
            // A machine whose libtorch has CUDA: asking twice is the same.
            Ok(devices) => assert_eq!(prepare(Convolutions::CuDnn).unwrap(), devices),
        }
    }
}
