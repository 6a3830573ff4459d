//! Parameters that start equal and get equal gradients stay equal, bit for bit, wherever they lie.
//!
//! That is what a model with shared or repeated weights, and a run that is made again with other ranks, rest on. Every
//! optimizer that is registered is tried, with its defaults and with its other ways of working.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::ops::Range;
use stoker_core::registry::{self, Given, Kind};
use stoker_core::{Granularity, Optimizer, Segment, ShardUpdate, StepContext, Values, ValuesMut};
use stoker_optimizers as _;
use stoker_testkit::values::{assert_same_bits, numbers};

const LENGTH: usize = 777;
const UPDATES: u64 = 100;
const RATE: f64 = 1e-3;

/// Where a parameter lies, and how it is updated.
struct Place {
    /// Where it is cut into shards.
    cuts: &'static [usize],
    /// Elements before and after it in each of these.
    around: (usize, usize),
    /// Elements of its segments, the last of a shard excepted.
    segment: usize,
    /// Elements that are updated in one call.
    call: usize,
}

const ALL: usize = usize::MAX;
const PLACES: [Place; 5] = [
    Place { cuts: &[], around: (0, 0), segment: ALL, call: ALL },
    Place { cuts: &[], around: (5, 11), segment: 128, call: ALL },
    Place { cuts: &[256, 512], around: (128, 3), segment: ALL, call: 301 },
    Place { cuts: &[1, 400], around: (1, 0), segment: 77, call: 150 },
    Place { cuts: &[130], around: (31, 64), segment: 500, call: 97 },
];

/// A shard with a part of the parameter in it.
struct Shard {
    /// The part.
    part: Range<usize>,
    /// Where it lies here.
    here: Range<usize>,
    parameters: Vec<f32>,
    gradient: Vec<f32>,
    state: Vec<Vec<f32>>,
}

fn shards(place: &Place, slots: usize) -> Vec<Shard> {
    let parameter: Vec<f32> = numbers(1, LENGTH);
    let starts = std::iter::once(0).chain(place.cuts.iter().copied());
    let ends = place.cuts.iter().copied().chain([LENGTH]);
    let shard = |(start, end): (usize, usize)| {
        let here = place.around.0..place.around.0 + end - start;
        let length = here.end + place.around.1;
        let mut parameters = numbers(2, length);
        parameters[here.clone()].copy_from_slice(&parameter[start..end]);
        Shard {
            part: start..end,
            here,
            parameters,
            gradient: numbers(3, length),
            state: vec![vec![0.0; length]; slots],
        }
    };
    starts.zip(ends).map(shard).collect()
}

impl Shard {
    /// What lies around the parameter has other hyper-parameters, and has been updated more often.
    fn segments(&self, update: u64, longest: usize) -> Vec<Segment> {
        let other = |range| Segment { range, update: update + 5, learning_rate: 0.1, weight_decay: Some(0.5) };
        let pieces = self.here.clone().step_by(longest.min(LENGTH)).map(|start| Segment {
            range: start..self.here.end.min(start.saturating_add(longest)),
            update,
            learning_rate: RATE,
            weight_decay: None,
        });
        let (before, after) = (other(0..self.here.start), other(self.here.end..self.parameters.len()));
        std::iter::once(before).chain(pieces).chain([after]).collect()
    }

    fn update(&mut self, optimizer: &dyn Optimizer, update: u64, gradient: &[f32], place: &Place) {
        self.gradient[self.here.clone()].copy_from_slice(&gradient[self.part.clone()]);
        let context = StepContext { gradient_scale: 0.3, clip_value: 20.0 };
        let segments = self.segments(update, place.segment);
        let length = self.parameters.len();
        for start in (0..length).step_by(place.call.min(length)) {
            let call = start..length.min(start.saturating_add(place.call));
            let within = |segment: &Segment| {
                let (from, to) = (segment.range.start.max(call.start), segment.range.end.min(call.end));
                (from < to).then(|| Segment { range: from - call.start..to - call.start, ..segment.clone() })
            };
            let shard = ShardUpdate {
                parameters: &mut self.parameters[call.clone()],
                gradient: Values::F32(&self.gradient[call.clone()]),
                rounded: None,
                state: self.state.iter_mut().map(|state| ValuesMut::F32(&mut state[call.clone()])).collect(),
                segments: &segments.iter().filter_map(within).collect::<Vec<_>>(),
            };
            optimizer.update(shard, &context).unwrap();
        }
    }
}

/// The parameter, then its state, put together again.
fn whole(shards: &[Shard], slots: usize) -> Vec<Vec<f32>> {
    let part = |shard: &Shard, slot: Option<usize>| match slot {
        None => shard.parameters[shard.here.clone()].to_vec(),
        Some(slot) => shard.state[slot][shard.here.clone()].to_vec(),
    };
    let slots = std::iter::once(None).chain((0..slots).map(Some));
    slots.map(|slot| shards.iter().flat_map(|shard| part(shard, slot)).collect()).collect()
}

/// Options besides the defaults, for ways of working that are off by default.
const OTHER_WAYS: [(&str, &str); 12] = [
    ("adagrad", r#"{"lr_decay": 0.01, "weight_decay": 0.1, "initial_accumulator_value": 0.5}"#),
    ("adam", r#"{"weight_decay": 0.1, "betas": [0.0, 0.9]}"#),
    ("lion", r#"{"weight_decay": 0.1}"#),
    ("sgd", r#"{"momentum": 0.9, "nesterov": true, "weight_decay": 0.1}"#),
    ("sgd", r#"{"momentum": 0.9, "dampening": 0.1}"#),
    ("burn:adam", r#"{"amsgrad": true, "weight_decay": 0.1}"#),
    ("burn:adamw", r#"{"amsgrad": true, "cautious_weight_decay": true, "weight_decay": 0.1}"#),
    ("burn:adan", r#"{"no_prox": true, "weight_decay": 0.1}"#),
    ("burn:adan", r#"{"weight_decay": 0.1}"#),
    ("burn:rmsprop", r#"{"centered": true, "momentum": 0, "weight_decay": 0.1}"#),
    ("burn:sgd", r#"{"momentum": 0.9, "weight_decay": 0.1}"#),
    ("burn:sgd", r#"{"momentum": 0.9, "nesterov": true}"#),
];

fn stay_equal(name: &str, options: &Given) {
    let optimizer = registry::optimizer(name, options).unwrap();
    if optimizer.granularity() != Granularity::Element {
        return;
    }
    let slots = optimizer.state_slots().len();
    let mut places = PLACES.map(|place| (shards(&place, slots), place));
    for update in 1..=UPDATES {
        let gradient: Vec<f32> = numbers(100 + update, LENGTH);
        for (shards, place) in &mut places {
            shards.iter_mut().for_each(|shard| shard.update(optimizer.as_ref(), update, &gradient, place));
        }
        let first = whole(&places[0].0, slots);
        for (number, (shards, _)) in places.iter().enumerate().skip(1) {
            for (slot, (found, wanted)) in whole(shards, slots).iter().zip(&first).enumerate() {
                let what = format!("{name} {options:?}, place {number}, slice {slot} after update {update}");
                assert_same_bits(found, wanted, &what);
            }
        }
    }
    let moved = whole(&places[0].0, slots).swap_remove(0);
    assert!(moved.iter().all(|value| value.is_finite()), "{name} {options:?}");
    assert_ne!(moved, numbers::<f32>(1, LENGTH), "{name} {options:?}");
}

#[test]
fn with_every_optimizer_that_is_registered() {
    let names: Vec<_> = registry::plugins(Kind::Optimizer).iter().map(|plugin| plugin.name).collect();
    assert!(names.len() >= 12, "{names:?}");
    for name in names {
        stay_equal(name, &Given::new());
    }
}

#[test]
fn with_their_other_ways_of_working() {
    for (name, options) in OTHER_WAYS {
        stay_equal(name, &serde_json::from_str(options).unwrap());
    }
}
