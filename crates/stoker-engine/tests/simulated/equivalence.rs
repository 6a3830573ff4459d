//! One result, whatever the stage, the place, the schedule, the buckets and the delays.

use crate::model::{Model, ModelUnit};
use crate::training::Run;
use stoker_core::{DType, Place, Role};
use stoker_engine::{Settings, Stage};
use stoker_testkit::ranks;

/// The largest unit: 128 bytes with its padding for one rank, or less.
const UNIT: u64 = 128;

#[test]
fn one_rank_gives_the_same_bits_in_every_way() {
    let wanted = Run::new(1, 0).parameters();
    let mut seed = 0;
    for stage in 0..4 {
        for staged in [false, true] {
            for lends in [false, true] {
                for overlap in [false, true] {
                    for (pool_bytes, bucket_bytes) in [(1, 4), (2 * UNIT, 12), (1 << 20, 1 << 20)] {
                        for reshard_after_forward in [true, false] {
                            seed += 1;
                            let mut run = Run { staged, lends, ..Run::new(1, stage) }.with_seed(seed);
                            run.settings = Settings {
                                overlap,
                                update_in_backward: seed % 5 < 2,
                                pool_bytes,
                                bucket_bytes,
                                reshard_after_forward,
                                prefetch_bytes: 2 * UNIT,
                                persistence_threshold: if seed % 3 == 0 { 32 } else { 0 },
                                ..run.settings
                            };
                            assert_eq!(run.parameters(), wanted, "{run:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn several_ranks_give_the_same_bits_in_every_way() {
    let alone = Run::new(1, 0).parameters();
    for world in [2, 3] {
        let wanted = Run::new(world, 0).parameters();
        for (a, b) in alone.iter().flatten().zip(wanted.iter().flatten()) {
            assert!((a - b).abs() <= 1e-5, "world {world}: {a} and {b}");
        }
        let mut seed = 0;
        for stage in 0..4 {
            for (staged, lends) in [(false, false), (false, true), (true, false), (true, true)] {
                for overlap in [false, true] {
                    for (pool_bytes, bucket_bytes) in [(1, 4), (3 * UNIT, 48), (1 << 20, 1 << 20)] {
                        seed += 1;
                        let mut run =
                            Run { staged, lends, delays: seed % 2 == 0, ..Run::new(world, stage) }.with_seed(seed);
                        let prefetch_bytes = 2 * UNIT;
                        run.settings = Settings { overlap, pool_bytes, bucket_bytes, prefetch_bytes, ..run.settings };
                        assert_eq!(run.parameters(), wanted, "{run:?}");
                    }
                }
            }
        }
    }
}

/// Stage 3 keeps to its pool, and at most two units have gradients on the device.
#[test]
fn a_step_stays_within_the_pool_and_two_buckets() {
    for (world, overlap) in [(1, false), (1, true), (2, false), (2, true)] {
        let mut run = Run::new(world, 3);
        run.settings = Settings { overlap, pool_bytes: 2 * UNIT, prefetch_bytes: UNIT, ..run.settings };
        let peaks = ranks::run(run.communicators(), |communicator| {
            let mut engine = run.engine(run.plugins(communicator.clone())).unwrap();
            for step in 0..4 {
                run.train(&mut engine, step, communicator.rank()).unwrap();
            }
            engine.flush().unwrap();
            engine.ledger().peaks()
        });
        for peak in peaks.into_iter().flatten().filter(|peak| peak.place == Place::Device) {
            match peak.role {
                Some(Role::Slab) => assert!(peak.bytes <= 2 * UNIT, "{} bytes of slabs", peak.bytes),
                // The two largest units are neighbours: 128 and 48 bytes, or more with the padding of two ranks.
                Some(Role::GradientBucket) => assert!(peak.bytes <= 2 * UNIT, "{} bytes of buckets", peak.bytes),
                _ => {}
            }
        }
    }
}

/// What the largest unit needs beyond the pool it has for as long as it is used.
#[test]
fn a_pool_below_the_largest_unit_is_what_stays_between_calls() {
    const POOL: u64 = UNIT / 2;
    for (world, overlap) in [(1, false), (1, true), (2, false), (2, true)] {
        let mut run = Run::new(world, 3);
        run.settings = Settings { overlap, pool_bytes: POOL, prefetch_bytes: UNIT, ..run.settings };
        ranks::run(run.communicators(), |communicator| {
            let mut engine = run.engine(run.plugins(communicator)).unwrap();
            engine.set_training(true).unwrap();
            let mut most = 0;
            for _ in 0..2 {
                for unit in 0..6 {
                    engine.begin_call(unit, true).unwrap();
                    most = most.max(engine.ledger().now(Place::Device, Role::Slab));
                    engine.end_call(unit);
                    assert!(engine.ledger().now(Place::Device, Role::Slab) <= POOL, "after the call of {unit}");
                }
                for unit in (0..6).rev() {
                    engine.before_backward(unit).unwrap();
                    engine.slab(unit).unwrap();
                    engine.backward_done(unit).unwrap();
                    assert!(engine.ledger().now(Place::Device, Role::Slab) <= POOL, "after the backward of {unit}");
                }
                engine.step(1e-2, 1).unwrap();
            }
            assert!(most > POOL, "no unit was larger");
        });
    }
}

/// A unit that is larger than the pool is not fetched ahead, and nothing gives way in vain.
#[test]
fn what_cannot_be_fetched_ahead_takes_no_room() {
    let mut run = Run::new(1, 3);
    let unit = |size: usize| ModelUnit { sizes: vec![size], dtype: DType::F32, trainable: true, kept: false, used: 1 };
    run.model = Model { units: [8, 24, 8, 64].map(unit).to_vec(), calls: vec![vec![3, 0, 1, 2]] };
    run.settings = Settings { pool_bytes: 64, prefetch_bytes: 1 << 20, ..run.settings };
    ranks::run(run.communicators(), |communicator| {
        let mut engine = run.engine(run.plugins(communicator)).unwrap();
        let mut before = 0;
        for step in 0..3 {
            run.train(&mut engine, step, 0).unwrap();
            engine.flush().unwrap();
            let moved = engine.moved().to_device;
            // Those that fit once a step, since they are updated; the others in forward and in backward.
            assert_eq!(moved - before, 2 * 256 + 32 + 2 * 96 + 32, "step {step}");
            before = moved;
        }
    });
}

/// A graph that holds on to a slab: it is not overwritten, another is taken, and the books say so.
#[test]
fn a_slab_that_the_graph_holds_is_left_alone() {
    let mut run = Run::new(1, 3);
    run.settings.pool_bytes = UNIT;
    ranks::run(run.communicators(), |communicator| {
        let mut engine = run.engine(run.plugins(communicator)).unwrap();
        engine.set_training(true).unwrap();
        engine.begin_call(0, true).unwrap();
        let view = engine.slab(0).unwrap().tensor.clone();
        let seen = view.numbers();
        engine.end_call(0);
        for unit in [3, 2, 4, 5] {
            engine.begin_call(unit, true).unwrap();
            engine.end_call(unit);
        }
        assert_eq!(view.numbers(), seen);
        assert!(engine.ledger().now(Place::Device, Role::Slab) > UNIT, "the held slab is not in the books");
    });
}

#[test]
fn a_number_gives_a_stage() {
    assert_eq!(Stage::from_number(3).map(Stage::number), Some(3));
    assert_eq!(Stage::from_number(4), None);
}
