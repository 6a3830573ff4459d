//! Lion in one pass.
//!
//! Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023.
//!
//! [Note: Lion] The rule is that of the paper and its authors' code. With `g` the [gradient](crate::Gradient):
//!
//! ```text
//! p = p * (1 - lr * weight_decay)
//! p = p - lr * sign(beta1 * m + (1 - beta1) * g)   sign(0) is 0
//! m = beta2 * m + (1 - beta2) * g
//! ```
//!
//! The scalars are computed in f64 and rounded to f32 once; the elements are f32 throughout. The sign of NaN is NaN (it
//! is 0 in PyTorch and Burn), so that a bad gradient reaches the parameter too. Denormals count
//! as zero (see [Note: Denormals] in `denormal.rs`), and so has their sign no direction.

use crate::denormal::{NORMAL, least};
use crate::gradient::{Effective, Gradient, Prepared};
use crate::pass::{self, Rule};
use crate::real::Real;
use crate::{Level, Shard, noise};

/// What all elements of a call share. See [Note: Lion].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lion {
    /// Learning rate: the size of every step.
    pub learning_rate: f64,
    /// Weight of the moment, against the gradient's, in the direction.
    pub beta1: f64,
    /// Decay of the moment.
    pub beta2: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Number of this update, from 1; it matters only for state that is narrower than f32.
    pub update: u64,
    /// How the gradient is made.
    pub gradient: Gradient,
}

/// Updates parameters and the moment, `exp_avg`.
///
/// # Panics
/// When the slices are not equally long.
pub fn lion(level: Level, rule: &Lion, shard: Shard<'_, 1>) {
    pass::run(level, &Elementwise::new(rule), shard);
}

#[derive(Clone, Copy)]
struct Elementwise {
    keep: f32,
    least_parameter: f32,
    rate: f32,
    direction: Weights,
    moment: Weights,
    salt: u32,
    how: Prepared,
}

impl Elementwise {
    fn new(rule: &Lion) -> Self {
        let keep = (1.0 - rule.learning_rate * rule.weight_decay) as f32;
        let weights = |beta: f64| {
            let (old, fresh) = (beta as f32, (1.0 - beta) as f32);
            Weights { old, fresh, least_old: least(old), least_fresh: least(fresh) }
        };
        Self {
            keep,
            least_parameter: least(keep),
            rate: rule.learning_rate as f32,
            direction: weights(rule.beta1),
            moment: weights(rule.beta2),
            salt: noise::salt(rule.update),
            how: rule.gradient.prepared(),
        }
    }
}

/// Of a mean of moment and gradient, with the least magnitudes of either.
#[derive(Clone, Copy)]
struct Weights {
    old: f32,
    fresh: f32,
    least_old: f32,
    least_fresh: f32,
}

impl Weights {
    #[inline(always)]
    fn mean<F: Real>(self, m: F, g: F) -> F {
        let mean = m.flushed(self.least_old) * F::of(self.old) + g.flushed(self.least_fresh) * F::of(self.fresh);
        mean.flushed(NORMAL)
    }
}

impl Rule<1> for Elementwise {
    const STATE_LAST: bool = true;

    #[inline(always)]
    fn gradient<F: Real>(&self, accumulated: F, parameter: F) -> F {
        self.how.effective(accumulated, parameter)
    }

    #[inline(always)]
    fn state<F: Real>(&self, g: F, [m]: [F; 1]) -> [F; 1] {
        [self.moment.mean(m, g)]
    }

    #[inline(always)]
    fn parameter<F: Real>(&self, p: F, g: F, [m]: [F; 1]) -> F {
        let direction = sign(self.direction.mean(m, g));
        p.flushed(self.least_parameter) * F::of(self.keep) - direction * F::of(self.rate)
    }

    fn salt(&self) -> u32 {
        self.salt
    }
}

/// 1 or -1; zeros and NaN as they are.
#[inline(always)]
fn sign<F: Real>(value: F) -> F {
    let (zero, one) = (F::of(0.0), F::of(1.0));
    let value = if value > zero { one } else { value };
    if value < zero { -one } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradient::tests::gradients;
    use crate::testing::{Owned, near, shards, splits, watch};
    use proptest::prelude::*;

    const RULE: Lion = Lion {
        learning_rate: 0.25,
        beta1: 0.5,
        beta2: 0.75,
        weight_decay: 0.0,
        update: 2,
        gradient: Gradient::AS_IT_IS,
    };

    fn kernel(rule: &Lion) -> impl Fn(Level, Shard<'_, 1>) {
        |level, shard| lion(level, rule, shard)
    }

    fn one(rule: &Lion, p: f32, g: f32, m: f32) -> [f32; 2] {
        let after = Owned::one(p, g, [m]).step(kernel(rule));
        [after.p[0], after.state[0][0]]
    }

    fn rules() -> impl Strategy<Value = Lion> {
        let betas = (prop_oneof![Just(0.0), Just(0.9), 0.0..0.999], prop_oneof![Just(0.99), 0.0..0.9999]);
        (0.0..0.1, betas, 0.0..0.5, gradients()).prop_map(|(learning_rate, (beta1, beta2), weight_decay, gradient)| {
            Lion { learning_rate, beta1, beta2, weight_decay, update: 2, gradient }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn is_the_rule(shard in shards([-100f32..100.0]), rule in rules()) {
            let after = shard.clone().step(kernel(&rule));
            for at in 0..shard.p.len() {
                let gradient = rule.gradient.of(shard.g[at]);
                let [p, g, m] = [shard.p[at], gradient, shard.state[0][at]].map(f64::from);
                let (terms, moment) = (m.abs() + g.abs(), rule.beta2 * m + (1.0 - rule.beta2) * g);
                prop_assert!(near(after.state[0][at], moment, terms), "m {} {moment}", after.state[0][at]);
                let direction = rule.beta1 * m + (1.0 - rule.beta1) * g;
                // What rounding may have moved to the other side of 0 may go either way.
                let open = direction.abs() <= 5e-7 * terms;
                let signs = if open { vec![-1.0, 0.0, 1.0] } else { vec![direction.signum()] };
                let decayed = p * (1.0 - rule.learning_rate * rule.weight_decay);
                let found = after.p[at];
                let right = |sign: &f64| near(found, decayed - rule.learning_rate * sign, p.abs() + rule.learning_rate);
                prop_assert!(signs.iter().any(right), "p {found} from {decayed}, {direction}");
            }
        }

        #[test]
        fn any_split_gives_the_same_bits(shard in shards([-100f32..100.0]), rule in rules(), split in splits()) {
            let together = shard.clone().step(kernel(&rule));
            prop_assert_eq!(shard.step_split(split, kernel(&rule)).bits(), together.bits());
        }
    }

    #[test]
    fn by_hand() {
        // 0.5 * 1 + 0.5 * 3 > 0; 0.75 * 1 + 0.25 * 3
        assert_eq!(one(&RULE, 2.0, 3.0, 1.0), [1.75, 1.5]);
        // The moment outweighs the gradient.
        assert_eq!(one(&RULE, 2.0, 3.0, -5.0), [2.25, -3.0]);
        // 2 * (1 - 0.25 * 0.5) = 1.75
        assert_eq!(one(&Lion { weight_decay: 0.5, ..RULE }, 2.0, 3.0, 1.0), [1.5, 1.5]);
        // 8 * 0.5 = 4, cut to 3.
        assert_eq!(one(&Lion { gradient: Gradient { scale: 0.5, clip: 3.0 }, ..RULE }, 2.0, 8.0, 1.0), [1.75, 1.5]);
    }

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(one(&RULE, 2.0, 0.0, 0.0), [2.0, 0.0]);
        assert_eq!(one(&RULE, 2.0, 1.0, -1.0), [2.0, -0.5]);
        assert_eq!([1e-45, 7.0, -1e-45, -7.0, 0.0, -0.0].map(sign), [1.0, 1.0, -1.0, -1.0, 0.0, -0.0]);
        assert_eq!([f32::INFINITY, f32::NEG_INFINITY].map(sign), [1.0, -1.0]);
    }

    #[test]
    fn denormals_count_as_zero() {
        assert_eq!(one(&RULE, 1.0, 0.0, f32::MIN_POSITIVE)[1], 0.0);
        assert_eq!(one(&RULE, 1.0, 0.0, -2.0 * f32::MIN_POSITIVE)[1], -1.5 * f32::MIN_POSITIVE);
    }

    #[test]
    fn what_is_not_finite_passes_through() {
        assert!(one(&RULE, 1.0, f32::NAN, 0.0).iter().all(|value| value.is_nan()));
        assert!(one(&RULE, 1.0, 0.0, f32::NAN).iter().all(|value| value.is_nan()));
        // An infinite gradient has a sign, and makes the moment infinite.
        assert_eq!(one(&RULE, 1.0, f32::INFINITY, 0.0), [0.75, f32::INFINITY]);
    }

    #[test]
    fn nothing_computes_with_denormals() {
        watch(&Elementwise::new(&Lion { weight_decay: 0.1, ..RULE }), [true]);
    }

    #[test]
    #[should_panic(expected = "a state has 2 elements, 1 were wanted")]
    fn unequal_slices_are_a_mistake() {
        lion(Level::best(), &RULE, Shard::of_f32(&mut [0.0], &[0.0], [&mut [0.0; 2]]));
    }
}
