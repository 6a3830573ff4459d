//! One element, updated, for tests of exact values.

use std::collections::BTreeMap;
use stoker_core::registry::{self, Given};
use stoker_core::{
    Granularity, HostBuffer, Optimizer, OptionValue, Result, Segment, ShardUpdate, StepContext, Values, ValuesMut,
};
use stoker_kernels::convert;

/// A parameter of 1 and its state, all zeros before, after the update of this number with a gradient of 0.25 and a
/// learning rate of 1e-3.
pub(crate) fn update_one(optimizer: &dyn Optimizer, number: u64) -> Result<Vec<f32>> {
    let mut parameters = [1.0];
    let mut state: Vec<_> = optimizer.state_slots().iter().map(|slot| HostBuffer::zeros_of(slot.dtype, 1)).collect();
    let segments = [Segment { range: 0..1, update: number, learning_rate: 1e-3, weight_decay: None }];
    let slices = state.iter_mut().map(|state| ValuesMut::of(state).unwrap()).collect();
    let shard = ShardUpdate {
        parameters: &mut parameters,
        gradient: Values::F32(&[0.5]),
        state: slices,
        rounded: None,
        segments: &segments,
    };
    optimizer.update(shard, &StepContext::scaled(0.5))?;
    let wide = |state: &HostBuffer| {
        let mut wide = [0.0];
        convert::to_f32(&mut wide, Values::of(state).unwrap());
        wide[0]
    };
    Ok(parameters.into_iter().chain(state.iter().map(wide)).collect())
}

/// Names of the slots of the optimizer of this name, built with these options.
pub(crate) fn slots(name: &str, options: &Given) -> Vec<&'static str> {
    let found = registry::optimizer(name, options).unwrap();
    assert_eq!(found.granularity(), Granularity::Element);
    found.state_slots().iter().map(|slot| slot.name).collect()
}

/// Options from a list.
pub(crate) fn given<const N: usize>(options: [(&str, OptionValue); N]) -> Given {
    options.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<BTreeMap<_, _>>()
}

/// Why the optimizer cannot be built with these options.
pub(crate) fn refusal(name: &str, options: &Given) -> String {
    registry::optimizer(name, options).unwrap_err().to_string()
}
