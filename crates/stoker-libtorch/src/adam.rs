//! Adam's update, by libtorch's fused kernel: one pass over the device's memory.

use crate::{Error, Result};
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use tch::Tensor;
use torch_sys::C_tensor;

/// The numbers of one update by Adam (Kingma and Ba, 2015), or AdamW (Loshchilov and Hutter, 2019), as PyTorch defines
/// them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// Whether weight decay is decoupled (AdamW), or an L2 penalty.
    pub decoupled: bool,
    /// Number of this update, from 1.
    pub update: u64,
    /// Learning rate.
    pub learning_rate: f64,
    /// Decays of the first and the second moment.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
}

unsafe extern "C" {
    fn stoker_adam(
        parameters: *const C_tensor,
        gradient: *const C_tensor,
        first: *const C_tensor,
        second: *const C_tensor,
        decoupled: c_int,
        step: f64,
        numbers: *const f64,
        error: *mut *mut c_char,
    ) -> c_int;
}

impl Adam {
    /// Updates f32 tensors of one shape in place: parameters, and their moments. The gradient is left as it is.
    ///
    /// # Errors
    /// What libtorch refuses: shapes, types or devices that do not fit, or no memory.
    pub fn update(&self, parameters: &mut Tensor, gradient: &Tensor, moments: [&mut Tensor; 2]) -> Result<()> {
        let [first, second] = moments;
        let numbers = [self.learning_rate, self.betas.0, self.betas.1, self.weight_decay, self.eps];
        let mut text = null_mut();
        // SAFETY: the tensors live throughout the call, as `numbers` does, of which five are read; those that it writes to
        // are borrowed for that; `text` may be written.
        let failed = unsafe {
            stoker_adam(
                parameters.as_ptr(),
                gradient.as_ptr(),
                first.as_ptr(),
                second.as_ptr(),
                c_int::from(self.decoupled),
                self.update as f64,
                numbers.as_ptr(),
                &raw mut text,
            )
        };
        if failed == 0 {
            return Ok(());
        }
        // SAFETY: a call that fails leaves null or a text that is the caller's to free.
        Err(unsafe { Error::take("an update by Adam", text) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code reports by panicking")]

    use super::*;

    /// The rule in f64, of one element.
    fn rule(adam: &Adam, parameter: f64, gradient: f64, moments: [f64; 2]) -> [f64; 3] {
        let Adam { decoupled, update, learning_rate, betas: (b1, b2), eps, weight_decay } = *adam;
        let (parameter, gradient) = if decoupled {
            (parameter * (1.0 - learning_rate * weight_decay), gradient)
        } else {
            (parameter, gradient + weight_decay * parameter)
        };
        let first = b1 * moments[0] + (1.0 - b1) * gradient;
        let second = b2 * moments[1] + (1.0 - b2) * gradient * gradient;
        let corrected = |moment: f64, beta: f64| moment / (1.0 - beta.powi(i32::try_from(update).unwrap()));
        let change = corrected(first, b1) / (corrected(second, b2).sqrt() + eps);
        [parameter - learning_rate * change, first, second]
    }

    #[test]
    fn is_the_rule() {
        let values = |numbers: &[f32]| Tensor::from_slice(numbers);
        for decoupled in [true, false] {
            for update in [1, 7] {
                let adam =
                    Adam { decoupled, update, learning_rate: 0.01, betas: (0.8, 0.95), eps: 1e-3, weight_decay: 0.3 };
                let given = [[1.0, 0.5, 0.25, 0.125], [-2.0, 0.0, -0.5, 1.0], [0.0, -1.0, 0.0, 0.0f32]];
                let column = |at: usize| values(&given.map(|row| row[at]));
                let [mut parameters, gradient, mut first, mut second] = [0, 1, 2, 3].map(column);
                adam.update(&mut parameters, &gradient, [&mut first, &mut second]).unwrap();
                for (at, row) in given.iter().enumerate() {
                    let [p, g, m, v] = row.map(f64::from);
                    let found = [&parameters, &first, &second].map(|tensor| tensor.double_value(&[at as i64]));
                    let wanted = rule(&adam, p, g, [m, v]);
                    let close = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6);
                    assert!(close, "{adam:?}, row {at}: {found:?} instead of {wanted:?}");
                    assert_eq!(gradient.double_value(&[at as i64]), g);
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let adam =
            Adam { decoupled: true, update: 1, learning_rate: 0.1, betas: (0.9, 0.99), eps: 1e-8, weight_decay: 0.0 };
        let tensor = || Tensor::zeros([2], tch::kind::FLOAT_CPU);
        let narrow = Tensor::zeros([2], (tch::Kind::BFloat16, tch::Device::Cpu));
        let error = adam.update(&mut tensor(), &narrow, [&mut tensor(), &mut tensor()]).unwrap_err().to_string();
        assert!(error.starts_with("an update by Adam: "), "{error}");
    }
}
