//! One pass over a shard: the loop that all update rules share.
//!
//! [Note: Pass] The memory of a shard is walked once, in blocks that stay in a core's first cache. A rule is applied to
//! every element in f32 and knows nothing of types: bf16 is widened and rounded where it is loaded and stored; an f16
//! gradient is widened, and parameters are rounded, block by block before and after. A large shard is cut in two again
//! and again, and the parts are shared out by `rayon::join`, if the caller runs on a thread of a rayon pool: whose pool,
//! and of how many threads, is the caller's business. Elsewhere all is done on the calling thread.

use crate::calm::{Calm, CalmFrom};
use crate::convert::{narrow, widen};
use crate::prefetch::prefetch;
use crate::real::Real;
use crate::{Level, Shard, noise, stream};
use half::bf16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use pulp::NullaryFnOnce;
use stoker_core::{Values, ValuesMut};

/// Elements of a block. All slices of one, f32 buffers included, take a part of the first cache.
const BLOCK: usize = 1024;

/// f32 of a line of the cache, which is also the longest vector.
const LINE: usize = 16;

/// Elements of the smallest part that is cut off for another thread: much more work than handing it over.
const PART: usize = 1 << 16;

/// Parts begin at multiples of this many elements: whole pages, so that no two threads write to one.
const PAGE: usize = 1 << 12;

/// Elements of a span, which is calm or is not.
const SPAN: usize = 128;

/// Elements that are asked for at once, and how many before they are computed. What is asked for in bursts, a span of
/// every stream at a time, comes later.
const STRIDE: usize = 32;
const AHEAD: usize = 512;

/// All bits of an f32 but its sign. Magnitudes compare like their bits.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// How an element is updated.
pub(crate) trait Rule<const N: usize>: Copy + Sync {
    /// Whether the parameter is updated with its state as it was before.
    const STATE_LAST: bool = false;

    /// The gradient that the rule sees.
    fn gradient<F: Real>(&self, accumulated: F, parameter: F) -> F;

    /// The state after the update.
    fn state<F: Real>(&self, gradient: F, state: [F; N]) -> [F; N];

    /// The parameter after the update.
    fn parameter<F: Real>(&self, parameter: F, gradient: F, state: [F; N]) -> F;

    /// From which magnitudes of its inputs on an element is calm, if the rule makes use of it: see [Note: Calm].
    fn calm_from(&self) -> Option<CalmFrom<N>> {
        None
    }

    /// Salt of the noise with which narrow state is rounded.
    fn salt(&self) -> u32;
}

/// Updates a shard.
///
/// # Panics
/// When its slices are not equally long.
pub(crate) fn run<const N: usize>(level: Level, rule: &impl Rule<N>, shard: Shard<'_, N>) {
    share(shard, &|shard| level.run(Part { rule, shard }));
}

/// Does `work` for all of a shard, in parts if there are threads for them.
pub(crate) fn share<const N: usize>(shard: Shard<'_, N>, work: &(impl Fn(Shard<'_, N>) + Sync)) {
    shard.check();
    if shard.len() < 2 * PART || rayon::current_thread_index().is_none() {
        return work(shard);
    }
    let middle = (shard.len() / 2).next_multiple_of(PAGE);
    let (one, other) = shard.split_at(middle);
    rayon::join(|| share(one, work), || share(other, work));
}

/// A block in f32.
#[repr(align(64))]
struct Buffer([f32; BLOCK]);

/// A block in a type of 16 bits.
#[repr(align(64))]
struct Halves([u16; BLOCK]);

/// What one thread does.
struct Part<'r, 'a, R, const N: usize> {
    rule: &'r R,
    shard: Shard<'a, N>,
}

impl<R: Rule<N>, const N: usize> NullaryFnOnce for Part<'_, '_, R, N> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { rule, mut shard } = self;
        let mut wide = Buffer([0.0; BLOCK]);
        let mut halves = Halves([0; BLOCK]);
        let length = shard.len();
        // What is short may stay in the caches for whoever reads it next.
        let is_long = length >= PART;
        // The first block ends where a line of the cache does: vectors of the others do not lie in two.
        let mut end = BLOCK - LINE + shard.parameters.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        let mut start = 0;
        while start < length {
            // In range here and below: all slices are as long as the parameters, and no block is longer than BLOCK.
            let range = start..length.min(end);
            start = range.end;
            end = start + BLOCK;
            let parameters = &mut shard.parameters[range.clone()];
            let state = shard.state.each_mut().map(|state| state.part(range.clone()));
            match shard.gradient.part(range.clone()) {
                Values::F32(gradient) => {
                    typed(rule, parameters, gradient, state, &|at| prefetch(gradient, at + AHEAD, STRIDE))
                }
                Values::BF16(gradient) => {
                    typed(rule, parameters, gradient, state, &|at| prefetch(gradient, at + AHEAD, STRIDE))
                }
                gradient @ Values::F16(halves) => {
                    widen(&mut wide.0[..range.len()], gradient);
                    // A block is widened at once: the next one is needed whole.
                    typed(rule, parameters, &wide.0[..range.len()], state, &|at| prefetch(halves, at + BLOCK, STRIDE));
                }
            }
            if let Some(rounded) = &mut shard.rounded {
                round(rounded.part(range), parameters, &mut halves.0, is_long);
            }
        }
        stream::fence();
    }
}

/// Rounds no more than a block: by way of `halves` and past the caches, if it is one of many.
#[inline(always)]
fn round(rounded: ValuesMut<'_>, parameters: &[f32], halves: &mut [u16; BLOCK], is_long: bool) {
    // In range: no block is longer.
    let halves = &mut halves[..parameters.len()];
    match rounded {
        ValuesMut::BF16(rounded) if is_long => {
            narrow(ValuesMut::BF16(halves.reinterpret_cast_mut()), parameters);
            stream::store(rounded.reinterpret_cast_mut(), halves);
        }
        ValuesMut::F16(rounded) if is_long => {
            narrow(ValuesMut::F16(halves.reinterpret_cast_mut()), parameters);
            stream::store(rounded.reinterpret_cast_mut(), halves);
        }
        rounded => narrow(rounded, parameters),
    }
}

/// An element as it is stored.
trait Stored: Copy {
    fn load(self) -> f32;
    /// Rounded by `chance`, if at all.
    fn store(value: f32, chance: u32) -> Self;
    /// The bits of the smallest magnitude, as of an f32; those of a NaN, if there are no elements.
    fn smallest(values: &[Self]) -> u32;
}

impl Stored for f32 {
    #[inline(always)]
    fn load(self) -> f32 {
        self
    }

    #[inline(always)]
    fn store(value: f32, _: u32) -> Self {
        value
    }

    #[inline(always)]
    fn smallest(values: &[Self]) -> u32 {
        values.iter().fold(MAGNITUDE, |least, value| least.min(value.to_bits() & MAGNITUDE))
    }
}

impl Stored for bf16 {
    #[inline(always)]
    fn load(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn store(value: f32, chance: u32) -> Self {
        noise::rounded(value, chance)
    }

    #[inline(always)]
    fn smallest(values: &[Self]) -> u32 {
        let magnitude = (MAGNITUDE >> 16) as u16;
        u32::from(values.iter().fold(magnitude, |least, value| least.min(value.to_bits() & magnitude))) << 16
    }
}

/// `elements` for the type of the state, which is one for all slots. `ask` is for prefetching the gradient, given the
/// first of the elements that are computed next.
#[inline(always)]
fn typed<const N: usize, R: Rule<N>>(
    rule: &R,
    parameters: &mut [f32],
    gradient: &[impl Stored],
    state: [ValuesMut<'_>; N],
    ask: &impl Fn(usize),
) {
    if state.iter().all(|state| matches!(state, ValuesMut::BF16(_))) && N > 0 {
        let state = state.map(|state| if let ValuesMut::BF16(values) = state { values } else { &mut [] });
        elements(rule, parameters, gradient, state, ask);
    } else {
        let state = state.map(|state| if let ValuesMut::F32(values) = state { values } else { &mut [] });
        elements(rule, parameters, gradient, state, ask);
    }
}

#[inline(always)]
fn elements<const N: usize, R: Rule<N>, S: Stored>(
    rule: &R,
    parameters: &mut [f32],
    gradient: &[impl Stored],
    mut state: [&mut [S]; N],
    ask: &impl Fn(usize),
) {
    // With state in f32 an update waits for memory anyhow: to ask for it in time is what helps.
    let calm_from = rule.calm_from().filter(|_| size_of::<S>() < size_of::<f32>());
    let whole = parameters.len() - parameters.len() % SPAN;
    // In range here: all slices are as long as the parameters.
    for start in (0..whole).step_by(SPAN) {
        let range = start..start + SPAN;
        let (parameters, gradient) = (&mut parameters[range.clone()], &gradient[range.clone()]);
        let state = state.each_mut().map(|state| &mut state[range.clone()]);
        let is_calm = calm_from.as_ref().is_some_and(|least| {
            state.iter().zip(&least.state).fold(
                (f32::smallest(parameters) >= least.parameter.to_bits())
                    & (Stored::smallest(gradient) >= least.gradient.to_bits()),
                |calm, (state, least)| calm & (S::smallest(state) >= least.to_bits()),
            )
        });
        if is_calm {
            span::<Calm<f32>, N, R, S>(rule, parameters, gradient, state, &|at| ask(start + at));
        } else {
            span::<f32, N, R, S>(rule, parameters, gradient, state, &|at| ask(start + at));
        }
    }
    let rest = state.each_mut().map(|state| &mut state[whole..]);
    each::<f32, N, R, S>(rule, &mut parameters[whole..], &gradient[whole..], rest);
}

#[inline(always)]
fn span<F: Real, const N: usize, R: Rule<N>, S: Stored>(
    rule: &R,
    parameters: &mut [f32],
    gradient: &[impl Stored],
    mut state: [&mut [S]; N],
    ask: &impl Fn(usize),
) {
    // In range here: all slices are of SPAN elements.
    for start in (0..SPAN).step_by(STRIDE) {
        let range = start..start + STRIDE;
        let (parameters, gradient) = (&mut parameters[range.clone()], &gradient[range.clone()]);
        let state = state.each_mut().map(|state| &mut state[range.clone()]);
        prefetch(parameters, AHEAD, STRIDE);
        ask(start);
        state.iter().for_each(|state| prefetch(state, AHEAD, STRIDE));
        each::<F, N, R, S>(rule, parameters, gradient, state);
    }
}

#[inline(always)]
fn each<F: Real, const N: usize, R: Rule<N>, S: Stored>(
    rule: &R,
    parameters: &mut [f32],
    gradient: &[impl Stored],
    state: [&mut [S]; N],
) {
    let length = parameters.len();
    let gradient = &gradient[..length];
    for slice in &state {
        // The compiler need not check this for every element then.
        assert!(slice.len() == length);
    }
    // A copy of its own cannot overlap the slices, which the compiler would have to check for every field.
    let (rule, salt) = (*rule, rule.salt());
    for at in 0..length {
        let parameter = F::of(parameters[at]);
        let before = std::array::from_fn(|slot| F::of(state[slot][at].load()));
        let gradient = rule.gradient(F::of(gradient[at].load()), parameter);
        let after = rule.state(gradient, before);
        let parameter = rule.parameter(parameter, gradient, if R::STATE_LAST { before } else { after }).value();
        parameters[at] = parameter;
        let after = after.map(F::value);
        let is_nan = after.iter().fold(false, |is_nan, value| is_nan | value.is_nan());
        let chance = if is_nan { 0 } else { noise::chance(parameter, salt) };
        for (slot, value) in after.into_iter().enumerate() {
            state[slot][at] = S::store(value, chance);
        }
    }
}

#[cfg(test)]
mod tests;
