//! The loop gives what its parts give, whatever the types, the level, the place in memory and the threads.

use super::*;
use crate::{Adam, Decay, Gradient, Lion, Sgd, adam, convert, lion, sgd};
use half::f16;
use proptest::prelude::*;
use rayon::ThreadPoolBuilder;

const RULE: Adam = Adam {
    decay: Decay::Decoupled,
    learning_rate: 1e-2,
    beta1: 0.9,
    beta2: 0.999,
    eps: 1e-8,
    weight_decay: 0.1,
    update: 3,
    gradient: Gradient { scale: 0.5, clip: 4.0 },
};

/// A shard of bf16 state and gradient, with all that it may have.
#[derive(Debug, Clone, PartialEq)]
struct Narrow {
    parameters: Vec<f32>,
    gradient: Vec<bf16>,
    first: Vec<bf16>,
    second: Vec<bf16>,
    rounded: Vec<bf16>,
}

impl Narrow {
    fn new(elements: &[(f32, f32, f32, f32)]) -> Self {
        let narrow = |value: fn(&(f32, f32, f32, f32)) -> f32| {
            elements.iter().map(|element| bf16::from_f32(value(element))).collect::<Vec<_>>()
        };
        Self {
            parameters: elements.iter().map(|element| element.0).collect(),
            gradient: narrow(|element| element.1),
            first: narrow(|element| element.2),
            second: narrow(|element| element.3),
            rounded: narrow(|_| 77.0),
        }
    }

    fn shard(&mut self, skip: usize) -> Shard<'_, 2> {
        Shard {
            parameters: &mut self.parameters[skip..],
            gradient: self.gradient[skip..].into(),
            state: [(&mut self.first[skip..]).into(), (&mut self.second[skip..]).into()],
            rounded: Some((&mut self.rounded[skip..]).into()),
        }
    }

    fn step(mut self, level: Level, skip: usize) -> Self {
        adam(level, &RULE, self.shard(skip));
        self
    }
}

fn wide(narrow: &[bf16]) -> Vec<f32> {
    narrow.iter().map(|value| value.to_f32()).collect()
}

fn elements() -> impl Strategy<Value = Vec<(f32, f32, f32, f32)>> {
    let value = || prop_oneof![8 => -9f32..9.0, 1 => Just(0.0), 1 => Just(-0.0), 1 => Just(1e-40), 1 => Just(3e38)];
    proptest::collection::vec((value(), value(), value(), 0f32..9.0), 0..2 * BLOCK + 70)
}

/// Elements of which most spans are calm; a few elements are as small as they may be in one, or smaller.
fn calm_elements() -> impl Strategy<Value = Vec<(f32, f32, f32, f32)>> {
    let moment = || prop_oneof![400 => 1e-9f32..9.0, 400 => -9f32..-1e-9, 1 => 1e-30f32..1e-17, 1 => Just(0.0)];
    let second = prop_oneof![400 => 1e-30f32..9.0, 1 => 1e-39f32..1e-36, 1 => Just(0.0)];
    proptest::collection::vec((moment(), moment(), moment(), second), 0..2 * BLOCK + 70)
}

/// Whether narrow state is what f32 state is, rounded where it is stored, at every level.
fn narrow_is_wide_and_rounded(elements: &[(f32, f32, f32, f32)], skip: usize) -> Result<(), TestCaseError> {
    let before = Narrow::new(elements);
    let skip = skip.min(elements.len());
    let after = before.clone().step(Level::Portable, skip);
    for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
        let found = before.clone().step(level, skip);
        prop_assert_eq!(format!("{:?}", found), format!("{:?}", after), "{}", level);
    }

    // The same in f32, rounded by hand.
    let (mut p, g) = (before.parameters.clone(), wide(&before.gradient));
    let (mut m, mut v) = (wide(&before.first), wide(&before.second));
    adam(Level::Portable, &RULE, Shard::of_f32(&mut p[skip..], &g[skip..], [&mut m[skip..], &mut v[skip..]]));
    for at in skip..elements.len() {
        let chance = noise::chance(p[at], noise::salt(RULE.update));
        prop_assert_eq!(after.parameters[at].to_bits(), p[at].to_bits());
        prop_assert_eq!(after.first[at].to_bits(), noise::rounded(m[at], chance).to_bits());
        prop_assert_eq!(after.second[at].to_bits(), noise::rounded(v[at], chance).to_bits());
        prop_assert_eq!(after.rounded[at].to_bits(), bf16::from_f32(p[at]).to_bits());
    }
    prop_assert_eq!(&after.rounded[..skip], &before.rounded[..skip]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn narrow_types_are_rounded_where_they_are_stored(elements in elements(), skip in 0usize..40) {
        narrow_is_wide_and_rounded(&elements, skip)?;
    }

    #[test]
    fn calm_spans_and_others_have_the_same_bits(elements in calm_elements(), skip in 0usize..40) {
        narrow_is_wide_and_rounded(&elements, skip)?;
    }

    #[test]
    fn f16_is_widened_and_rounded(elements in elements()) {
        let halves: Vec<f16> = elements.iter().map(|element| f16::from_f32(element.1)).collect();
        let mut g = vec![0.0; halves.len()];
        convert::to_f32(&mut g, Values::F16(&halves));
        let rule = Lion { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, weight_decay: 0.1, update: 3, gradient: RULE.gradient };
        let parameters: Vec<f32> = elements.iter().map(|element| element.0).collect();
        let moment: Vec<f32> = elements.iter().map(|element| element.2).collect();
        let (mut p, mut m) = (parameters.clone(), moment.clone());
        lion(Level::Portable, &rule, Shard::of_f32(&mut p, &g, [&mut m]));
        for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
            let (mut found, mut state, mut rounded) = (parameters.clone(), moment.clone(), vec![f16::NAN; g.len()]);
            let shard = Shard {
                parameters: &mut found,
                gradient: Values::F16(&halves),
                state: [ValuesMut::F32(&mut state)],
                rounded: Some(ValuesMut::F16(&mut rounded)),
            };
            lion(level, &rule, shard);
            for at in 0..p.len() {
                prop_assert_eq!([found[at], state[at]].map(f32::to_bits), [p[at], m[at]].map(f32::to_bits));
                prop_assert_eq!(rounded[at].to_bits(), f16::from_f32(p[at]).to_bits());
            }
        }
    }
}

/// Parameter, gradient and moments of an element, none like its neighbours.
fn element(at: usize) -> (f32, f32, f32, f32) {
    let at = at as f32;
    (at.sin(), at.cos(), (at * 0.7).sin(), (at * 0.3).cos().abs())
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    // Not a multiple of anything.
    let before = Narrow::new(&(0..5 * PART + 77).map(element).collect::<Vec<_>>());
    let alone = before.clone().step(Level::best(), 3);
    assert_ne!(alone, before);
    for threads in [1, 2, 3, 7] {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert!(pool.install(|| before.clone().step(Level::best(), 3)) == alone, "{threads} threads");
    }
}

/// What is long enough to be stored past the caches.
#[test]
fn long_shards_are_rounded_where_they_are_stored() {
    let elements: Vec<_> = (0..PART + 1077).map(element).collect();
    narrow_is_wide_and_rounded(&elements, 0).unwrap();
    narrow_is_wide_and_rounded(&elements, 3).unwrap();
    let (mut p, g) = (elements.iter().map(|element| element.0).collect::<Vec<_>>(), vec![0.5; elements.len()]);
    let mut rounded = vec![f16::NAN; elements.len()];
    let mut shard = Shard::of_f32(&mut p[1..], &g[1..], []);
    shard.rounded = Some(ValuesMut::F16(&mut rounded[1..]));
    sgd(Level::best(), &Sgd { learning_rate: 0.1, weight_decay: 0.0, gradient: RULE.gradient }, shard);
    assert!(rounded[0].is_nan());
    assert!(rounded[1..].iter().zip(&p[1..]).all(|(found, p)| found.to_bits() == f16::from_f32(*p).to_bits()));
}

#[test]
fn parts_begin_at_pages_and_cover_the_shard() {
    use std::sync::Mutex;
    let pool = ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let (mut p, g) = (vec![0.0f32; 6 * PART + 5], vec![0.0f32; 6 * PART + 5]);
    let first = p.as_ptr() as usize;
    let parts = Mutex::new(Vec::new());
    pool.install(|| {
        share(Shard::of_f32(&mut p, &g, []), &|shard| {
            let begin = (shard.parameters.as_ptr() as usize - first) / size_of::<f32>();
            parts.lock().unwrap().push(begin..begin + shard.len());
        });
    });
    let mut parts = parts.into_inner().unwrap();
    parts.sort_by_key(|part| part.start);
    assert!(parts.len() > 3 && parts.iter().all(|part| part.start.is_multiple_of(PAGE)), "{parts:?}");
    assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, g.len()));
}

#[test]
#[should_panic(expected = "state is f32 or bf16")]
fn state_of_another_type_is_a_mistake() {
    let (mut p, mut m) = ([0.0], [f16::ZERO]);
    let rule =
        Lion { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, weight_decay: 0.0, update: 1, gradient: RULE.gradient };
    let state = [ValuesMut::F16(&mut m)];
    lion(Level::best(), &rule, Shard { parameters: &mut p, gradient: Values::F32(&[0.0]), state, rounded: None });
}
