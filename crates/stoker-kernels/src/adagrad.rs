//! Adagrad in one pass.
//!
//! Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", 2011.
//!
//! [Note: Adagrad] The rule is PyTorch's (`torch.optim.Adagrad`, single tensor). With `g` the
//! [gradient](crate::Gradient) and `t` the number of the update:
//!
//! ```text
//! g = g + weight_decay * p
//! s = s + g * g                                    s is initial_accumulator_value before the first update
//! p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)
//! ```
//!
//! The scalars are computed in f64 and rounded to f32 once; the elements are f32 throughout. State starts as zeros, so
//! the first update puts the initial value in their place. Denormals count as zero: see [Note: Denormals] in
//! `denormal.rs`.

use crate::denormal::{NORMAL, least, least_squared};
use crate::gradient::{Effective, Gradient};
use crate::pass::{self, Rule};
use crate::real::Real;
use crate::{Level, Shard, noise};

/// What all elements of a call share. See [Note: Adagrad].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adagrad {
    /// Learning rate.
    pub learning_rate: f64,
    /// How fast the learning rate gets smaller.
    pub lr_decay: f64,
    /// Added to the root of the sum. Keep it above 1e-16, since a sum that counts as 0 leaves nothing else in the
    /// divisor.
    pub eps: f64,
    /// Weight decay, as an L2 penalty.
    pub weight_decay: f64,
    /// The sum before the first update, not negative.
    pub initial_accumulator_value: f64,
    /// Number of this update, from 1.
    pub update: u64,
    /// How the gradient is made.
    pub gradient: Gradient,
}

/// Updates parameters and the `sum` of the squared gradients.
///
/// # Panics
/// When the slices are not equally long.
pub fn adagrad(level: Level, rule: &Adagrad, shard: Shard<'_, 1>) {
    // Decided once, not for every element.
    if rule.weight_decay == 0.0 {
        pass::run(level, &Elementwise::new(rule, rule.gradient.prepared()), shard);
    } else {
        pass::run(level, &Elementwise::new(rule, rule.gradient.with_penalty(rule.weight_decay)), shard);
    }
}

#[derive(Clone, Copy)]
struct Elementwise<E> {
    rate: f32,
    eps: f32,
    /// The sum before the update, if it is not the state's.
    initial: Option<f32>,
    least_squared: f32,
    least_step: f32,
    salt: u32,
    how: E,
}

impl<E: Effective> Elementwise<E> {
    fn new(rule: &Adagrad, how: E) -> Self {
        let updates_before = rule.update as f64 - 1.0;
        let rate = (rule.learning_rate / (1.0 + updates_before * rule.lr_decay)) as f32;
        Self {
            rate,
            eps: rule.eps as f32,
            initial: (rule.update == 1).then_some(rule.initial_accumulator_value as f32),
            least_squared: least_squared(1.0),
            least_step: least(rate),
            salt: noise::salt(rule.update),
            how,
        }
    }
}

impl<E: Effective> Rule<1> for Elementwise<E> {
    #[inline(always)]
    fn gradient<F: Real>(&self, accumulated: F, parameter: F) -> F {
        self.how.effective(accumulated, parameter)
    }

    #[inline(always)]
    fn state<F: Real>(&self, g: F, [sum]: [F; 1]) -> [F; 1] {
        let squared = g.flushed(self.least_squared);
        [self.initial.map_or(sum, F::of).flushed_above(NORMAL) + squared * squared]
    }

    #[inline(always)]
    fn parameter<F: Real>(&self, p: F, g: F, [sum]: [F; 1]) -> F {
        let step = g / (sum.sqrt() + F::of(self.eps));
        p - step.flushed(self.least_step) * F::of(self.rate)
    }

    fn salt(&self) -> u32 {
        self.salt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradient::tests::gradients;
    use crate::testing::{Owned, near, shards, splits, watch};
    use proptest::prelude::*;

    const RULE: Adagrad = Adagrad {
        learning_rate: 0.5,
        lr_decay: 0.0,
        eps: 1e-10,
        weight_decay: 0.0,
        initial_accumulator_value: 0.0,
        update: 2,
        gradient: Gradient::AS_IT_IS,
    };

    fn kernel(rule: &Adagrad) -> impl Fn(Level, Shard<'_, 1>) {
        |level, shard| adagrad(level, rule, shard)
    }

    fn one(rule: &Adagrad, p: f32, g: f32, sum: f32) -> [f32; 2] {
        let after = Owned::one(p, g, [sum]).step(kernel(rule));
        [after.p[0], after.state[0][0]]
    }

    fn rules() -> impl Strategy<Value = Adagrad> {
        let decays = (prop_oneof![Just(0.0), 0.0..0.1], prop_oneof![Just(0.0), 0.0..0.5]);
        let update = prop_oneof![Just(1u64), 1u64..100_000];
        (0.0..0.1, decays, prop_oneof![Just(1e-10), 1e-12..1e-3], 0.0..2.0, update, gradients()).prop_map(
            |(learning_rate, (lr_decay, weight_decay), eps, initial_accumulator_value, update, gradient)| Adagrad {
                learning_rate,
                lr_decay,
                eps,
                weight_decay,
                initial_accumulator_value,
                update,
                gradient,
            },
        )
    }

    /// PyTorch's rule for one element in f64, of the gradient `g` with its penalty: the sum and the step.
    fn reference(rule: &Adagrad, g: f32, sum: f32) -> [f64; 2] {
        let (g, sum) = (f64::from(g), f64::from(sum));
        let sum = if rule.update == 1 { rule.initial_accumulator_value } else { sum } + g * g;
        let rate = rule.learning_rate / (1.0 + (rule.update as f64 - 1.0) * rule.lr_decay);
        [sum, rate * g / (sum.sqrt() + rule.eps)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn is_the_rule(shard in shards([0f32..1e4]), rule in rules()) {
            let after = shard.clone().step(kernel(&rule));
            for at in 0..shard.p.len() {
                let p = shard.p[at];
                let g = rule.gradient.with_penalty(rule.weight_decay).effective(shard.g[at], p);
                let [sum, step] = reference(&rule, g, shard.state[0][at]);
                let found = after.state[0][at];
                prop_assert!(near(found, sum, sum), "sum {found} {sum}");
                let (found, wanted) = (after.p[at], f64::from(p) - step);
                prop_assert!(near(found, wanted, f64::from(p.abs()) + 2.0 * step.abs()), "p {found} {wanted} {step}");
            }
        }

        #[test]
        fn any_split_gives_the_same_bits(shard in shards([0f32..1e4]), rule in rules(), split in splits()) {
            let together = shard.clone().step(kernel(&rule));
            prop_assert_eq!(shard.step_split(split, kernel(&rule)).bits(), together.bits());
        }
    }

    #[test]
    fn by_hand() {
        // 16 + 3 * 3 = 25; 1 - 0.5 * 3 / 5
        assert_eq!(one(&RULE, 1.0, 3.0, 16.0), [0.7, 25.0]);
        // The third update, with half of the learning rate.
        assert_eq!(one(&Adagrad { lr_decay: 0.5, update: 3, ..RULE }, 1.0, 3.0, 16.0), [0.85, 25.0]);
        // 1 + 0.5 * 4 = 3
        assert_eq!(one(&Adagrad { weight_decay: 0.5, ..RULE }, 4.0, 1.0, 16.0), [3.7, 25.0]);
        // -8 * 0.5 = -4, cut to -3.
        let gradient = Gradient { scale: 0.5, clip: 3.0 };
        assert_eq!(one(&Adagrad { gradient, ..RULE }, 1.0, -8.0, 16.0), [1.3, 25.0]);
    }

    #[test]
    fn the_first_update_starts_with_the_initial_value() {
        let first = Adagrad { initial_accumulator_value: 16.0, update: 1, ..RULE };
        assert_eq!(one(&first, 1.0, 3.0, 0.0), [0.7, 25.0]);
        // 0.5 * g / |g|, whatever g.
        assert_eq!(one(&Adagrad { update: 1, ..RULE }, 1.0, -3.0, 0.0), [1.5, 9.0]);
        assert_eq!(one(&Adagrad { initial_accumulator_value: 16.0, ..RULE }, 1.0, 3.0, 0.0)[1], 9.0);
    }

    #[test]
    fn denormals_count_as_zero() {
        let (smallest, edge) = (f32::MIN_POSITIVE, 1.0 / (1u64 << 63) as f32);
        assert_eq!(one(&RULE, 1.0, edge, 0.0)[1], smallest);
        let [p, sum] = one(&RULE, 0.0, edge * 0.999, 0.0);
        assert!(sum == 0.0 && p < 0.0 && p > -1e-9, "{p} {sum}");
        let denormal = Adagrad { initial_accumulator_value: 1e-40, update: 1, ..RULE };
        assert_eq!(one(&denormal, 1.0, 0.0, 0.0), [1.0, 0.0]);
    }

    #[test]
    fn nothing_computes_with_denormals() {
        for rule in [RULE, Adagrad { update: 1, initial_accumulator_value: 1e-40, ..RULE }] {
            watch(&Elementwise::new(&rule, rule.gradient.with_penalty(0.1)), [false]);
        }
    }

    #[test]
    fn what_is_not_finite_passes_through() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let after = one(&RULE, 1.0, bad, 1.0);
            assert!(after.iter().all(|value| !value.is_finite()), "{bad}: {after:?}");
        }
        assert!(one(&RULE, 1.0, 0.0, f32::NAN)[0].is_nan());
    }

    #[test]
    #[should_panic(expected = "a state has 2 elements, 1 were wanted")]
    fn unequal_slices_are_a_mistake() {
        adagrad(Level::best(), &RULE, Shard::of_f32(&mut [0.0], &[0.0], [&mut [0.0; 2]]));
    }
}
