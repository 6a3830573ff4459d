//! From a shard to the parts that a kernel is called for.

use stoker_core::{Error, Result, Segment, ShardUpdate, StateSlot, StepContext};
use stoker_kernels::{Gradient, Shard};

/// Checks that a call fits, and that no segment is in update 0, whose bias correction would be a division by zero.
pub(crate) fn check(shard: &ShardUpdate<'_>, slots: &[StateSlot]) -> Result<()> {
    shard.check(slots)?;
    if shard.segments.iter().any(|segment| segment.update == 0) {
        return Err(Error::OutOfRange { what: "the number of an update".to_owned(), found: 0, wanted: 1 });
    }
    Ok(())
}

/// How the context makes the gradient.
pub(crate) fn gradient(context: &StepContext) -> Gradient {
    Gradient { scale: context.gradient_scale, clip: context.clip_value }
}

/// Calls `act` with each segment and its part of the shard, which has `N` slots of state.
pub(crate) fn for_each<const N: usize>(
    mut shard: ShardUpdate<'_>,
    slots: &[StateSlot],
    act: impl Fn(&Segment, Shard<'_, N>),
) -> Result<()> {
    check(&shard, slots)?;
    let Ok(state) = <&mut [_; N]>::try_from(shard.state.as_mut_slice()) else {
        return Ok(()); // `check` has counted them.
    };
    for segment in shard.segments {
        // In range: `check` compared every segment's end with the length that all slices share.
        let range = segment.range.clone();
        let part = Shard {
            parameters: &mut shard.parameters[range.clone()],
            gradient: shard.gradient.part(range.clone()),
            state: state.each_mut().map(|slice| slice.part(range.clone())),
            rounded: shard.rounded.as_mut().map(|rounded| rounded.part(range)),
        };
        act(segment, part);
    }
    // A narrow copy of what lies outside of all segments need not be written: it did not change.
    Ok(())
}
