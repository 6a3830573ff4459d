//! Stochastic gradient descent in one pass, with and without momentum.
//!
//! Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and momentum in deep learning", 2013.
//!
//! [Note: SGD] The rule is PyTorch's (`torch.optim.SGD`, single tensor). With `g` the [gradient](crate::Gradient):
//!
//! ```text
//! g = g + weight_decay * p
//! b = momentum * b + (1 - dampening) * g           b = g in the first update
//! g = g + momentum * b if nesterov, else b         these two lines only with momentum
//! p = p - lr * g
//! ```
//!
//! The scalars are computed in f64 and rounded to f32 once; the elements are f32 throughout. Denormals count as zero:
//! see [Note: Denormals] in `denormal.rs`.

use crate::denormal::{NORMAL, least};
use crate::gradient::{Effective, Gradient};
use crate::pass::{self, Rule};
use crate::real::Real;
use crate::{Level, Shard, noise};

/// What all elements of a call share. See [Note: SGD].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub learning_rate: f64,
    /// Weight decay, as an L2 penalty.
    pub weight_decay: f64,
    /// How the gradient is made.
    pub gradient: Gradient,
}

/// How much of past gradients is in a step. See [Note: SGD].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Momentum {
    /// Decay of the buffer.
    pub momentum: f64,
    /// How much less of the gradient enters the buffer.
    pub dampening: f64,
    /// Whether the step looks one step ahead.
    pub nesterov: bool,
    /// Number of this update, from 1.
    pub update: u64,
}

/// Updates parameters.
///
/// # Panics
/// When the slices are not equally long.
pub fn sgd(level: Level, rule: &Sgd, shard: Shard<'_, 0>) {
    // Decided once, not for every element.
    if rule.weight_decay == 0.0 {
        pass::run(level, &Plain { step: Step::new(rule), how: rule.gradient.prepared() }, shard);
    } else {
        pass::run(level, &Plain { step: Step::new(rule), how: rule.gradient.with_penalty(rule.weight_decay) }, shard);
    }
}

/// Updates parameters and the momentum buffer.
///
/// # Panics
/// When the slices are not equally long.
pub fn sgd_momentum(level: Level, rule: &Sgd, past: &Momentum, shard: Shard<'_, 1>) {
    // Decided once, not for every element.
    if rule.weight_decay == 0.0 {
        with_momentum(level, rule, past, rule.gradient.prepared(), shard);
    } else {
        with_momentum(level, rule, past, rule.gradient.with_penalty(rule.weight_decay), shard);
    }
}

fn with_momentum(level: Level, rule: &Sgd, past: &Momentum, how: impl Effective, shard: Shard<'_, 1>) {
    let (step, buffer, salt) = (Step::new(rule), Buffer::new(past), noise::salt(past.update));
    if past.nesterov {
        pass::run(level, &Remembering::<_, true> { step, buffer, salt, how }, shard);
    } else {
        pass::run(level, &Remembering::<_, false> { step, buffer, salt, how }, shard);
    }
}

/// The last line of [Note: SGD].
#[derive(Clone, Copy)]
struct Step {
    rate: f32,
    least: f32,
}

impl Step {
    fn new(rule: &Sgd) -> Self {
        let rate = rule.learning_rate as f32;
        Self { rate, least: least(rate) }
    }

    #[inline(always)]
    fn from<F: Real>(self, p: F, g: F) -> F {
        p - g.flushed(self.least) * F::of(self.rate)
    }
}

#[derive(Clone, Copy)]
struct Plain<E> {
    step: Step,
    how: E,
}

impl<E: Effective> Rule<0> for Plain<E> {
    #[inline(always)]
    fn gradient<F: Real>(&self, accumulated: F, parameter: F) -> F {
        self.how.effective(accumulated, parameter)
    }

    #[inline(always)]
    fn state<F: Real>(&self, _: F, state: [F; 0]) -> [F; 0] {
        state
    }

    #[inline(always)]
    fn parameter<F: Real>(&self, p: F, g: F, _: [F; 0]) -> F {
        self.step.from(p, g)
    }

    fn salt(&self) -> u32 {
        0
    }
}

#[derive(Clone, Copy)]
struct Buffer {
    old: f32,
    fresh: f32,
    first: bool,
    least_old: f32,
    least_fresh: f32,
}

impl Buffer {
    fn new(past: &Momentum) -> Self {
        let first = past.update == 1;
        let old = past.momentum as f32;
        // In the first update all of the gradient goes into a buffer of zeros.
        let fresh = if first { 1.0 } else { (1.0 - past.dampening) as f32 };
        Self { old, fresh, first, least_old: least(old), least_fresh: least(fresh) }
    }
}

#[derive(Clone, Copy)]
struct Remembering<E, const NESTEROV: bool> {
    step: Step,
    buffer: Buffer,
    salt: u32,
    how: E,
}

impl<E: Effective, const NESTEROV: bool> Rule<1> for Remembering<E, NESTEROV> {
    #[inline(always)]
    fn gradient<F: Real>(&self, accumulated: F, parameter: F) -> F {
        self.how.effective(accumulated, parameter)
    }

    #[inline(always)]
    fn state<F: Real>(&self, g: F, [b]: [F; 1]) -> [F; 1] {
        let Buffer { old, fresh, first, least_old, least_fresh } = self.buffer;
        // Whatever is in the buffer before the first update.
        let b = if first { F::of(0.0) } else { b };
        [(b.flushed(least_old) * F::of(old) + g.flushed(least_fresh) * F::of(fresh)).flushed(NORMAL)]
    }

    #[inline(always)]
    fn parameter<F: Real>(&self, p: F, g: F, [b]: [F; 1]) -> F {
        let Buffer { old, least_old, .. } = self.buffer;
        self.step.from(p, if NESTEROV { g + b.flushed(least_old) * F::of(old) } else { b })
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

    const RULE: Sgd = Sgd { learning_rate: 0.25, weight_decay: 0.0, gradient: Gradient::AS_IT_IS };
    const PAST: Momentum = Momentum { momentum: 0.5, dampening: 0.0, nesterov: false, update: 2 };

    fn plain(rule: &Sgd) -> impl Fn(Level, Shard<'_, 0>) {
        |level, shard| sgd(level, rule, shard)
    }

    fn kernel(rule: &Sgd, past: &Momentum) -> impl Fn(Level, Shard<'_, 1>) {
        |level, shard| sgd_momentum(level, rule, past, shard)
    }

    fn one(rule: &Sgd, past: &Momentum, p: f32, g: f32, b: f32) -> [f32; 2] {
        let after = Owned::one(p, g, [b]).step(kernel(rule, past));
        [after.p[0], after.state[0][0]]
    }

    fn one_plain(rule: &Sgd, p: f32, g: f32) -> f32 {
        Owned::one(p, g, []).step(plain(rule)).p[0]
    }

    fn rules() -> impl Strategy<Value = Sgd> {
        (0.0..0.1, prop_oneof![Just(0.0), 0.0..0.5], gradients())
            .prop_map(|(learning_rate, weight_decay, gradient)| Sgd { learning_rate, weight_decay, gradient })
    }

    fn pasts() -> impl Strategy<Value = Momentum> {
        (0.0..0.999, prop_oneof![Just(0.0), 0.0..1.0], any::<bool>(), 1u64..4)
            .prop_map(|(momentum, dampening, nesterov, update)| Momentum { momentum, dampening, nesterov, update })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn is_the_rule(shard in shards([-100f32..100.0]), rule in rules(), past in pasts()) {
            let after = shard.clone().step(kernel(&rule, &past));
            let without = Owned { p: shard.p.clone(), g: shard.g.clone(), state: [] }.step(plain(&rule));
            for at in 0..shard.p.len() {
                let gradient = rule.gradient.with_penalty(rule.weight_decay).effective(shard.g[at], shard.p[at]);
                let [p, g, b] = [shard.p[at], gradient, shard.state[0][at]].map(f64::from);
                let mixed = past.momentum * b + (1.0 - past.dampening) * g;
                let buffer = if past.update == 1 { g } else { mixed };
                let step = if past.nesterov { g + past.momentum * buffer } else { buffer };
                let terms = b.abs() + 2.0 * g.abs();
                let [found_b, found_p] = [after.state[0][at], after.p[at]];
                prop_assert!(near(found_b, buffer, terms), "b {found_b} {buffer}");
                let size = p.abs() + rule.learning_rate * terms;
                prop_assert!(near(found_p, p - rule.learning_rate * step, size), "p {found_p} {p} {step}");
                prop_assert!(near(without.p[at], p - rule.learning_rate * g, size), "p {} {p} {g}", without.p[at]);
            }
        }

        #[test]
        fn any_split_gives_the_same_bits(
            shard in shards([-100f32..100.0]), rule in rules(), past in pasts(), split in splits(),
        ) {
            let together = shard.clone().step(kernel(&rule, &past));
            prop_assert_eq!(shard.clone().step_split(split, kernel(&rule, &past)).bits(), together.bits());
            let shard = Owned { p: shard.p, g: shard.g, state: [] };
            let together = shard.clone().step(plain(&rule));
            prop_assert_eq!(shard.step_split(split, plain(&rule)).bits(), together.bits());
        }
    }

    #[test]
    fn by_hand() {
        // 0.5 * 4 + 3 = 5
        assert_eq!(one(&RULE, &PAST, 2.0, 3.0, 4.0), [0.75, 5.0]);
        // 0.5 * 4 + 0.5 * 3 = 3.5
        assert_eq!(one(&RULE, &Momentum { dampening: 0.5, ..PAST }, 2.0, 3.0, 4.0), [1.125, 3.5]);
        // 3 + 0.5 * 5 = 5.5
        assert_eq!(one(&RULE, &Momentum { nesterov: true, ..PAST }, 2.0, 3.0, 4.0), [0.625, 5.0]);
        // 3 + 0.5 * 2 = 4; 0.5 * 4 + 4 = 6
        assert_eq!(one(&Sgd { weight_decay: 0.5, ..RULE }, &PAST, 2.0, 3.0, 4.0), [0.5, 6.0]);
    }

    #[test]
    fn by_hand_without_momentum() {
        assert_eq!(one_plain(&RULE, 2.0, 3.0), 1.25);
        assert_eq!(one_plain(&Sgd { weight_decay: 0.5, ..RULE }, 2.0, 3.0), 1.0);
        // 16 * 0.5 = 8, cut to 4.
        assert_eq!(one_plain(&Sgd { gradient: Gradient { scale: 0.5, clip: 4.0 }, ..RULE }, 2.0, 16.0), 1.0);
    }

    #[test]
    fn the_first_update_is_not_dampened() {
        let first = Momentum { dampening: 0.5, update: 1, ..PAST };
        // Whatever was in the buffer.
        assert_eq!(one(&RULE, &first, 2.0, 3.0, 0.0), [1.25, 3.0]);
        assert_eq!(one(&RULE, &first, 2.0, 3.0, 77.7), [1.25, 3.0]);
        assert_eq!(one(&RULE, &Momentum { nesterov: true, ..first }, 2.0, 3.0, 0.0), [0.875, 3.0]);
    }

    #[test]
    fn denormals_count_as_zero() {
        assert_eq!(one(&RULE, &PAST, 1.0, 0.0, f32::MIN_POSITIVE), [1.0, 0.0]);
        assert_eq!(one(&RULE, &PAST, 1.0, 0.0, -2.0 * f32::MIN_POSITIVE)[1], -f32::MIN_POSITIVE);
    }

    #[test]
    fn what_is_not_finite_passes_through() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!one_plain(&RULE, 1.0, bad).is_finite());
            assert!(one(&RULE, &PAST, 1.0, bad, 0.0).iter().all(|value| !value.is_finite()), "{bad}");
        }
    }

    #[test]
    fn nothing_computes_with_denormals() {
        let how = RULE.gradient.with_penalty(0.1);
        let (step, buffer) = (Step::new(&RULE), Buffer::new(&PAST));
        watch(&Plain { step, how }, []);
        watch(&Remembering::<_, true> { step, buffer, salt: 0, how }, [true]);
        watch(&Remembering::<_, false> { step, buffer, salt: 0, how }, [true]);
    }

    #[test]
    #[should_panic(expected = "a state has 2 elements, 1 were wanted")]
    fn unequal_slices_are_a_mistake() {
        sgd_momentum(Level::best(), &RULE, &PAST, Shard::of_f32(&mut [0.0], &[0.0], [&mut [0.0; 2]]));
    }
}
