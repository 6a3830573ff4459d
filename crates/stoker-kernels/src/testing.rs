//! Shards for the properties of the optimizer kernels.

use proptest::prelude::*;
use std::ops::Range;

/// Parameters, gradient and `N` vectors of state.
#[derive(Debug, Clone)]
pub(crate) struct Shard<const N: usize> {
    pub(crate) p: Vec<f32>,
    pub(crate) g: Vec<f32>,
    pub(crate) state: [Vec<f32>; N],
}

impl<const N: usize> Shard<N> {
    /// One element.
    pub(crate) fn one(p: f32, g: f32, state: [f32; N]) -> Self {
        Self { p: vec![p], g: vec![g], state: state.map(|value| vec![value]) }
    }

    /// After one call of `kernel`.
    pub(crate) fn step(mut self, kernel: impl Fn(&mut [f32], &[f32], [&mut [f32]; N])) -> Self {
        kernel(&mut self.p, &self.g, self.state.each_mut().map(Vec::as_mut_slice));
        self
    }

    /// After calls of `kernel` for the first `cut` elements and then for `chunk` at a time.
    pub(crate) fn step_split(
        mut self,
        (cut, chunk): (usize, usize),
        kernel: impl Fn(&mut [f32], &[f32], [&mut [f32]; N]),
    ) -> Self {
        let (length, cut) = (self.p.len(), cut.min(self.p.len()));
        let pieces = (cut..length).step_by(chunk).map(|at| at..(at + chunk).min(length));
        for range in std::iter::once(0..cut).chain(pieces) {
            let state = self.state.each_mut().map(|state| &mut state[range.clone()]);
            kernel(&mut self.p[range.clone()], &self.g[range], state);
        }
        self
    }

    /// The bits of all that a kernel changes.
    pub(crate) fn bits(&self) -> Vec<u32> {
        std::iter::once(&self.p).chain(&self.state).flatten().map(|value| value.to_bits()).collect()
    }
}

/// Shards of any length, 0 among them, whose state lies in `ranges`.
pub(crate) fn shards<const N: usize>(ranges: [Range<f32>; N]) -> impl Strategy<Value = Shard<N>> {
    // A vector of strategies makes vectors of values.
    let element = (-10f32..10.0, -100f32..100.0, Vec::from(ranges));
    let length = prop_oneof![1 => Just(0..1), 15 => Just(0..4098)];
    length.prop_flat_map(move |length| proptest::collection::vec(element.clone(), length)).prop_map(|elements| Shard {
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
