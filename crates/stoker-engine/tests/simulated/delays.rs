//! Whatever the model, the schedule and the moments at which the device does its work: what is computed are the bits of
//! the plain order on a device that does everything at once.

use crate::device::Flaw;
use crate::model::{Model, ModelUnit};
use crate::streams::AT_ONCE;
use crate::training::{Run, Seen};
use proptest::collection::vec;
use proptest::prelude::*;
use stoker_core::DType;
use stoker_engine::{Clipping, DynamicLossScale, LossScale, Settings, Stage};

/// One thing after the other, in memory that the host lends.
fn plain(run: &Run) -> Seen {
    let settings = Settings { overlap: false, update_in_backward: false, pool_bytes: 1 << 20, ..run.settings.clone() };
    Run { settings, staged: false, lends: true, delays: false, paces: Some(AT_ONCE), flaw: None, ..run.clone() }
        .train_all()
}

fn any_unit() -> impl Strategy<Value = ModelUnit> {
    let dtype = prop_oneof![2 => Just(DType::F32), 1 => Just(DType::BF16), 1 => Just(DType::F16)];
    (vec(0usize..=16, 1..=3), dtype, prop::bool::weighted(0.85), prop::bool::weighted(0.2), prop::bool::weighted(0.1))
        .prop_map(|(sizes, dtype, trainable, kept, unused)| ModelUnit {
            used: sizes.len() - usize::from(unused),
            sizes,
            dtype,
            trainable,
            kept,
        })
}

fn any_model() -> impl Strategy<Value = Model> {
    vec(any_unit(), 2..=6).prop_flat_map(|units| {
        // Mostly every unit in turn, with some left out and some called again.
        let all: Vec<_> = (0..units.len()).collect();
        let in_turn = (Just(all), 0..units.len(), 0..units.len()).prop_map(|(mut calls, without, again)| {
            calls.remove(without);
            calls.push(again);
            calls
        });
        let calls = prop_oneof![2 => in_turn, 1 => vec(0..units.len(), 1..=8)];
        (Just(units), vec(calls, 1..=3)).prop_map(|(units, calls)| Model { units, calls })
    })
}

/// What changes the numbers.
fn any_arithmetic() -> impl Strategy<Value = Settings> {
    let clipping =
        prop_oneof![2 => Just(Clipping::None), 1 => Just(Clipping::Norm(0.5)), 1 => Just(Clipping::Value(0.2))];
    let dynamic = DynamicLossScale { window: 2, hysteresis: 1, ..DynamicLossScale::default() };
    let loss_scale = prop_oneof![
        2 => Just(LossScale::None),
        1 => Just(LossScale::Static(64.0)),
        1 => (14u32..=18).prop_map(move |initial_power| {
            LossScale::Dynamic(DynamicLossScale { initial_power, ..dynamic })
        }),
    ];
    let stage = prop_oneof![1 => 0u8..3, 3 => Just(3)];
    let gradients = prop_oneof![Just(None), Just(Some(DType::F32))];
    (stage, clipping, loss_scale, gradients).prop_map(|(stage, clipping, loss_scale, gradients)| Settings {
        stage: Stage::from_number(stage).unwrap(),
        clipping,
        loss_scale,
        gradients,
        ..Run::new(1, 3).settings
    })
}

/// What must not change them.
fn any_schedule() -> impl Strategy<Value = Settings> {
    let settings = any_arithmetic();
    let bytes = (0u64..=400, 0u64..=300, 1u64..=200, prop_oneof![2 => Just(0), 1 => 0u64..=80]);
    (settings, bytes, any::<bool>(), any::<bool>(), prop::bool::weighted(0.9)).prop_map(
        |(settings, bytes, update_in_backward, reshard_after_forward, overlap)| {
            let (pool_bytes, prefetch_bytes, bucket_bytes, persistence_threshold) = bytes;
            Settings {
                overlap,
                update_in_backward,
                pool_bytes,
                prefetch_bytes,
                bucket_bytes,
                persistence_threshold,
                reshard_after_forward,
                ..settings
            }
        },
    )
}

fn any_run() -> impl Strategy<Value = Run> {
    let world = prop_oneof![3 => Just(1usize), 1 => 2usize..=3];
    let micro_batches = prop_oneof![2 => Just(1usize), 1 => 2usize..=3];
    let pace = || prop_oneof![2 => Just(0u64), 1 => 1u64..4, 2 => Just(4u64)];
    let paces = [pace(), pace(), pace()];
    (world, any_model(), any_schedule(), micro_batches, prop::bool::weighted(0.2), any::<u64>(), paces).prop_map(
        |(world, model, settings, micro_batches, staged, seed, paces)| {
            // Far below the largest number: a rank's seed is another one.
            let seed = seed >> 8;
            let delays = world > 1 && seed % 4 < 2;
            let run = Run { model, settings, micro_batches, staged, paces: Some(paces), delays, ..Run::new(world, 3) };
            run.with_seed(seed)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn no_delay_changes_a_bit(run in any_run()) {
        let (seen, wanted) = (run.train_all(), plain(&run));
        prop_assert_eq!(seen, wanted);
    }
}

/// A device whose order lacks anything is noticed; so what is above can fail.
#[test]
fn a_bridge_that_forgets_an_order_changes_bits() {
    let flaws = [Flaw::ForgetsBeforeUse, Flaw::IncomingIsEarly, Flaw::OutgoingIsEarly, Flaw::HidesViews];
    for flaw in flaws {
        let mut noticed = 0;
        for seed in 0..40 {
            let mut run = Run { flaw: Some(flaw), ..Run::new(1, 3) }.with_seed(seed);
            run.settings = Settings { pool_bytes: 160, prefetch_bytes: 160, ..run.settings };
            for unit in &mut run.model.units {
                unit.kept = seed % 4 == 0;
            }
            noticed += u32::from(run.train_all() != plain(&run));
        }
        assert!(noticed > 5, "{flaw:?} was noticed in {noticed} of 40 runs");
    }
}
