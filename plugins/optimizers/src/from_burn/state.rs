//! Burn's state of one optimizer, from and to slices.

use burn::optim::{RecordState, StateSink, StateSource};
use burn::tensor::{Device, TensorData};
use stoker_core::StateSlot;

/// Names of the scalars of a state, all of which count the updates so far.
pub(super) type Counts = &'static [&'static str];

/// The state after `updates` updates; nothing if Burn wants something else.
pub(super) fn read<S: RecordState>(
    slots: &[StateSlot],
    counts: Counts,
    updates: u64,
    slices: &[&mut [f32]],
    device: &Device,
) -> Option<S> {
    let scalars = counts.iter().map(|name| ((*name).to_owned(), updates.into())).collect();
    let mut source = StateSource::new(scalars);
    for (slot, slice) in slots.iter().zip(slices) {
        source.insert_tensor(slot.name.to_owned(), TensorData::new(slice.to_vec(), [slice.len()]));
    }
    S::state_unflatten("", &mut source, device)
}

/// Stores a state; nothing if its tensors are not those of the slots, or not as long.
pub(super) fn write<S: RecordState>(state: &S, slots: &[StateSlot], slices: &mut [&mut [f32]]) -> Option<()> {
    let mut sink = StateSink::default();
    state.state_flatten("", &mut sink);
    if sink.tensors.len() != slots.len() {
        return None;
    }
    for (slot, slice) in slots.iter().zip(slices) {
        let (_, data) = sink.tensors.iter().find(|(name, _)| name == slot.name)?;
        let values = data.as_slice::<f32>().ok().filter(|values| values.len() == slice.len())?;
        slice.copy_from_slice(values);
    }
    Some(())
}
