//! AdamW in one pass.
//!
//! [Note: AdamW] The rule is PyTorch's (`torch.optim.AdamW`, single tensor, no amsgrad). With `g` the scaled gradient:
//!
//! ```text
//! p = p * (1 - lr * weight_decay)
//! m = m + (g - m) * (1 - beta1)                    lerp, as PyTorch; from the other end if 1 - beta1 >= 0.5
//! v = v * beta2 + (1 - beta2) * g * g
//! p = p - (lr / (1 - beta1^t)) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//! ```
//!
//! The scalars are computed in f64 and rounded to f32 once; the elements are f32 throughout.
//!
//! burn-optim 0.22.1 means the same and rounds differently. It computes its scalars in f32, so that `1 - 0.999` is
//! 4.7e-5 too large there: its `v` is up to that much larger (the part that its bias correction, made of the same f32
//! `beta2`, does not cancel: nothing in step 1, all of it after thousands), its update up to 2.4e-5 smaller, relatively.
//! It divides `m` and `v` by their corrections one by one, multiplies the quotient by `lr` last, and takes
//! `m * beta1 + g * (1 - beta1)` for the lerp: a few units in the last place each. Its defaults are others, too: eps
//! 1e-5 and weight decay 1e-4, where PyTorch has 1e-8 and 1e-2.
//!
//! [Note: Denormals] Arithmetic with denormals is up to a hundred times slower, and moments of weights that get no
//! gradient decay into them and stay there. So a gradient below 2^-63 counts as 0 for its square, and a moment below the
//! smallest normal number counts as 0. This is a comparison and a select, not the CPU's flush-to-zero mode, which would
//! be a property of the thread: NaN and infinity pass through it.

use crate::same_length;

/// Below this a gradient's square is not a normal f32.
const SMALLEST_SQUARED: f32 = 1.0 / (1u64 << 63) as f32;

/// What all elements of a call share. See [Note: AdamW].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the bias-corrected second moment. Keep it above 1e-16, since a second moment that counts as
    /// 0 leaves nothing else in the divisor.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Number of this update, from 1.
    pub step: u64,
    /// Factor of the gradient.
    pub gradient_scale: f32,
}

/// The scalars of [Note: AdamW] as the loop wants them.
#[derive(Clone, Copy)]
struct Scalars {
    scale: f32,
    keep: f32,
    lerp: f32,
    beta2: f32,
    fresh: f32,
    root: f32,
    eps: f32,
    rate: f32,
}

impl AdamW {
    fn scalars(&self) -> Scalars {
        let step = self.step as f64;
        let correction1 = 1.0 - self.beta1.powf(step);
        let correction2 = 1.0 - self.beta2.powf(step);
        let weight = 1.0 - self.beta1;
        Scalars {
            scale: self.gradient_scale,
            keep: (1.0 - self.learning_rate * self.weight_decay) as f32,
            lerp: (if weight < 0.5 { weight } else { self.beta1 }) as f32,
            beta2: self.beta2 as f32,
            fresh: (1.0 - self.beta2) as f32,
            root: correction2.sqrt() as f32,
            eps: self.eps as f32,
            rate: (self.learning_rate / correction1) as f32,
        }
    }
}

/// Updates `parameters` and both moments from `gradient`.
///
/// # Panics
/// When the slices are not equally long.
pub fn adamw(rule: &AdamW, parameters: &mut [f32], gradient: &[f32], exp_avg: &mut [f32], exp_avg_sq: &mut [f32]) {
    same_length("the gradient", gradient.len(), parameters.len());
    same_length("exp_avg", exp_avg.len(), parameters.len());
    same_length("exp_avg_sq", exp_avg_sq.len(), parameters.len());
    // Decided once, not for every element: the lerp starts at the nearer end, so that its end points are exact.
    if 1.0 - rule.beta1 < 0.5 {
        pass::<true>(rule.scalars(), parameters, gradient, exp_avg, exp_avg_sq);
    } else {
        pass::<false>(rule.scalars(), parameters, gradient, exp_avg, exp_avg_sq);
    }
}

fn pass<const FROM_OLD: bool>(
    c: Scalars,
    parameters: &mut [f32],
    gradient: &[f32],
    exp_avg: &mut [f32],
    exp_avg_sq: &mut [f32],
) {
    let moments = exp_avg.iter_mut().zip(exp_avg_sq);
    for ((p, &g), (m, v)) in parameters.iter_mut().zip(gradient).zip(moments) {
        let g = g * c.scale;
        let decayed = *p * c.keep;
        let away = (g - *m) * c.lerp;
        let first = normal(if FROM_OLD { *m + away } else { g - away });
        let squared = if g.abs() < SMALLEST_SQUARED { 0.0 } else { g };
        let second = normal(*v * c.beta2 + squared * squared * c.fresh);
        *m = first;
        *v = second;
        *p = decayed - c.rate * (first / (second.sqrt() / c.root + c.eps));
    }
}

/// `value`, or 0 in place of a denormal.
#[inline]
fn normal(value: f32) -> f32 {
    if value.abs() < f32::MIN_POSITIVE { 0.0 } else { value }
}
