//! One training, whatever the stage, the place of the shards, the accumulation, the number of ranks, the schedule and the
//! size of the buckets.

use stoker_burn::init;
use stoker_core::OptionValue;
use stoker_tests::odd::Odd;
use stoker_tests::{Setup, plain};

const STEPS: usize = 30;
const BATCH: usize = 24;
const LEARNING_RATE: f64 = 0.05;

/// Elements of the largest unit that is trained.
const LARGEST: usize = 17;

/// Bytes: one element; an element less than the largest gradient, padded for the ranks, as many, one more; more than
/// anything.
fn buckets(world: usize, stage: u8) -> [u64; 5] {
    let parts = if stage == 0 { 1 } else { world };
    let elements = (LARGEST.div_ceil(parts) * parts) as u64;
    [4, (elements - 1) * 4, elements * 4, (elements + 1) * 4, 1 << 30]
}

fn setup(optimizer: &'static str, world: usize, stage: u8) -> Setup {
    let mut setup = Setup { optimizer, eps: 1e-3, alignment: 1, ..Setup::new(world, stage) };
    if optimizer == "sgd" {
        setup.options.insert("momentum".to_owned(), OptionValue::Float(0.9));
    }
    // Nothing fits together: every gather must make room.
    setup.settings.pool_bytes = 1;
    setup
}

/// The loss of every step, over all ranks and micro-batches.
fn losses(setup: &Setup, accumulation: usize) -> Vec<f64> {
    let results = setup.run(|rank| {
        let device = rank.device();
        let model = rank.build(|device| Odd::new(true, device), None).unwrap();
        let number = rank.communicator().rank();
        let share = BATCH / accumulation / setup.world;
        let step = |step: usize| {
            let own = (0..accumulation).map(|micro_batch| {
                let first = (micro_batch * setup.world + number) * share;
                rank.accumulate(|| model.loss(step, BATCH, first..first + share, &device)).unwrap()
            });
            let own = own.sum::<f64>() / accumulation as f64;
            let report = rank.update(LEARNING_RATE).unwrap();
            assert_eq!(report.updates, step as u64 + 1);
            rank.sum("loss", &[own]).unwrap()[0] / setup.world as f64
        };
        (0..STEPS).map(step).collect::<Vec<_>>()
    });
    results.into_iter().next().unwrap()
}

#[track_caller]
fn assert_close(found: &[f64], wanted: &[f64], what: &str) {
    for (step, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((found - wanted).abs() <= 1e-6, "{what}, step {step}: {found} instead of {wanted}");
    }
}

fn matrix(optimizer: &'static str, stage: u8) {
    let wanted = losses(&setup(optimizer, 1, 0), 1);
    assert!(wanted[STEPS - 1] < wanted[0] - 0.01, "it does not learn: {wanted:?}");
    let mut seed = u64::from(stage);
    for target in ["gpu-only", "cpu-offload"] {
        for accumulation in [1, 4] {
            for world in [1, 2, 3] {
                let mut same: Option<Vec<f64>> = None;
                for overlap in [true, false] {
                    for bucket_bytes in buckets(world, stage) {
                        seed += 1;
                        let mut setup = Setup { target, delays: Some(seed), ..setup(optimizer, world, stage) };
                        setup.settings.overlap = overlap;
                        setup.settings.bucket_bytes = bucket_bytes;
                        let found = losses(&setup, accumulation);
                        let what = format!(
                            "{optimizer} stage {stage} {target} accumulation {accumulation} ranks {world} overlap \
                             {overlap} buckets {bucket_bytes}"
                        );
                        assert_close(&found, &wanted, &what);
                        let same = same.get_or_insert_with(|| found.clone());
                        assert_eq!(*same, found, "{what}: other bits than with other buckets or overlap");
                    }
                }
            }
        }
    }
}

macro_rules! matrices {
    ($($name:ident: $optimizer:literal $stage:literal;)*) => {
        $(
            #[test]
            fn $name() {
                matrix($optimizer, $stage);
            }
        )*
    };
}

matrices! {
    adamw_at_stage_0: "adamw" 0;
    adamw_at_stage_1: "adamw" 1;
    adamw_at_stage_2: "adamw" 2;
    adamw_at_stage_3: "adamw" 3;
    sgd_at_stage_0: "sgd" 0;
    sgd_at_stage_1: "sgd" 1;
    sgd_at_stage_2: "sgd" 2;
    sgd_at_stage_3: "sgd" 3;
}

/// What the matrix is held to is held to plain Burn, where no weight is shared (plain Burn would train two copies).
#[test]
fn one_rank_gives_what_plain_burn_gives() {
    let device = stoker_tests::device().autodiff();
    let reference = init::initialise(Odd::new(false, &device), 7);
    let loss = |model: &Odd, step| model.loss(step, BATCH, 0..BATCH, &device);
    let (_, wanted) = plain::train(reference, 1e-3, 0.01, LEARNING_RATE, STEPS, loss);
    let found = setup("adamw", 1, 3).run(|rank| {
        let device = rank.device();
        let model = rank.build(|device| Odd::new(false, device), None).unwrap();
        let step = |step| rank.step(LEARNING_RATE, || model.loss(step, BATCH, 0..BATCH, &device)).unwrap().loss;
        (0..STEPS).map(step).collect::<Vec<_>>()
    });
    assert_close(&found[0], &wanted, "plain Burn");
}
