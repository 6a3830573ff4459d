//! Burn's own steps, to compare with; and what a state that is not Burn's gives.

use super::{BLOCK, FromBurn};
use crate::testing::{given, slots};
use burn::optim::{AdamWConfig, Optimizer as BurnOptimizer, RecordState, StateSink};
use burn::tensor::{Device, Tensor, TensorData};
use stoker_core::registry::Kind;
use stoker_core::{Optimizer, OptionValue, Segment, ShardUpdate, StateSlot, StepContext, Values, ValuesMut, registry};
use stoker_testkit::values::{assert_same_bits, numbers};

const RATE: f64 = 1e-2;
/// Two blocks and a part of one.
const SHAPE: [usize; 2] = [BLOCK / 8, 17];

/// What Burn has after an update.
struct After {
    parameters: Vec<f32>,
    /// The tensors of the state by name.
    tensors: Vec<(String, Vec<f32>)>,
    /// The names of its scalars.
    counts: Vec<String>,
}

/// After each of `updates` updates by Burn of one tensor.
fn by_burn<B: BurnOptimizer>(burn: &B, updates: u64) -> Vec<After> {
    let device = Device::flex();
    let tensor = |seed| {
        let values: Vec<f32> = numbers(seed, SHAPE[0] * SHAPE[1]);
        Tensor::<2>::from_data(TensorData::new(values, SHAPE), &device)
    };
    let values = |data: TensorData| data.as_slice::<f32>().unwrap().to_vec();
    let (mut parameter, mut state) = (tensor(0), None);
    let update = |number| {
        (parameter, state) = burn.step(RATE, parameter.clone(), tensor(number), state.take());
        let mut sink = StateSink::default();
        state.as_ref().unwrap().state_flatten("", &mut sink);
        let tensors = sink.tensors.into_iter().map(|(name, data)| (name, values(data))).collect();
        let counts = sink.scalars.into_iter().map(|(name, _)| name).collect();
        After { parameters: values(parameter.clone().into_data()), tensors, counts }
    };
    (1..=updates).map(update).collect()
}

/// Asserts that the optimizer of this name and with these options keeps the laws, has Burn's `tensors` as its slots and
/// gives the bits of `burn` in each of 5 updates, and that the scalars of Burn's state are `counts`.
#[track_caller]
pub(super) fn is_burns_own<const N: usize>(
    name: &str,
    options: [(&str, OptionValue); N],
    burn: &impl BurnOptimizer,
    tensors: &[&str],
    counts: &[&str],
) {
    let options = given(options);
    assert_eq!(slots(name, &options), tensors);
    let found = registry::optimizer(name, &options).unwrap();
    let length = SHAPE[0] * SHAPE[1];
    let mut parameters: Vec<f32> = numbers(0, length);
    let mut state = vec![vec![0.0f32; length]; tensors.len()];
    for (number, after) in (1..).zip(by_burn(burn, 5)) {
        let segments = [Segment { range: 0..length, update: number, learning_rate: RATE, weight_decay: None }];
        let shard = ShardUpdate {
            parameters: &mut parameters,
            gradient: Values::F32(&numbers(number, length)),
            rounded: None,
            state: state.iter_mut().map(|state| ValuesMut::F32(state)).collect(),
            segments: &segments,
        };
        found.update(shard, &StepContext::scaled(1.0)).unwrap();
        assert_same_bits(&parameters, &after.parameters, &format!("{name}: parameters after update {number}"));
        assert_eq!(after.tensors.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), tensors);
        assert_eq!(after.counts, counts);
        for (found, (slot, wanted)) in state.iter().zip(after.tensors) {
            assert_same_bits(found, &wanted, &format!("{name}: {slot} after update {number}"));
        }
    }
    stoker_testkit::optimizer::conforms(found.as_ref());
}

#[test]
fn a_segments_weight_decay_is_as_the_option() {
    let updated = |optimizer: &dyn Optimizer, weight_decay| {
        let (mut parameters, mut state) = (numbers(1, 9), vec![vec![0.0f32; 9]; optimizer.state_slots().len()]);
        for update in 1..=3 {
            let shard = ShardUpdate {
                parameters: &mut parameters,
                gradient: Values::F32(&numbers(update, 9)),
                rounded: None,
                state: state.iter_mut().map(|state| ValuesMut::F32(state)).collect(),
                segments: &[Segment { range: 0..9, update, learning_rate: RATE, weight_decay }],
            };
            optimizer.update(shard, &StepContext::scaled(1.0)).unwrap();
        }
        parameters
    };
    let names = registry::plugins(Kind::Optimizer).into_iter().map(|plugin| plugin.name);
    let names: Vec<_> = names.filter(|name| name.starts_with("burn:")).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    for name in names {
        let with = |weight_decay| {
            let options = given([("weight_decay", OptionValue::Float(weight_decay))]);
            registry::optimizer(name, &options).unwrap()
        };
        let (none, some) = (with(0.0), with(0.3));
        assert_same_bits(&updated(none.as_ref(), Some(0.3)), &updated(some.as_ref(), None), name);
        assert_same_bits(&updated(some.as_ref(), Some(0.0)), &updated(none.as_ref(), None), name);
        assert_ne!(updated(some.as_ref(), None), updated(none.as_ref(), None), "{name}");
    }
}

#[test]
fn a_state_that_is_not_burns_is_an_error() {
    let update = |slots: &'static [StateSlot], counts, number| {
        let optimizer = FromBurn { name: "burn:adamw", config: AdamWConfig::new(), weight_decay: 0.0, slots, counts };
        let segments = [Segment { range: 0..1, update: number, learning_rate: RATE, weight_decay: None }];
        let mut state = vec![[0.0f32]; slots.len()];
        let state = state.iter_mut().map(|slice| ValuesMut::F32(slice)).collect();
        let shard = ShardUpdate {
            parameters: &mut [1.0],
            gradient: Values::F32(&[1.0]),
            state,
            rounded: None,
            segments: &segments,
        };
        let refused = optimizer.update(shard, &StepContext::scaled(1.0)).unwrap_err();
        format!("{refused}: {}", std::error::Error::source(&refused).unwrap())
    };
    const RIGHT: &[StateSlot] = &[StateSlot::f32("momentum.moment_1"), StateSlot::f32("momentum.moment_2")];
    const RENAMED: &[StateSlot] = &[StateSlot::f32("momentum.moment_1"), StateSlot::f32("momentum.moment_3")];
    let doing = "burn:adamw: a step of Burn's; this is a fault in stoker, whose slots are those of burn-optim 0.22.1: ";
    assert_eq!(
        update(RIGHT, &["time"], 2),
        format!(
            "{doing}a state cannot be made of the slots (momentum.moment_1, momentum.moment_2) and the counts (time)"
        )
    );
    assert_eq!(
        update(RENAMED, &["momentum.time"], 1),
        format!(
            "{doing}the state is not that of the slots (momentum.moment_1, momentum.moment_3) and the counts \
             (momentum.time)"
        )
    );
    assert!(update(&[], &["momentum.time"], 1).contains("the state is not that of the slots"));
}
