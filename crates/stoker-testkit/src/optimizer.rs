//! What every optimizer owes.

use crate::values::{assert_same_bits, numbers};
use std::ops::Range;
use stoker_core::half::{bf16, f16};
use stoker_core::{DType, Error, Granularity, Optimizer, Segment, ShardUpdate, StepContext, Values, ValuesMut};

const ELEMENTS: usize = 1003;

/// Panics unless `optimizer` does what it must: leaves alone what is outside of segments, is a function of its
/// arguments, takes the gradient times its scale and cut, heeds each segment's learning rate, weight decay and number of
/// the update, hides no NaN, gives the same bits for any split if it says so, and refuses what does not fit without
/// changing anything.
pub fn conforms(optimizer: &dyn Optimizer) {
    let laws = [
        updates_its_segments_only,
        is_a_function_of_its_arguments,
        scales_the_gradient,
        cuts_the_gradient,
        takes_a_narrow_gradient,
        rounds_the_parameters,
        hides_no_nan,
        heeds_each_segment,
        counts_updates_by_segment,
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
    state: Vec<State>,
}

/// A slot's elements.
#[derive(Debug, Clone)]
enum State {
    F16(Vec<f16>),
    BF16(Vec<bf16>),
    F32(Vec<f32>),
}

impl State {
    fn zeros(dtype: DType, elements: usize) -> Self {
        match dtype {
            DType::F16 => Self::F16(vec![f16::ZERO; elements]),
            DType::BF16 => Self::BF16(vec![bf16::ZERO; elements]),
            DType::F32 => Self::F32(vec![0.0; elements]),
            DType::F64 => panic!("state is not kept in f64"),
        }
    }

    fn part(&mut self, range: Range<usize>) -> ValuesMut<'_> {
        match self {
            Self::F16(values) => ValuesMut::F16(&mut values[range]),
            Self::BF16(values) => ValuesMut::BF16(&mut values[range]),
            Self::F32(values) => ValuesMut::F32(&mut values[range]),
        }
    }

    fn len(&self) -> usize {
        self.wide().len()
    }

    fn wide(&self) -> Vec<f32> {
        match self {
            Self::F16(values) => values.iter().map(|value| value.to_f32()).collect(),
            Self::BF16(values) => values.iter().map(|value| value.to_f32()).collect(),
            Self::F32(values) => values.clone(),
        }
    }

    fn truncate(&mut self, length: usize) {
        match self {
            Self::F16(values) => values.truncate(length),
            Self::BF16(values) => values.truncate(length),
            Self::F32(values) => values.truncate(length),
        }
    }

    fn clear(&mut self, range: Range<usize>) {
        match self {
            Self::F16(values) => values[range].fill(f16::ZERO),
            Self::BF16(values) => values[range].fill(bf16::ZERO),
            Self::F32(values) => values[range].fill(0.0),
        }
    }
}

impl Shard {
    /// A shard as it is after a few updates: state that an optimizer has made itself.
    fn after_updates(optimizer: &dyn Optimizer, elements: usize) -> Self {
        let mut shard = Self {
            parameters: numbers(1, elements),
            gradient: Vec::new(),
            state: optimizer.state_slots().iter().map(|slot| State::zeros(slot.dtype, elements)).collect(),
        };
        for update in 1..=3 {
            shard.gradient = numbers(100 + update, elements);
            shard.update(optimizer, &[Segment { update, ..whole(elements) }], &PLAIN);
        }
        shard.gradient = numbers(200, elements);
        shard
    }

    fn piece(&mut self, range: Range<usize>, segments: &[Segment], act: impl FnOnce(ShardUpdate<'_>)) {
        act(ShardUpdate {
            parameters: &mut self.parameters[range.clone()],
            gradient: Values::F32(&self.gradient[range.clone()]),
            state: self.state.iter_mut().map(|state| state.part(range.clone())).collect(),
            rounded: None,
            segments,
        });
    }

    fn update(&mut self, optimizer: &dyn Optimizer, segments: &[Segment], context: &StepContext) {
        let all = 0..self.parameters.len();
        self.piece(all, segments, |update| {
            optimizer.update(update, context).unwrap_or_else(|error| panic!("{optimizer:?}: {error}"));
        });
    }

    fn slices(&self) -> impl Iterator<Item = Vec<f32>> {
        std::iter::once(self.parameters.clone()).chain(self.state.iter().map(State::wide))
    }

    #[track_caller]
    fn assert_same(&self, other: &Self, range: Range<usize>, what: &str) {
        for (found, wanted) in self.slices().zip(other.slices()) {
            assert_same_bits(&found[range.clone()], &wanted[range.clone()], what);
        }
    }
}

/// The gradient as it is.
const PLAIN: StepContext = StepContext::scaled(1.0);

/// A segment in the update after those of [`Shard::after_updates`].
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
    after.update(optimizer, &segments, &PLAIN);
    for outside in [0..3, 10..700, 1000..ELEMENTS] {
        after.assert_same(&before, outside, "an element outside every segment");
    }
    for inside in [3..10, 700..1000] {
        let what = format!("{optimizer:?}: a segment with a gradient and a learning rate is updated");
        assert_ne!(after.parameters[inside.clone()], before.parameters[inside], "{what}");
    }
    let mut none = before.clone();
    none.update(optimizer, &[], &PLAIN);
    none.assert_same(&before, 0..ELEMENTS, "a shard without segments");
}

fn is_a_function_of_its_arguments(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, ELEMENTS);
    let [mut one, mut other] = [before.clone(), before];
    one.update(optimizer, &[whole(ELEMENTS)], &PLAIN);
    // Another shard in between must not show.
    Shard::after_updates(optimizer, 17);
    other.update(optimizer, &[whole(ELEMENTS)], &PLAIN);
    one.assert_same(&other, 0..ELEMENTS, "the same update, made again");
}

fn scales_the_gradient(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, ELEMENTS);
    let [mut scaled, mut by_hand] = [before.clone(), before];
    scaled.update(optimizer, &[whole(ELEMENTS)], &StepContext::scaled(0.125));
    // A power of two: both ways are exact.
    by_hand.gradient.iter_mut().for_each(|gradient| *gradient *= 0.125);
    by_hand.update(optimizer, &[whole(ELEMENTS)], &PLAIN);
    scaled.assert_same(&by_hand, 0..ELEMENTS, "a scaled gradient");
}

fn cuts_the_gradient(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, ELEMENTS);
    // After the scale and not before it: about half of the elements are cut.
    let context = StepContext { gradient_scale: 0.3, clip_value: 0.3 };
    let [mut cut, mut by_hand, mut uncut] = [before.clone(), before.clone(), before];
    cut.update(optimizer, &[whole(ELEMENTS)], &context);
    by_hand.gradient.iter_mut().for_each(|gradient| *gradient = (*gradient * 0.3).clamp(-0.3, 0.3));
    by_hand.update(optimizer, &[whole(ELEMENTS)], &PLAIN);
    cut.assert_same(&by_hand, 0..ELEMENTS, "a gradient that was cut");
    // An optimizer that looks at signs alone may have moved the parameters alike, but not its state.
    uncut.update(optimizer, &[whole(ELEMENTS)], &StepContext::scaled(0.3));
    assert!(cut.slices().ne(uncut.slices()), "{optimizer:?}: clip_value is heeded");
}

fn takes_a_narrow_gradient(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, ELEMENTS);
    let context = StepContext { gradient_scale: 0.3, clip_value: 0.3 };
    let (halves, brains): (Vec<_>, Vec<_>) =
        before.gradient.iter().map(|value| (f16::from_f32(*value), bf16::from_f32(*value))).unzip();
    let wide = |values: Values<'_>| match values {
        Values::F16(values) => values.iter().map(|value| value.to_f32()).collect(),
        Values::BF16(values) => values.iter().map(|value| value.to_f32()).collect(),
        Values::F32(values) => values.to_vec(),
    };
    for narrow in [Values::F16(&halves), Values::BF16(&brains)] {
        let [mut found, mut wanted] = [before.clone(), before.clone()];
        let segments = [whole(ELEMENTS)];
        found.piece(0..ELEMENTS, &segments, |update| {
            let update = ShardUpdate { gradient: narrow, ..update };
            optimizer.update(update, &context).unwrap_or_else(|error| panic!("{optimizer:?}: {error}"));
        });
        wanted.gradient = wide(narrow);
        wanted.update(optimizer, &segments, &context);
        found.assert_same(&wanted, 0..ELEMENTS, &format!("a gradient of {}", narrow.dtype()));
    }
}

fn rounds_the_parameters(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, ELEMENTS);
    let segments = [segment(0..400, 1e-2, None), segment(400..ELEMENTS, 1e-1, None)];
    let mut wanted = before.clone();
    wanted.update(optimizer, &segments, &PLAIN);
    let (mut halves, mut brains) = (vec![f16::NAN; ELEMENTS], vec![bf16::NAN; ELEMENTS]);
    for rounded in [ValuesMut::F16(&mut halves), ValuesMut::BF16(&mut brains)] {
        let mut found = before.clone();
        found.piece(0..ELEMENTS, &segments, |update| {
            let update = ShardUpdate { rounded: Some(rounded), ..update };
            optimizer.update(update, &PLAIN).unwrap_or_else(|error| panic!("{optimizer:?}: {error}"));
        });
        found.assert_same(&wanted, 0..ELEMENTS, "an update that also rounds its parameters");
    }
    for (at, value) in wanted.parameters.iter().enumerate() {
        let found = (halves[at].to_bits(), brains[at].to_bits());
        let nearest = (f16::from_f32(*value).to_bits(), bf16::from_f32(*value).to_bits());
        assert_eq!(found, nearest, "{optimizer:?}: element {at}, {value}, is rounded to the nearest");
    }
}

fn hides_no_nan(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, ELEMENTS);
    for clip_value in [f32::INFINITY, 1.0] {
        let context = StepContext { gradient_scale: 0.3, clip_value };
        let [mut bad, mut good] = [before.clone(), before.clone()];
        bad.gradient[500] = f32::NAN;
        bad.update(optimizer, &[whole(ELEMENTS)], &context);
        let seen = bad.slices().any(|slice| slice[500].is_nan());
        assert!(
            seen,
            "{optimizer:?}: a gradient of NaN shows in the parameter or in its state, clip_value {clip_value}"
        );
        if optimizer.granularity() == Granularity::Element {
            good.update(optimizer, &[whole(ELEMENTS)], &context);
            for others in [0..500, 501..ELEMENTS] {
                bad.assert_same(&good, others, "an element next to one whose gradient is NaN");
            }
        }
    }
}

fn heeds_each_segment(optimizer: &dyn Optimizer) {
    let before = Shard::after_updates(optimizer, ELEMENTS);
    let segments =
        [segment(0..400, 1e-3, Some(0.0)), segment(400..800, 1e-1, Some(0.5)), segment(800..ELEMENTS, 0.0, None)];
    let together = together_as_alone(optimizer, &before, &segments);
    let still = &together.parameters[800..];
    assert_same_bits(still, &before.parameters[800..], "parameters of a segment whose learning rate is 0");

    let with = |learning_rate, weight_decay| {
        let mut shard = before.clone();
        shard.update(optimizer, &[segment(0..ELEMENTS, learning_rate, weight_decay)], &PLAIN);
        shard.parameters
    };
    assert_ne!(with(1e-3, Some(0.0)), with(1e-2, Some(0.0)), "{optimizer:?}: the learning rate is heeded");
    assert_ne!(with(1e-2, Some(0.0)), with(1e-2, Some(0.5)), "{optimizer:?}: a segment's weight decay is heeded");
}

fn counts_updates_by_segment(optimizer: &dyn Optimizer) {
    let mut before = Shard::after_updates(optimizer, ELEMENTS);
    // The first update of its elements, whose state is still what all state starts as.
    before.state.iter_mut().for_each(|state| state.clear(0..300));
    let segments = [(0..300, 1), (300..600, 4), (600..ELEMENTS, 1000)]
        .map(|(range, update)| Segment { update, ..segment(range, 1e-2, None) });
    together_as_alone(optimizer, &before, &segments);
}

/// Updates `segments` in one call, which must give what a call for each gives.
fn together_as_alone(optimizer: &dyn Optimizer, before: &Shard, segments: &[Segment]) -> Shard {
    let mut together = before.clone();
    together.update(optimizer, segments, &PLAIN);
    for segment in segments {
        let mut alone = before.clone();
        alone.update(optimizer, std::slice::from_ref(segment), &PLAIN);
        let what = format!("{optimizer:?}: a segment among others and alone, {segment:?}");
        together.assert_same(&alone, segment.range.clone(), &what);
    }
    together
}

fn may_be_split(optimizer: &dyn Optimizer) {
    if optimizer.granularity() != Granularity::Element {
        return;
    }
    let before = Shard::after_updates(optimizer, ELEMENTS);
    let segments = [segment(0..7, 1e-3, None), segment(7..600, 1e-2, Some(0.1)), segment(640..ELEMENTS, 1e-1, None)];
    let context = StepContext { gradient_scale: 0.3, clip_value: 2.0 };
    let mut together = before.clone();
    together.update(optimizer, &segments, &context);
    for chunk in [1, 3, 8, 64, 999] {
        let mut split = before.clone();
        for start in (0..ELEMENTS).step_by(chunk) {
            let piece = start..(start + chunk).min(ELEMENTS);
            let local: Vec<_> = segments.iter().filter_map(|segment| cut(segment, &piece)).collect();
            split.piece(piece, &local, |update| {
                optimizer.update(update, &context).unwrap_or_else(|error| panic!("{optimizer:?}: {error}"));
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
            gradient: Values::F32(&shard.gradient),
            state: shard.state.iter_mut().map(|state| state.part(0..state.len())).collect(),
            rounded: None,
            segments,
        };
        let found = optimizer.update(update, &PLAIN);
        assert!(matches!(found, Err(Error::OutOfRange { .. })), "{optimizer:?}: {what} gives {found:?}");
        for (found, wanted) in shard.slices().zip(spoilt.slices()) {
            assert_same_bits(&found, &wanted, &format!("{optimizer:?}: changed although refused for {what}"));
        }
    };
    let fine = [whole(16)];
    refused("a short gradient", &fine, &|shard| shard.gradient.truncate(15));
    refused("a long gradient", &fine, &|shard| shard.gradient.push(1.0));
    refused("a state slice too many", &fine, &|shard| shard.state.push(State::F32(vec![0.0; 16])));
    if slots > 0 {
        refused("a state slice too few", &fine, &|shard| shard.state.truncate(slots - 1));
        refused("a short state slice", &fine, &|shard| shard.state[slots - 1].truncate(15));
    }
    refused("a segment past the end", &[segment(0..4, 1e-2, None), segment(8..17, 1e-2, None)], &|_| {});
}

fn takes_an_empty_shard(optimizer: &dyn Optimizer) {
    Shard::after_updates(optimizer, 0).update(optimizer, &[segment(0..0, 1e-2, None)], &PLAIN);
}

#[cfg(test)]
mod tests;
