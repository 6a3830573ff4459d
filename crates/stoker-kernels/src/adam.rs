//! Adam and AdamW in one pass.
//!
//! Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, and Loshchilov and Hutter, "Decoupled Weight Decay
//! Regularization", 2019.
//!
//! [Note: Adam] The rule is PyTorch's (`torch.optim.Adam` and `AdamW`, single tensor, no amsgrad). With `g` the
//! [gradient](crate::Gradient) and `t` the number of the update:
//!
//! ```text
//! p = p * (1 - lr * weight_decay)                  AdamW only
//! g = g + weight_decay * p                         Adam only
//! m = m + (g - m) * (1 - beta1)                    lerp, as PyTorch; from the other end if 1 - beta1 >= 0.5
//! v = v * beta2 + (1 - beta2) * g * g
//! p = p - (lr / (1 - beta1^t)) * m / (sqrt(v) * (1 / sqrt(1 - beta2^t)) + eps)
//! ```
//!
//! The scalars are computed in f64 and rounded to f32 once; the elements are f32 throughout. Denormals count as zero: see
//! [Note: Denormals] in `denormal.rs`.
//!
//! burn-optim 0.22.1 means the same and rounds differently. It computes its scalars in f32, so that `1 - 0.999` is
//! 4.7e-5 too large there: its `v` is up to that much larger (the part that its bias correction, made of the same f32
//! `beta2`, does not cancel: nothing in step 1, all of it after thousands), its update up to 2.4e-5 smaller, relatively.
//! Its AdamW divides `m` and `v` by their corrections one by one, multiplies the quotient by `lr` last, and takes
//! `m * beta1 + g * (1 - beta1)` for the lerp: a few units in the last place each. Its defaults are others, too: eps
//! 1e-5 and weight decay 1e-4, where PyTorch has 1e-8 and 1e-2.

use crate::calm::CalmFrom;
use crate::denormal::{NORMAL, least, least_squared};
use crate::gradient::{Effective, Gradient};
use crate::pass::{self, Rule};
use crate::real::Real;
use crate::{Level, Shard, noise};

/// How weights decay: what tells AdamW from Adam.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decay {
    /// The parameter shrinks by itself: AdamW.
    Decoupled,
    /// The gradient has an L2 penalty's in it: Adam.
    L2,
}

/// What all elements of a call share. See [Note: Adam].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// How weights decay.
    pub decay: Decay,
    /// Learning rate.
    pub learning_rate: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the bias-corrected second moment. Keep it above 1e-16, since a second moment that counts as
    /// 0 leaves nothing else in the divisor.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Number of this update, from 1.
    pub update: u64,
    /// How the gradient is made.
    pub gradient: Gradient,
}

/// The scalars of [Note: Adam] as the loop wants them, and beside each factor the least magnitude that it may meet.
#[derive(Clone, Copy)]
struct Scalars {
    keep: f32,
    lerp: f32,
    beta2: f32,
    fresh: f32,
    root: f32,
    eps: f32,
    rate: f32,
    salt: u32,
    least: Least,
}

#[derive(Clone, Copy)]
struct Least {
    parameter: f32,
    away: f32,
    first: f32,
    second: f32,
    squared: f32,
    quotient: f32,
}

impl Adam {
    fn scalars(&self) -> Scalars {
        let update = self.update as f64;
        let correction1 = 1.0 - self.beta1.powf(update);
        let correction2 = 1.0 - self.beta2.powf(update);
        let weight = 1.0 - self.beta1;
        let keep = match self.decay {
            Decay::Decoupled => 1.0 - self.learning_rate * self.weight_decay,
            Decay::L2 => 1.0,
        } as f32;
        let from_old = weight < 0.5;
        let lerp = (if from_old { weight } else { self.beta1 }) as f32;
        let (beta2, fresh) = (self.beta2 as f32, (1.0 - self.beta2) as f32);
        let rate = (self.learning_rate / correction1) as f32;
        let least = Least {
            parameter: least(keep),
            away: least(lerp),
            // From the old end a moment that can get no smaller would stay for ever.
            first: if from_old { least(lerp) } else { NORMAL },
            second: least(beta2),
            squared: least_squared(fresh),
            quotient: least(rate),
        };
        let (root, eps) = ((1.0 / correction2.sqrt()) as f32, self.eps as f32);
        Scalars { keep, lerp, beta2, fresh, root, eps, rate, salt: noise::salt(self.update), least }
    }
}

/// Updates parameters and both moments, `exp_avg` and `exp_avg_sq`.
///
/// # Panics
/// When the slices are not equally long.
pub fn adam(level: Level, rule: &Adam, shard: Shard<'_, 2>) {
    // Decided once, not for every element.
    if rule.decay == Decay::L2 && rule.weight_decay != 0.0 {
        lerp(level, rule, rule.gradient.with_penalty(rule.weight_decay), shard);
    } else {
        lerp(level, rule, rule.gradient.prepared(), shard);
    }
}

/// The lerp starts at the nearer end, so that its end points are exact.
fn lerp(level: Level, rule: &Adam, how: impl Effective, shard: Shard<'_, 2>) {
    let scalars = rule.scalars();
    if 1.0 - rule.beta1 < 0.5 {
        pass::run(level, &Elementwise::<_, true> { scalars, how }, shard);
    } else {
        pass::run(level, &Elementwise::<_, false> { scalars, how }, shard);
    }
}

#[derive(Clone, Copy)]
struct Elementwise<E, const FROM_OLD: bool> {
    scalars: Scalars,
    how: E,
}

impl<E: Effective, const FROM_OLD: bool> Rule<2> for Elementwise<E, FROM_OLD> {
    #[inline(always)]
    fn gradient<F: Real>(&self, accumulated: F, parameter: F) -> F {
        self.how.effective(accumulated, parameter)
    }

    #[inline(always)]
    fn state<F: Real>(&self, g: F, [m, v]: [F; 2]) -> [F; 2] {
        let Scalars { lerp, beta2, fresh, least, .. } = self.scalars;
        let away = (g - m).input_flushed(least.away) * F::of(lerp);
        let first = (if FROM_OLD { m + away } else { g - away }).flushed(least.first);
        let squared = g.input_flushed(least.squared);
        let second = v.input_flushed_above(least.second) * F::of(beta2) + squared * squared * F::of(fresh);
        [first, second]
    }

    #[inline(always)]
    fn parameter<F: Real>(&self, p: F, _: F, [m, v]: [F; 2]) -> F {
        let Scalars { keep, root, eps, rate, least, .. } = self.scalars;
        let decayed = p.input_flushed(least.parameter) * F::of(keep);
        let quotient = m / (v.sqrt() * F::of(root) + F::of(eps));
        decayed - quotient.flushed(least.quotient) * F::of(rate)
    }

    fn calm_from(&self) -> Option<CalmFrom<2>> {
        let Least { parameter, away, second, squared, .. } = self.scalars.least;
        // The difference of two numbers is 0 or as large as the last bit of the smaller one: 2^-23 of it, or more.
        let moment = squared.max(away / f32::EPSILON);
        Some(CalmFrom { parameter, gradient: self.how.calm_from(moment), state: [moment, second] })
    }

    fn salt(&self) -> u32 {
        self.scalars.salt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradient::tests::gradients;
    use crate::testing::{Owned, near, shards, splits, watch};
    use proptest::prelude::*;

    const RULE: Adam = Adam {
        decay: Decay::Decoupled,
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.01,
        update: 1,
        gradient: Gradient::AS_IT_IS,
    };

    fn kernel(rule: &Adam) -> impl Fn(Level, Shard<'_, 2>) {
        |level, shard| adam(level, rule, shard)
    }

    fn one(rule: &Adam, p: f32, g: f32, m: f32, v: f32) -> [f32; 3] {
        let after = Owned::one(p, g, [m, v]).step(kernel(rule));
        [after.p[0], after.state[0][0], after.state[1][0]]
    }

    fn rules() -> impl Strategy<Value = Adam> {
        let betas = (prop_oneof![Just(0.0), Just(0.9), 0.0..0.999], prop_oneof![Just(0.999), 0.5..0.9999]);
        let rates = (0.0..0.1, prop_oneof![Just(1e-8), 1e-12..1e-3], 0.0..0.5);
        let decay = prop_oneof![Just(Decay::Decoupled), Just(Decay::L2)];
        (decay, betas, rates, 1u64..100_000, gradients()).prop_map(
            |(decay, (beta1, beta2), (learning_rate, eps, weight_decay), update, gradient)| Adam {
                decay,
                learning_rate,
                beta1,
                beta2,
                eps,
                weight_decay,
                update,
                gradient,
            },
        )
    }

    /// PyTorch's rule for one element in f64, of the gradient `g` with its penalty; the moments, the parameter, and the
    /// step that an update of the size of the terms of `m` would make.
    fn reference(rule: &Adam, p: f32, g: f32, m: f32, v: f32) -> [f64; 4] {
        let [p, g, m, v] = [p, g, m, v].map(f64::from);
        let p = if rule.decay == Decay::L2 { p } else { p * (1.0 - rule.learning_rate * rule.weight_decay) };
        let first = rule.beta1 * m + (1.0 - rule.beta1) * g;
        let second = rule.beta2 * v + (1.0 - rule.beta2) * g * g;
        let corrected = |moment: f64, beta: f64| moment / (1.0 - beta.powf(rule.update as f64));
        let divisor = corrected(second, rule.beta2).sqrt() + rule.eps;
        let step = |first: f64| rule.learning_rate * corrected(first, rule.beta1) / divisor;
        [first, second, p - step(first), step(m.abs() + g.abs())]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn is_the_rule(shard in shards([-100f32..100.0, 0f32..1e4]), rule in rules()) {
            let after = shard.clone().step(kernel(&rule));
            for at in 0..shard.p.len() {
                let (p, m, v) = (shard.p[at], shard.state[0][at], shard.state[1][at]);
                let g = match rule.decay {
                    Decay::Decoupled => rule.gradient.of(shard.g[at]),
                    Decay::L2 => rule.gradient.with_penalty(rule.weight_decay).effective(shard.g[at], p),
                };
                let [first, second, parameter, step] = reference(&rule, p, g, m, v);
                let terms = f64::from(m.abs() + g.abs());
                let [m, v] = [after.state[0][at], after.state[1][at]];
                prop_assert!(near(m, first, terms), "m {m} {first}");
                prop_assert!(near(v, second, second), "v {v} {second}");
                let size = f64::from(p.abs()) + 2.0 * step;
                prop_assert!(near(after.p[at], parameter, size), "p {} {parameter} {step}", after.p[at]);
            }
        }

        #[test]
        fn any_split_gives_the_same_bits(
            shard in shards([-100f32..100.0, 0f32..1e4]), rule in rules(), split in splits(),
        ) {
            let together = shard.clone().step(kernel(&rule));
            prop_assert_eq!(shard.step_split(split, kernel(&rule)).bits(), together.bits());
        }
    }

    #[test]
    fn the_first_update_goes_a_learning_rate_down() {
        // 1 * (1 - 1e-5) - 1e-3
        assert_eq!(one(&RULE, 1.0, 0.25, 0.0, 0.0), [0.99899, 0.025, 0.0625 * 0.001]);
    }

    #[test]
    fn a_penalty_is_in_the_moments_and_decoupled_decay_is_not() {
        let rule = Adam { decay: Decay::L2, weight_decay: 0.25, beta1: 0.0, beta2: 0.5, ..RULE };
        // 0.5 + 0.25 * 2 = 1; a learning rate down from an undecayed 2.
        assert_eq!(one(&rule, 2.0, 0.5, 0.0, 0.0), [1.999, 1.0, 0.5]);
        let rule = Adam { decay: Decay::Decoupled, ..rule };
        assert_eq!(one(&rule, 2.0, 0.5, 0.0, 0.0), [1.9985, 0.5, 0.125]);
        let without = Adam { weight_decay: 0.0, ..RULE };
        let same = Adam { decay: Decay::L2, ..without };
        assert_eq!(one(&same, 0.7, 0.3, 0.2, 0.1), one(&without, 0.7, 0.3, 0.2, 0.1));
    }

    #[test]
    fn without_memory_the_first_moment_is_the_gradient() {
        assert_eq!(one(&Adam { beta1: 0.0, ..RULE }, 1.0, 0.1, 77.7, 1.0)[1], 0.1);
    }

    #[test]
    fn gradients_are_cut() {
        let rule = Adam { gradient: Gradient { scale: 0.5, clip: 0.25 }, ..RULE };
        assert_eq!(one(&rule, 1.0, -8.0, 0.5, 0.5), one(&RULE, 1.0, -0.25, 0.5, 0.5));
    }

    #[test]
    fn denormals_count_as_zero() {
        let (smallest, edge) = (f32::MIN_POSITIVE, 1.0 / (1u64 << 63) as f32);
        // All of a new gradient, so that its square is not scaled down.
        let rule = Adam { beta2: 0.0, ..RULE };
        assert_eq!(one(&rule, 1.0, edge, 0.0, 0.0)[2], smallest);
        assert_eq!(one(&rule, 1.0, edge * 0.999, 0.0, 1.0)[2], 0.0);
        assert_eq!(one(&RULE, 1.0, 0.0, -smallest, smallest)[1..], [0.0, 0.0]);
        assert!(one(&RULE, 1.0, 0.0, 20.0 * smallest, 2.0 * smallest)[1..].iter().all(|moment| *moment > smallest));
        // Gradients too small to square still move the first moment, and eps alone divides it.
        let [p, m, _] = one(&RULE, 0.0, edge / 2.0, 0.0, 0.0);
        assert!(m > 0.0 && p < 0.0 && p > -1e-13, "{m} {p}");
    }

    #[test]
    fn nothing_computes_with_denormals() {
        for rule in [RULE, Adam { decay: Decay::L2, weight_decay: 0.1, beta1: 0.3, update: 1000, ..RULE }] {
            let how = rule.gradient.with_penalty(rule.weight_decay);
            let scalars = rule.scalars();
            watch(&Elementwise::<_, true> { scalars, how }, [true, false]);
            watch(&Elementwise::<_, false> { scalars, how: rule.gradient.prepared() }, [true, false]);
        }
    }

    #[test]
    fn what_is_not_finite_passes_through() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let after = one(&RULE, 1.0, bad, 0.0, 0.0);
            assert!(after.iter().all(|value| !value.is_finite()), "{bad}: {after:?}");
        }
        assert!(one(&RULE, 1.0, 0.0, 0.0, f32::NAN)[0].is_nan());
        assert!(one(&RULE, 1.0, 0.0, f32::NAN, 0.0)[0].is_nan());
    }

    #[test]
    #[should_panic(expected = "a state has 2 elements, 1 were wanted")]
    fn unequal_slices_are_a_mistake() {
        adam(Level::best(), &RULE, Shard::of_f32(&mut [0.0], &[0.0], [&mut [0.0; 2], &mut [0.0]]));
    }
}
