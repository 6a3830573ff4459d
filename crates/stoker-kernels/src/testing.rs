//! Shards for the properties of the optimizer kernels.

use crate::calm::Calm;
use crate::pass::Rule;
use crate::real::{Real, Watched};
use crate::{Level, Shard};
use proptest::prelude::*;
use std::ops::Range;

/// Parameters, gradient and `N` vectors of state.
#[derive(Debug, Clone)]
pub(crate) struct Owned<const N: usize> {
    pub(crate) p: Vec<f32>,
    pub(crate) g: Vec<f32>,
    pub(crate) state: [Vec<f32>; N],
}

impl<const N: usize> Owned<N> {
    /// One element.
    pub(crate) fn one(p: f32, g: f32, state: [f32; N]) -> Self {
        Self { p: vec![p], g: vec![g], state: state.map(|value| vec![value]) }
    }

    fn borrowed(&mut self, range: Range<usize>) -> Shard<'_, N> {
        let state = self.state.each_mut().map(|state| &mut state[range.clone()]);
        Shard::of_f32(&mut self.p[range.clone()], &self.g[range], state)
    }

    /// After one call of `kernel`, which gives the same bits on every level.
    pub(crate) fn step(mut self, kernel: impl Fn(Level, Shard<'_, N>)) -> Self {
        let before = self.clone();
        let length = self.p.len();
        kernel(Level::Portable, self.borrowed(0..length));
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let mut other = before.clone();
            kernel(level, other.borrowed(0..length));
            assert_eq!(other.bits(), self.bits(), "{level}");
        }
        self
    }

    /// After calls of `kernel` for the first `cut` elements and then for `chunk` at a time, each at the next level.
    pub(crate) fn step_split(mut self, (cut, chunk): (usize, usize), kernel: impl Fn(Level, Shard<'_, N>)) -> Self {
        let (length, cut) = (self.p.len(), cut.min(self.p.len()));
        let pieces = (cut..length).step_by(chunk).map(|at| at..(at + chunk).min(length));
        let levels = Level::ALL.into_iter().filter(|level| level.is_available()).cycle();
        for (range, level) in std::iter::once(0..cut).chain(pieces).zip(levels) {
            kernel(level, self.borrowed(range));
        }
        self
    }

    /// The bits of all that a kernel changes.
    pub(crate) fn bits(&self) -> Vec<u32> {
        std::iter::once(&self.p).chain(&self.state).flatten().map(|value| value.to_bits()).collect()
    }
}

/// Shards of any length, 0 among them, whose state lies in `ranges`.
pub(crate) fn shards<const N: usize>(ranges: [Range<f32>; N]) -> impl Strategy<Value = Owned<N>> {
    // A vector of strategies makes vectors of values.
    let element = (-10f32..10.0, -100f32..100.0, Vec::from(ranges));
    let length = prop_oneof![1 => Just(0..1), 15 => Just(0..4098)];
    length.prop_flat_map(move |length| proptest::collection::vec(element.clone(), length)).prop_map(|elements| Owned {
        p: elements.iter().map(|element| element.0).collect(),
        g: elements.iter().map(|element| element.1).collect(),
        state: std::array::from_fn(|slot| elements.iter().map(|element| element.2[slot]).collect()),
    })
}

/// Where a call is split: after how many elements first, and then after how many each.
pub(crate) fn splits() -> impl Strategy<Value = (usize, usize)> {
    (0usize..4098, 1usize..70)
}

/// Whether `found` is `wanted`, given that terms of `size` were rounded a few times.
pub(crate) fn near(found: f32, wanted: f64, size: f64) -> bool {
    (f64::from(found) - wanted).abs() <= 5e-7 * size + 1e-37
}

/// Applies a rule to elements that are about as small as they can be: it panics where it would compute with a denormal, or
/// where a calm element becomes something else.
/// `signed` says which states may be negative.
pub(crate) fn watch<const N: usize, R: Rule<N>>(rule: &R, signed: [bool; N]) {
    // Every power of two from the smallest denormal to 1, a little more than it, and 0.
    let values: Vec<f32> = (0..150).map(|power| 1.3 * f32::exp2(-f32::from(power as u8))).chain([0.0, 1e-45]).collect();
    let mut calm = 0;
    for (at, &gradient) in values.iter().enumerate() {
        for (shift, &parameter) in values.iter().enumerate().step_by(7) {
            // Every state meets every gradient in some round.
            for round in 0..values.len() {
                let negative = |flag: bool| if flag && round % 2 == 1 { -1.0 } else { 1.0 };
                let value = |slot: usize| values[(at * slot + round + shift) % values.len()];
                let state: [_; N] = std::array::from_fn(|slot| Watched(value(slot) * negative(signed[slot])));
                let [gradient, parameter] = [gradient * negative(round % 4 > 1), parameter].map(Watched);
                let found = bits(rule, parameter, gradient, state);
                let large = |value: Watched, least: f32| value.0.abs() >= least;
                if rule.calm_from().is_some_and(|least| {
                    large(parameter, least.parameter)
                        && large(gradient, least.gradient)
                        && state.iter().zip(least.state).all(|(state, least)| large(*state, least))
                }) {
                    assert_eq!(bits(rule, Calm(parameter), Calm(gradient), state.map(Calm)), found);
                    calm += 1;
                }
            }
        }
    }
    assert_eq!(calm > 0, rule.calm_from().is_some_and(|least| least.gradient.is_finite()));
}

/// What becomes of an element.
fn bits<const N: usize, F: Real>(rule: &impl Rule<N>, parameter: F, gradient: F, state: [F; N]) -> (u32, [u32; N]) {
    fn of<const N: usize, R: Rule<N>, F: Real>(rule: &R, p: F, g: F, state: [F; N]) -> (F, [F; N]) {
        let g = rule.gradient(g, p);
        let after = rule.state(g, state);
        (rule.parameter(p, g, if R::STATE_LAST { state } else { after }), after)
    }
    let (parameter, state) = of(rule, parameter, gradient, state);
    (parameter.value().to_bits(), state.map(|state| state.value().to_bits()))
}
