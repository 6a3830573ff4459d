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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULE: AdamW = AdamW {
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.01,
        step: 1,
        gradient_scale: 1.0,
    };

    #[derive(Debug, Clone)]
    struct Shard {
        p: Vec<f32>,
        g: Vec<f32>,
        m: Vec<f32>,
        v: Vec<f32>,
    }

    impl Shard {
        fn one(p: f32, g: f32, m: f32, v: f32) -> Self {
            Self { p: vec![p], g: vec![g], m: vec![m], v: vec![v] }
        }

        fn step(mut self, rule: &AdamW) -> Self {
            adamw(rule, &mut self.p, &self.g, &mut self.m, &mut self.v);
            self
        }

        fn bits(&self) -> Vec<u32> {
            [&self.p, &self.m, &self.v].into_iter().flatten().map(|value| value.to_bits()).collect()
        }
    }

    fn shards() -> impl Strategy<Value = Shard> {
        let element = (-10f32..10.0, -100f32..100.0, -100f32..100.0, 0f32..1e4);
        proptest::collection::vec(element, 0..4098).prop_map(|elements| {
            let mut shard = Shard { p: vec![], g: vec![], m: vec![], v: vec![] };
            for (p, g, m, v) in elements {
                shard.p.push(p);
                shard.g.push(g);
                shard.m.push(m);
                shard.v.push(v);
            }
            shard
        })
    }

    fn rules() -> impl Strategy<Value = AdamW> {
        let betas = (prop_oneof![Just(0.0), Just(0.9), 0.0..0.999], prop_oneof![Just(0.999), 0.5..0.9999]);
        let rates = (0.0..0.1, prop_oneof![Just(1e-8), 1e-12..1e-3], 0.0..0.5);
        (betas, rates, 1u64..100_000, prop_oneof![Just(1f32), 1e-3f32..10.0]).prop_map(
            |((beta1, beta2), (learning_rate, eps, weight_decay), step, gradient_scale)| AdamW {
                learning_rate,
                beta1,
                beta2,
                eps,
                weight_decay,
                step,
                gradient_scale,
            },
        )
    }

    /// PyTorch's rule for one element in f64; the moments, the parameter, and the step that an update of the size of
    /// the terms of `m` would make.
    fn reference(rule: &AdamW, p: f32, g: f32, m: f32, v: f32) -> [f64; 4] {
        let [p, g, m, v] = [p, g * rule.gradient_scale, m, v].map(f64::from);
        let p = p * (1.0 - rule.learning_rate * rule.weight_decay);
        let first = rule.beta1 * m + (1.0 - rule.beta1) * g;
        let second = rule.beta2 * v + (1.0 - rule.beta2) * g * g;
        let corrected = |moment: f64, beta: f64| moment / (1.0 - beta.powf(rule.step as f64));
        let divisor = corrected(second, rule.beta2).sqrt() + rule.eps;
        let step = |first: f64| rule.learning_rate * corrected(first, rule.beta1) / divisor;
        [first, second, p - step(first), step(m.abs() + g.abs())]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn is_the_rule(shard in shards(), rule in rules()) {
            let after = shard.clone().step(&rule);
            for at in 0..shard.p.len() {
                let (p, g, m, v) = (shard.p[at], shard.g[at], shard.m[at], shard.v[at]);
                let [first, second, parameter, step] = reference(&rule, p, g, m, v);
                // A few roundings of 2^-24, of the terms that were rounded.
                let terms = f64::from(m.abs() + (g * rule.gradient_scale).abs());
                let near = |found: f32, wanted: f64, size: f64| (f64::from(found) - wanted).abs() <= 5e-7 * size + 1e-37;
                prop_assert!(near(after.m[at], first, terms), "m {} {first}", after.m[at]);
                prop_assert!(near(after.v[at], second, second), "v {} {second}", after.v[at]);
                let size = f64::from(p.abs()) + 2.0 * step;
                prop_assert!(near(after.p[at], parameter, size), "p {} {parameter} {step}", after.p[at]);
            }
        }

        #[test]
        fn any_split_gives_the_same_bits(shard in shards(), rule in rules(), cut in 0usize..4098, chunk in 1usize..70) {
            let together = shard.clone().step(&rule);
            let mut split = shard.clone();
            let cut = cut.min(shard.p.len());
            let ranges = std::iter::once(0..cut)
                .chain((cut..shard.p.len()).step_by(chunk).map(|at| at..(at + chunk).min(shard.p.len())));
            for range in ranges {
                let (m, v) = (&mut split.m[range.clone()], &mut split.v[range.clone()]);
                adamw(&rule, &mut split.p[range.clone()], &shard.g[range], m, v);
            }
            prop_assert_eq!(split.bits(), together.bits());
        }
    }

    #[test]
    fn the_first_step_goes_a_learning_rate_down() {
        let after = Shard::one(1.0, 0.25, 0.0, 0.0).step(&RULE);
        // 1 * (1 - 1e-5) - 1e-3
        assert_eq!(after.p, [0.99899]);
        assert_eq!(after.m, [0.025]);
        assert_eq!(after.v, [0.0625 * 0.001]);
    }

    #[test]
    fn without_memory_the_first_moment_is_the_gradient() {
        let after = Shard::one(1.0, 0.1, 77.7, 1.0).step(&AdamW { beta1: 0.0, ..RULE });
        assert_eq!(after.m, [0.1]);
    }

    #[test]
    fn denormals_count_as_zero() {
        let smallest = f32::MIN_POSITIVE;
        let edge = SMALLEST_SQUARED;
        assert_eq!(edge * edge, smallest);
        // All of a new gradient, so that its square is not scaled down.
        let rule = AdamW { beta2: 0.0, ..RULE };
        assert_eq!(Shard::one(1.0, edge, 0.0, 0.0).step(&rule).v, [smallest]);
        assert_eq!(Shard::one(1.0, edge * 0.999, 0.0, 1.0).step(&rule).v, [0.0]);
        let decaying = Shard::one(1.0, 0.0, -smallest, smallest).step(&RULE);
        assert_eq!((decaying.m[0], decaying.v[0]), (0.0, 0.0));
        let kept = Shard::one(1.0, 0.0, 2.0 * smallest, 2.0 * smallest).step(&RULE);
        assert!(kept.m[0] > smallest && kept.v[0] > smallest);
        // Gradients too small to square still move the first moment, and eps alone divides it.
        let tiny = Shard::one(0.0, edge / 2.0, 0.0, 0.0).step(&RULE);
        assert!(tiny.m[0] > 0.0 && tiny.p[0] < 0.0 && tiny.p[0] > -1e-13, "{tiny:?}");
    }

    #[test]
    fn what_is_not_finite_passes_through() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let after = Shard::one(1.0, bad, 0.0, 0.0).step(&RULE);
            assert!(!after.p[0].is_finite() && !after.m[0].is_finite() && !after.v[0].is_finite(), "{bad}: {after:?}");
        }
        assert!(Shard::one(1.0, 0.0, 0.0, f32::NAN).step(&RULE).p[0].is_nan());
        assert!(Shard::one(1.0, 0.0, f32::NAN, 0.0).step(&RULE).p[0].is_nan());
    }

    #[test]
    #[should_panic(expected = "exp_avg has 2 elements, 1 were wanted")]
    fn unequal_slices_are_a_mistake() {
        adamw(&RULE, &mut [0.0], &[0.0], &mut [0.0; 2], &mut [0.0]);
    }
}
