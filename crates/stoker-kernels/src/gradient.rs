//! From the accumulated gradient to the one that an update rule sees.

/// How a gradient is made from an accumulated one: times `scale`, then cut to `[-clip, clip]`.
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
    #[inline]
    pub fn of(self, accumulated: f32) -> f32 {
        // Comparisons and selects, which vectorise; `clamp` would panic on a clip of NaN.
        let gradient = accumulated * self.scale;
        let gradient = if gradient > self.clip { self.clip } else { gradient };
        if gradient < -self.clip { -self.clip } else { gradient }
    }

    /// With weight decay by an L2 penalty.
    pub(crate) fn with_penalty(self, weight_decay: f64) -> Penalised {
        Penalised { gradient: self, penalty: weight_decay as f32 }
    }
}

/// The gradient of the loss and of an L2 penalty together: `g + penalty * p`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Penalised {
    gradient: Gradient,
    penalty: f32,
}

/// With an L2 penalty or without, so that loops are compiled for either.
///
/// Without one the parameter must not matter, since 0 times infinity is NaN; a comparison for every element costs a
/// fifth of Adam's time.
pub(crate) trait Effective: Copy {
    /// The gradient of one element whose parameter is `parameter`.
    fn effective(self, accumulated: f32, parameter: f32) -> f32;
}

impl Effective for Gradient {
    #[inline]
    fn effective(self, accumulated: f32, _parameter: f32) -> f32 {
        self.of(accumulated)
    }
}

impl Effective for Penalised {
    #[inline]
    fn effective(self, accumulated: f32, parameter: f32) -> f32 {
        self.gradient.of(accumulated) + self.penalty * parameter
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
    fn without_a_penalty_the_parameter_does_not_matter() {
        assert_eq!(Gradient::AS_IT_IS.effective(0.5, f32::INFINITY), 0.5);
        assert_eq!(Gradient::AS_IT_IS.with_penalty(0.25).effective(0.5, 8.0), 2.5);
    }
}
