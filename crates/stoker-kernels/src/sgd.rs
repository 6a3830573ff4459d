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
//! The scalars are computed in f64 and rounded to f32 once; the elements are f32 throughout. A buffer that would be a
//! denormal counts as 0, as moments do in Adam.

use crate::denormal::normal;
use crate::gradient::{Effective, Gradient};
use crate::same_length;

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

/// Updates `parameters` from the accumulated `gradient`.
///
/// # Panics
/// When the slices are not equally long.
pub fn sgd(rule: &Sgd, parameters: &mut [f32], gradient: &[f32]) {
    same_length("the gradient", gradient.len(), parameters.len());
    // Decided once, not for every element.
    if rule.weight_decay == 0.0 {
        plain(rule, rule.gradient, parameters, gradient);
    } else {
        plain(rule, rule.gradient.with_penalty(rule.weight_decay), parameters, gradient);
    }
}

fn plain(rule: &Sgd, how: impl Effective, parameters: &mut [f32], gradient: &[f32]) {
    let rate = rule.learning_rate as f32;
    for (p, &g) in parameters.iter_mut().zip(gradient) {
        *p -= rate * how.effective(g, *p);
    }
}

/// Updates `parameters` and the momentum `buffer` from the accumulated `gradient`.
///
/// # Panics
/// When the slices are not equally long.
pub fn sgd_momentum(rule: &Sgd, past: &Momentum, parameters: &mut [f32], gradient: &[f32], buffer: &mut [f32]) {
    same_length("the gradient", gradient.len(), parameters.len());
    same_length("the momentum buffer", buffer.len(), parameters.len());
    if past.update == 1 {
        buffer.fill(0.0);
    }
    let penalised = rule.gradient.with_penalty(rule.weight_decay);
    // Decided once, not for every element.
    match (rule.weight_decay == 0.0, past.nesterov) {
        (true, true) => pass::<true>(rule, past, rule.gradient, parameters, gradient, buffer),
        (true, false) => pass::<false>(rule, past, rule.gradient, parameters, gradient, buffer),
        (false, true) => pass::<true>(rule, past, penalised, parameters, gradient, buffer),
        (false, false) => pass::<false>(rule, past, penalised, parameters, gradient, buffer),
    }
}

fn pass<const NESTEROV: bool>(
    rule: &Sgd,
    past: &Momentum,
    how: impl Effective,
    parameters: &mut [f32],
    gradient: &[f32],
    buffer: &mut [f32],
) {
    let (rate, old) = (rule.learning_rate as f32, past.momentum as f32);
    // In the first update all of the gradient goes into a buffer of zeros.
    let fresh = if past.update == 1 { 1.0 } else { (1.0 - past.dampening) as f32 };
    for ((p, &g), b) in parameters.iter_mut().zip(gradient).zip(buffer) {
        let g = how.effective(g, *p);
        *b = normal(*b * old + g * fresh);
        *p -= rate * if NESTEROV { g + old * *b } else { *b };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradient::tests::gradients;
    use crate::testing::{Shard, near, shards, splits};
    use proptest::prelude::*;

    const RULE: Sgd = Sgd { learning_rate: 0.25, weight_decay: 0.0, gradient: Gradient::AS_IT_IS };
    const PAST: Momentum = Momentum { momentum: 0.5, dampening: 0.0, nesterov: false, update: 2 };

    fn plain(rule: &Sgd) -> impl Fn(&mut [f32], &[f32], [&mut [f32]; 0]) {
        |p, g, []| sgd(rule, p, g)
    }

    fn kernel(rule: &Sgd, past: &Momentum) -> impl Fn(&mut [f32], &[f32], [&mut [f32]; 1]) {
        |p, g, [b]| sgd_momentum(rule, past, p, g, b)
    }

    fn one(rule: &Sgd, past: &Momentum, p: f32, g: f32, b: f32) -> [f32; 2] {
        let after = Shard::one(p, g, [b]).step(kernel(rule, past));
        [after.p[0], after.state[0][0]]
    }

    fn one_plain(rule: &Sgd, p: f32, g: f32) -> f32 {
        Shard::one(p, g, []).step(plain(rule)).p[0]
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
            let without = Shard { p: shard.p.clone(), g: shard.g.clone(), state: [] }.step(plain(&rule));
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
            let shard = Shard { p: shard.p, g: shard.g, state: [] };
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
    #[should_panic(expected = "the momentum buffer has 2 elements, 1 were wanted")]
    fn unequal_slices_are_a_mistake() {
        sgd_momentum(&RULE, &PAST, &mut [0.0], &[0.0], &mut [0.0; 2]);
    }
}
