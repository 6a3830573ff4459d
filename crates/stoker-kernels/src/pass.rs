//! One pass over a shard: the loop that all update rules share.
//!
//! [Note: Pass] The memory of a shard is walked once, in blocks that stay in a core's first cache. Of a block what is
//! narrow is widened into buffers on the stack, the rule is applied to every element in f32, and what is narrow is
//! written back; so a rule knows nothing of types, and none of them costs another walk. A large shard is cut in two again
//! and again, and the parts are shared out by `rayon::join`, if the caller runs on a thread of a rayon pool: whose pool,
//! and of how many threads, is the caller's business. Elsewhere all is done on the calling thread.

use crate::convert::{narrow, widen};
use crate::real::Real;
use crate::{Level, Shard, noise};
use half::bf16;
use pulp::NullaryFnOnce;
use stoker_core::{Values, ValuesMut};

/// Elements of a block. All slices of one, f32 buffers included, take a part of the first cache.
const BLOCK: usize = 512;

/// f32 of a line of the cache, which is also the longest vector.
const LINE: usize = 16;

/// Elements of the smallest part that is cut off for another thread: much more work than handing it over.
const PART: usize = 1 << 16;

/// Parts begin at multiples of this many elements: whole pages, so that no two threads write to one.
const PAGE: usize = 1 << 12;

/// How an element is updated.
pub(crate) trait Rule<const N: usize>: Sync {
    /// Whether the parameter is updated with its state as it was before.
    const STATE_LAST: bool = false;

    /// The gradient that the rule sees.
    fn gradient<F: Real>(&self, accumulated: F, parameter: F) -> F;

    /// The state after the update.
    fn state<F: Real>(&self, gradient: F, state: [F; N]) -> [F; N];

    /// The parameter after the update.
    fn parameter<F: Real>(&self, parameter: F, gradient: F, state: [F; N]) -> F;

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
        let (mut wide_gradient, mut wide_state) = (Buffer([0.0; BLOCK]), [const { Buffer([0.0; BLOCK]) }; N]);
        let length = shard.len();
        // The first block ends where a line of the cache does: vectors of the others do not lie in two.
        let mut end = BLOCK - LINE + shard.parameters.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        let mut start = 0;
        while start < length {
            // In range here and below: all slices are as long as the parameters, and no block is longer than BLOCK.
            let range = start..length.min(end);
            start = range.end;
            end = start + BLOCK;
            let count = range.len();
            let parameters = &mut shard.parameters[range.clone()];
            let gradient = match shard.gradient.part(range.clone()) {
                Values::F32(values) => values,
                values => {
                    widen(&mut wide_gradient.0[..count], values);
                    &wide_gradient.0[..count]
                }
            };
            let mut buffers = wide_state.iter_mut();
            let state = shard.state.each_mut().map(|state| match (state.part(range.clone()), buffers.next()) {
                (ValuesMut::F32(values), _) => values,
                (values, Some(buffer)) => {
                    widen(&mut buffer.0[..count], values.look());
                    &mut buffer.0[..count]
                }
                // There are as many buffers as states.
                (_, None) => &mut [],
            });
            elements(rule, parameters, gradient, state);
            for (state, wide) in shard.state.iter_mut().zip(&wide_state) {
                if let ValuesMut::BF16(state) = state.part(range.clone()) {
                    store(state, &wide.0, parameters, rule.salt());
                }
            }
            if let Some(rounded) = &mut shard.rounded {
                narrow(rounded.part(range), parameters);
            }
        }
    }
}

#[inline(always)]
fn elements<const N: usize, R: Rule<N>>(rule: &R, parameters: &mut [f32], gradient: &[f32], state: [&mut [f32]; N]) {
    let length = parameters.len();
    let gradient = &gradient[..length];
    for slice in &state {
        // The compiler need not check this for every element then.
        assert!(slice.len() == length);
    }
    for at in 0..length {
        let parameter = parameters[at];
        let before = std::array::from_fn(|slot| state[slot][at]);
        let gradient = rule.gradient(gradient[at], parameter);
        let after = rule.state(gradient, before);
        parameters[at] = rule.parameter(parameter, gradient, if R::STATE_LAST { before } else { after });
        for (slot, value) in after.into_iter().enumerate() {
            state[slot][at] = value;
        }
    }
}

/// Rounds state at random: all that belongs to an element by the same chance.
#[inline(always)]
fn store(state: &mut [bf16], wide: &[f32], parameters: &[f32], salt: u32) {
    for ((state, wide), parameter) in state.iter_mut().zip(wide).zip(parameters) {
        *state = noise::rounded(*wide, noise::chance(*parameter, salt));
    }
}
