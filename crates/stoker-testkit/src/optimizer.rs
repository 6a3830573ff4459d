//! What every optimizer owes.

use crate::values::{assert_same_bits, numbers};
use std::ops::Range;
use stoker_core::{Error, Granularity, Optimizer, Segment, ShardUpdate, StepContext};

const ELEMENTS: usize = 1003;

/// Panics unless `optimizer` does what it must: leaves alone what is outside of segments, is a function of its
/// arguments, takes the gradient times its scale, heeds each segment's learning rate and weight decay, gives the same
/// bits for any split if it says so, and refuses what does not fit without changing anything.
pub fn conforms(optimizer: &dyn Optimizer) {
    let laws = [
        updates_its_segments_only,
        is_a_function_of_its_arguments,
        scales_the_gradient,
        heeds_each_segment,
        may_be_split,
        refuses_what_does_not_fit,
        takes_an_empty_shard,
    ];
    for law in laws {
        law(optimizer);
    }
}

/// A shard with memory of its own.
#[derive(Debug, Clone)]
struct Shard {
    parameters: Vec<f32>,
    gradient: Vec<f32>,
    state: Vec<Vec<f32>>,
}

impl Shard {
    /// A shard as it is after a few updates: state that an optimizer has made itself.
    fn after_updates(optimizer: &dyn Optimizer, elements: usize) -> Self {
        let mut shard = Self {
            parameters: numbers(1, elements),
            gradient: Vec::new(),
            state: vec![vec![0.0; elements]; optimizer.state_slots().len()],
        };
        for step in 1..=3 {
            shard.gradient = numbers(100 + step, elements);
            shard.update(optimizer, &[whole(elements)], &context(step, 1.0));
        }
        shard.gradient = numbers(200, elements);
        shard
    }

    fn piece(&mut self, range: Range<usize>, segments: &[Segment], act: impl FnOnce(ShardUpdate<'_>)) {
        act(ShardUpdate {
            parameters: &mut self.parameters[range.clone()],
            gradient: &self.gradient[range.clone()],
            state: self.state.iter_mut().map(|state| &mut state[range.clone()]).collect(),
            segments,
        });
    }

    fn update(&mut self, optimizer: &dyn Optimizer, segments: &[Segment], context: &StepContext) {
        let all = 0..self.parameters.len();
        self.piece(all, segments, |update| {
            optimizer.update(update, context).unwrap_or_else(|error| panic!("{optimizer:?}: {error}"));
        });
    }

    fn slices(&self) -> impl Iterator<Item = &[f32]> {
        std::iter::once(self.parameters.as_slice()).chain(self.state.iter().map(Vec::as_slice))
    }

    #[track_caller]
    fn assert_same(&self, other: &Self, range: Range<usize>, what: &str) {
        for (found, wanted) in self.slices().zip(other.slices()) {
            assert_same_bits(&found[range.clone()], &wanted[range.clone()], what);
        }
    }
}

fn context(_step: u64, gradient_scale: f32) -> StepContext {
    StepContext::scaled(gradient_scale)
}

fn segment(range: Range<usize>, learning_rate: f64, weight_decay: Option<f64>) -> Segment {
    Segment { range, update: 4, learning_rate, weight_decay }
}

fn whole(elements: usize) -> Segment {
    segment(0..elements, 1e-2, None)
}

fn updates_its_segments_only(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, ELEMENTS);
    let mut after = before.clone();
    let segments = [segment(3..10, 1e-2, None), segment(500..500, 1e-2, None), segment(700..1000, 1e-2, None)];
    after.update(optimizer, &segments, &context(4, 1.0));
    for outside in [0..3, 10..700, 1000..ELEMENTS] {
        after.assert_same(&before, outside, "an element outside every segment");
    }
    for inside in [3..10, 700..1000] {
        let what = format!("{optimizer:?}: a segment with a gradient and a learning rate is updated");
        assert_ne!(after.parameters[inside.clone()], before.parameters[inside], "{what}");
    }
    let mut none = before.clone();
    none.update(optimizer, &[], &context(4, 1.0));
    none.assert_same(&before, 0..ELEMENTS, "a shard without segments");
}

fn is_a_function_of_its_arguments(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, ELEMENTS);
    let [mut one, mut other] = [before.clone(), before];
    one.update(optimizer, &[whole(ELEMENTS)], &context(4, 1.0));
    // Another shard in between must not show.
    Shard::after_updates(optimizer, 17);
    other.update(optimizer, &[whole(ELEMENTS)], &context(4, 1.0));
    one.assert_same(&other, 0..ELEMENTS, "the same update, made again");
}

fn scales_the_gradient(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, ELEMENTS);
    let [mut scaled, mut by_hand] = [before.clone(), before];
    scaled.update(optimizer, &[whole(ELEMENTS)], &context(4, 0.125));
    // A power of two: both ways are exact.
    by_hand.gradient.iter_mut().for_each(|gradient| *gradient *= 0.125);
    by_hand.update(optimizer, &[whole(ELEMENTS)], &context(4, 1.0));
    scaled.assert_same(&by_hand, 0..ELEMENTS, "a scaled gradient");
}

fn heeds_each_segment(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, ELEMENTS);
    let segments =
        [segment(0..400, 1e-3, Some(0.0)), segment(400..800, 1e-1, Some(0.5)), segment(800..ELEMENTS, 0.0, None)];
    let mut together = before.clone();
    together.update(optimizer, &segments, &context(4, 1.0));
    for segment in &segments {
        let mut alone = before.clone();
        alone.update(optimizer, std::slice::from_ref(segment), &context(4, 1.0));
        together.assert_same(&alone, segment.range.clone(), "a segment among others and alone");
    }
    let still = &together.parameters[800..];
    assert_same_bits(still, &before.parameters[800..], "parameters of a segment whose learning rate is 0");

    let with = |learning_rate, weight_decay| {
        let mut shard = before.clone();
        shard.update(optimizer, &[segment(0..ELEMENTS, learning_rate, weight_decay)], &context(4, 1.0));
        shard.parameters
    };
    assert_ne!(with(1e-3, Some(0.0)), with(1e-2, Some(0.0)), "{optimizer:?}: the learning rate is heeded");
    assert_ne!(with(1e-2, Some(0.0)), with(1e-2, Some(0.5)), "{optimizer:?}: a segment's weight decay is heeded");
}

fn may_be_split(optimizer: &dyn Optimizer) {
    if optimizer.granularity() != Granularity::Element {
        return;
    }
    let before = Shard::after_updates(optimizer, ELEMENTS);
    let segments = [segment(0..7, 1e-3, None), segment(7..600, 1e-2, Some(0.1)), segment(640..ELEMENTS, 1e-1, None)];
    let mut together = before.clone();
    together.update(optimizer, &segments, &context(4, 0.3));
    for chunk in [1, 3, 8, 64, 999] {
        let mut split = before.clone();
        for start in (0..ELEMENTS).step_by(chunk) {
            let piece = start..(start + chunk).min(ELEMENTS);
            let local: Vec<_> = segments.iter().filter_map(|segment| cut(segment, &piece)).collect();
            split.piece(piece, &local, |update| {
                optimizer.update(update, &context(4, 0.3)).unwrap_or_else(|error| panic!("{optimizer:?}: {error}"));
            });
        }
        split.assert_same(&together, 0..ELEMENTS, &format!("chunks of {chunk}"));
    }
}

/// The part of a segment that lies in `piece`, as the piece counts.
fn cut(whole: &Segment, piece: &Range<usize>) -> Option<Segment> {
    let (start, end) = (whole.range.start.max(piece.start), whole.range.end.min(piece.end));
    (start < end).then(|| Segment { range: start - piece.start..end - piece.start, ..whole.clone() })
}

fn refuses_what_does_not_fit(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, 16);
    let slots = optimizer.state_slots().len();
    let refused = |what: &str, segments: &[Segment], spoil: &dyn Fn(&mut Shard)| {
        let mut shard = before.clone();
        spoil(&mut shard);
        let spoilt = shard.clone();
        let update = ShardUpdate {
            parameters: &mut shard.parameters,
            gradient: &shard.gradient,
            state: shard.state.iter_mut().map(Vec::as_mut_slice).collect(),
            segments,
        };
        let found = optimizer.update(update, &context(4, 1.0));
        assert!(matches!(found, Err(Error::OutOfRange { .. })), "{optimizer:?}: {what} gives {found:?}");
        for (found, wanted) in shard.slices().zip(spoilt.slices()) {
            assert_same_bits(found, wanted, &format!("{optimizer:?}: changed although refused for {what}"));
        }
    };
    let fine = [whole(16)];
    refused("a short gradient", &fine, &|shard| shard.gradient.truncate(15));
    refused("a long gradient", &fine, &|shard| shard.gradient.push(1.0));
    refused("a state slice too many", &fine, &|shard| shard.state.push(vec![0.0; 16]));
    if slots > 0 {
        refused("a state slice too few", &fine, &|shard| shard.state.truncate(slots - 1));
        refused("a short state slice", &fine, &|shard| shard.state[slots - 1].truncate(15));
    }
    refused("a segment past the end", &[segment(0..4, 1e-2, None), segment(8..17, 1e-2, None)], &|_| {});
}

fn takes_an_empty_shard(optimizer: &dyn Optimizer) {
    Shard::after_updates(optimizer, 0).update(optimizer, &[segment(0..0, 1e-2, None)], &context(4, 1.0));
}
