//! From the accumulated gradient to the one that an update rule sees.

use crate::convert::widen;
use crate::denormal::{NORMAL, least, least_product};
use crate::real::Real;
use crate::same_length;
use stoker_core::Values;

/// How a gradient is made from an accumulated one: times `scale`, then cut to `[-clip, clip]`. What would be a denormal
/// counts as 0.
///
/// ```
/// use stoker_kernels::Gradient;
/// let halved = Gradient { scale: 0.5, clip: 3.0 };
/// assert_eq!([4.0, 8.0, -8.0].map(|accumulated| halved.of(accumulated)), [2.0, 3.0, -3.0]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gradient {
    /// Factor of the accumulated gradient.
    pub scale: f32,
    /// Largest magnitude, not negative; infinity cuts nothing.
    pub clip: f32,
}

impl Gradient {
    /// The accumulated gradient as it is.
    pub const AS_IT_IS: Self = Self { scale: 1.0, clip: f32::INFINITY };

    /// The gradient of one element. NaN stays NaN, as with PyTorch's `clip_grad_value_`; infinity is cut like the rest.
    pub fn of(self, accumulated: f32) -> f32 {
        self.prepared().effective(accumulated, 0.0)
    }

    /// The gradients of many elements.
    ///
    /// # Panics
    /// When the slices are not equally long.
    pub fn of_all(self, into: &mut [f32], accumulated: Values<'_>) {
        same_length("the gradient", accumulated.len(), into.len());
        widen(into, accumulated);
        let prepared = self.prepared();
        into.iter_mut().for_each(|value| *value = prepared.effective(*value, 0.0));
    }

    /// As loops want it.
    pub(crate) fn prepared(self) -> Prepared {
        // Cut to a denormal, it would be one.
        Prepared { scale: self.scale, clip: self.clip.flushed(NORMAL), least: least(self.scale) }
    }

    /// With weight decay by an L2 penalty.
    pub(crate) fn with_penalty(self, weight_decay: f64) -> Penalised {
        let penalty = weight_decay as f32;
        Penalised { gradient: self.prepared(), penalty, least: least(penalty) }
    }
}

/// [`Gradient`] with its limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prepared {
    scale: f32,
    clip: f32,
    least: f32,
}

/// The gradient of the loss and of an L2 penalty together: `g + penalty * p`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Penalised {
    gradient: Prepared,
    penalty: f32,
    least: f32,
}

/// With an L2 penalty or without, so that loops are compiled for either.
///
/// Without one the parameter must not matter, since 0 times infinity is NaN.
pub(crate) trait Effective: Copy + Send + Sync {
    /// The gradient of one element whose parameter is `parameter`: a normal number or 0.
    fn effective<F: Real>(self, accumulated: F, parameter: F) -> F;

    /// The least magnitude that an accumulated gradient needs for its effective one to have at least `least`, which is
    /// normal; infinity if none is enough.
    fn calm_from(self, least: f32) -> f32;
}

impl Effective for Prepared {
    #[inline(always)]
    fn effective<F: Real>(self, accumulated: F, _parameter: F) -> F {
        // Comparisons and selects, which vectorise; `clamp` would panic on a clip of NaN.
        let clip = F::of(self.clip);
        let gradient = accumulated.input_flushed(self.least) * F::of(self.scale);
        let gradient = if gradient > clip { clip } else { gradient };
        if gradient < -clip { -clip } else { gradient }
    }

    fn calm_from(self, least: f32) -> f32 {
        // What is cut has the magnitude of `clip`.
        if self.clip < least { f32::INFINITY } else { least_product(self.scale, least) }
    }
}

impl Effective for Penalised {
    #[inline(always)]
    fn effective<F: Real>(self, accumulated: F, parameter: F) -> F {
        let gradient = self.gradient.effective(accumulated, parameter);
        (gradient + parameter.flushed(self.least) * F::of(self.penalty)).flushed(NORMAL)
    }

    fn calm_from(self, _: f32) -> f32 {
        // The sum may be anything.
        f32::INFINITY
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gradients as the properties of all kernels use them.
    pub(crate) fn gradients() -> impl Strategy<Value = Gradient> {
        let scale = prop_oneof![Just(1f32), 1e-3f32..10.0];
        (scale, prop_oneof![Just(f32::INFINITY), 0f32..50.0]).prop_map(|(scale, clip)| Gradient { scale, clip })
    }

    proptest! {
        #[test]
        fn is_scaled_cut_and_penalised(gradient in gradients(), g in -100f32..100.0, p in -10f32..10.0, wd in 0.0..0.5) {
            let found = gradient.of(g);
            prop_assert_eq!(found, (g * gradient.scale).clamp(-gradient.clip, gradient.clip));
            let (clip, penalty) = (f64::from(gradient.clip), wd * f64::from(p));
            let wanted = (f64::from(g) * f64::from(gradient.scale)).clamp(-clip, clip) + penalty;
            let penalised = gradient.with_penalty(wd).effective(g, p);
            let terms = f64::from(found.abs()) + penalty.abs();
            prop_assert!((f64::from(penalised) - wanted).abs() <= 3e-7 * terms, "{penalised} {wanted}");
        }
    }

    #[test]
    fn what_is_not_finite_stays_unless_it_can_be_cut() {
        let (open, cut) = (Gradient::AS_IT_IS, Gradient { scale: 1.0, clip: 2.0 });
        assert!(open.of(f32::NAN).is_nan() && cut.of(f32::NAN).is_nan());
        assert_eq!((open.of(f32::INFINITY), open.of(f32::NEG_INFINITY)), (f32::INFINITY, f32::NEG_INFINITY));
        assert_eq!((cut.of(f32::INFINITY), cut.of(f32::NEG_INFINITY)), (2.0, -2.0));
    }

    #[test]
    fn many_are_as_one() {
        let gradient = Gradient { scale: 0.5, clip: 3.0 };
        let narrow = [1.0, -80.0, f32::NAN].map(half::bf16::from_f32);
        let mut found = [9.0; 3];
        gradient.of_all(&mut found, Values::BF16(&narrow));
        assert_eq!(found[..2], [0.5, -3.0]);
        assert!(found[2].is_nan());
    }

    #[test]
    fn without_a_penalty_the_parameter_does_not_matter() {
        assert_eq!(Gradient::AS_IT_IS.prepared().effective(0.5, f32::INFINITY), 0.5);
        assert_eq!(Gradient::AS_IT_IS.with_penalty(0.25).effective(0.5, 8.0), 2.5);
    }
}
