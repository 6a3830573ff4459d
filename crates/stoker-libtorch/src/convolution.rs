//! Gradients of a convolution, by libtorch's own kernels.

use crate::{Error, Result};
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use tch::Tensor;
use torch_sys::C_tensor;

/// The operand whose gradient is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// The input, `[batch, channels in, height, width]`.
    Input,
    /// The weight, `[channels out, channels in / groups, kernel height, kernel width]`.
    Weight,
}

/// How a two-dimensional convolution walks over its input: height, then width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution {
    /// Step of the kernel.
    pub stride: [usize; 2],
    /// Zeros on both sides of the input.
    pub padding: [usize; 2],
    /// Spacing of the kernel's elements.
    pub dilation: [usize; 2],
    /// Groups of channels that do not see each other.
    pub groups: usize,
}

unsafe extern "C" {
    fn stoker_convolution_backward(
        gradient: *const C_tensor,
        input: *const C_tensor,
        weight: *const C_tensor,
        geometry: *const i64,
        groups: i64,
        which: c_int,
        out: *mut *mut C_tensor,
        error: *mut *mut c_char,
    ) -> c_int;
}

impl Convolution {
    /// The gradient of operand `of`, given that of the output: `at::convolution_backward` for one operand.
    ///
    /// Through Burn's default, which convolves input and gradient as if the gradient were a huge kernel, that of the weight
    /// takes 25 times as long on a GPU.
    ///
    /// # Errors
    /// What libtorch refuses: shapes, types or devices that do not fit, or no memory.
    pub fn gradient(&self, of: Operand, gradient: &Tensor, input: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let [[stride0, stride1], [padding0, padding1], [dilation0, dilation1]] =
            [self.stride, self.padding, self.dilation].map(|pair| pair.map(|n| n as i64));
        let geometry = [stride0, stride1, padding0, padding1, dilation0, dilation1];
        let which = match of {
            Operand::Input => 0,
            Operand::Weight => 1,
        };
        let (mut out, mut text) = (null_mut(), null_mut());
        // SAFETY: the tensors live throughout the call, as `geometry` does, of which six numbers are read; `out` and
        // `text` may be written.
        let failed = unsafe {
            stoker_convolution_backward(
                gradient.as_ptr(),
                input.as_ptr(),
                weight.as_ptr(),
                geometry.as_ptr(),
                self.groups as i64,
                which,
                &raw mut out,
                &raw mut text,
            )
        };
        if failed != 0 {
            // SAFETY: a call that fails leaves null or a text that is the caller's to free.
            return Err(unsafe { Error::take("the gradient of a convolution", text) });
        }
        // SAFETY: a call that does not fail leaves a new tensor of which the caller is the owner.
        Ok(unsafe { Tensor::from_ptr(out) })
    }
}

#[cfg(test)]
mod tests;
