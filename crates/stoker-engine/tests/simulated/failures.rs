//! What cannot work is refused, and what fails is told; nothing is half done.

use crate::training::Run;
use std::sync::Arc;
use stoker_core::{Granularity, Optimizer, Place, Result as CoreResult, Role, ShardUpdate, StateSlot, StepContext};
use stoker_engine::{Clipping, Error, Outcome, Plugins};
use stoker_testkit::faults::{Access, FaultyTarget, When};
use stoker_testkit::ranks;

fn alone<T: Send>(run: &Run, body: impl Fn(Plugins) -> T + Sync) -> T {
    ranks::run(run.communicators(), |communicator| body(run.plugins(communicator))).remove(0)
}

#[test]
fn a_plan_that_does_not_fit_is_refused_with_advice() {
    let mut run = Run::new(1, 0);
    run.settings.device_memory_limit = Some(100);
    let error = alone(&run, |plugins| run.engine(plugins).map(drop).unwrap_err().to_string());
    assert!(error.starts_with("the model does not fit: "), "{error}");
    for part in ["bytes of device memory are needed", "slab ", "gradient_bucket ", "the limit is 100", "zero.stage = 3"]
    {
        assert!(error.contains(part), "`{part}` is missing: {error}");
    }
}

/// The plan is an upper bound: with just the memory that it asks for, training works.
#[test]
fn what_the_plan_needs_is_enough() {
    for world in [1, 2] {
        for stage in 0..4 {
            for overlap in [false, true] {
                let mut run = Run::new(world, stage);
                run.settings.overlap = overlap;
                run.settings.pool_bytes = 200;
                run.settings.device_memory_limit = Some(1);
                let refused = ranks::run(run.communicators(), |communicator| {
                    run.engine(run.plugins(communicator)).map(drop).unwrap_err()
                });
                let Error::DoesNotFit { needed, .. } = refused[0] else { panic!("{}", refused[0]) };
                run.settings.device_memory_limit = Some(needed);
                run.parameters();
                run.settings.device_memory_limit = Some(needed - 1);
                let refused =
                    ranks::run(run.communicators(), |communicator| run.engine(run.plugins(communicator)).is_err());
                assert!(refused[0]);
            }
        }
    }
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    for stage in 0..4 {
        let run = Run::new(2, stage);
        ranks::run(run.communicators(), |communicator| {
            let rank = communicator.rank();
            let mut engine = run.engine(run.plugins(communicator)).unwrap();
            run.train(&mut engine, 0, rank).unwrap();
            let before = run.model.read(&mut engine);
            engine.set_training(true).unwrap();
            engine.begin_call(1, true).unwrap();
            engine.end_call(1);
            let bad = if rank == 1 { f32::INFINITY } else { 1.0 };
            engine.land(1, 0, vec![bad; 7].into()).unwrap();
            engine.backward_done(1).unwrap();
            let report = engine.step(1e-2, 1).unwrap();
            assert_eq!((report.outcome, report.updates, engine.skipped()), (Outcome::Skipped, 1, 1));
            assert_eq!(run.model.read(&mut engine), before);
            let report = run.train(&mut engine, 2, rank).unwrap();
            assert_eq!((report.outcome, report.updates), (Outcome::Updated, 2));
            assert_ne!(run.model.read(&mut engine), before);
        });
    }
}

/// Also where the device tells only later what landed, and in whichever micro-batch it was.
#[test]
fn whose_gradient_is_not_finite_is_told_on_every_rank() {
    for (lends, sums) in [(true, false), (false, true)] {
        for (world, culprit) in [(1, 0), (2, 0), (2, 1), (3, 1)] {
            for (stage, bad_micro_batch) in [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (3, 0), (3, 1)] {
                let mut run = Run { lends, sums, ..Run::new(world, stage) };
                run.settings.max_consecutive_skips = 1;
                let specs = run.model.specs();
                let unit = specs.iter().rposition(|spec| spec.trainable && spec.parameters.len() > 1).unwrap();
                let parameter = specs[unit].parameters.len() - 1;
                let errors = ranks::run(run.communicators(), |communicator| {
                    let rank = communicator.rank();
                    let mut engine = run.engine(run.plugins(communicator)).unwrap();
                    engine.set_training(true).unwrap();
                    for micro_batch in [0, 1] {
                        for of in [1, unit] {
                            engine.begin_call(of, true).unwrap();
                            engine.end_call(of);
                            for (number, spec) in specs[of].parameters.iter().enumerate() {
                                let is_bad = (rank, micro_batch) == (culprit, bad_micro_batch);
                                let is_bad = is_bad && (of, number) == (unit, parameter);
                                let value = if is_bad { f32::NAN } else { 1.0 };
                                engine.land(of, number, vec![value; spec.elements()].into()).unwrap();
                            }
                            engine.backward_done(of).unwrap();
                        }
                    }
                    engine.step(1e-2, 2).unwrap_err()
                });
                for error in errors {
                    let Error::NothingTrained { not_finite, .. } = error else { panic!("{error}") };
                    let found = (not_finite.parameter, not_finite.rank);
                    let wanted = (specs[unit].parameters[parameter].path.clone(), Some(culprit));
                    assert_eq!(found, wanted, "{world} ranks, stage {stage}, sums: {sums}");
                }
            }
        }
    }
}

/// Squares in f32 are infinite long before what is squared.
#[test]
fn a_large_gradient_of_several_ranks_is_clipped() {
    for stage in 0..4 {
        let mut run = Run { sums: true, ..Run::new(2, stage) };
        run.settings.clipping = Clipping::Norm(1.0);
        ranks::run(run.communicators(), |communicator| {
            let mut engine = run.engine(run.plugins(communicator)).unwrap();
            engine.set_training(true).unwrap();
            engine.begin_call(1, true).unwrap();
            engine.end_call(1);
            engine.land(1, 0, vec![1e20; 7].into()).unwrap();
            engine.backward_done(1).unwrap();
            let report = engine.step(1e-2, 1).unwrap();
            assert_eq!(report.outcome, Outcome::Updated);
            assert!((report.gradient_norm / (7f64.sqrt() * 1e20) - 1.0).abs() < 1e-6, "{}", report.gradient_norm);
        });
    }
}

#[test]
fn a_target_that_fails_ends_the_step_with_its_error() {
    for (access, when) in
        [(Access::Read, When::Called), (Access::Read, When::WaitedFor), (Access::Write, When::WaitedFor)]
    {
        for at in [0, 5, 30, 60] {
            for overlap in [false, true] {
                let mut run = Run { staged: true, ..Run::new(1, 3) };
                run.settings.overlap = overlap;
                run.settings.pool_bytes = 1;
                let error = alone(&run, |plugins| {
                    let target = Arc::new(FaultyTarget::new(plugins.target.clone(), access, at, when));
                    let mut engine = match run.engine(Plugins { target, ..plugins }) {
                        Ok(engine) => engine,
                        Err(error) => return error.to_string(),
                    };
                    let steps = (0..6).try_for_each(|step| run.train(&mut engine, step, 0).map(drop));
                    steps.and_then(|()| engine.flush()).unwrap_err().to_string()
                });
                assert!(error.contains("faulty") || error.contains("unit"), "{access:?} {when:?} at {at}: {error}");
            }
        }
    }
}

#[test]
fn a_full_target_refuses_the_build() {
    let run = Run::new(1, 3);
    let error = alone(&run, |plugins| {
        let target = Arc::new(FaultyTarget::new(plugins.target.clone(), Access::Allocate, 7, When::Called));
        run.engine(Plugins { target, ..plugins }).map(drop).unwrap_err().to_string()
    });
    assert!(error.contains("wants") && error.contains("bytes"), "{error}");
}

#[derive(Debug)]
struct Panics;

impl Optimizer for Panics {
    fn state_slots(&self) -> &'static [StateSlot] {
        &[]
    }

    fn granularity(&self) -> Granularity {
        Granularity::Tensor
    }

    fn update(&self, _shard: ShardUpdate<'_>, _context: &StepContext) -> CoreResult<()> {
        panic!("the optimizer is broken")
    }
}

#[test]
fn an_optimizer_that_panics_is_told_with_the_unit() {
    for overlap in [false, true] {
        let mut run = Run::new(1, 3);
        run.settings.overlap = overlap;
        let error = alone(&run, |plugins| {
            let mut engine = run.engine(Plugins { optimizer: Arc::new(Panics), ..plugins }).unwrap();
            let step = run.train(&mut engine, 0, 0).map(drop);
            let error = step.and_then(|()| engine.flush()).unwrap_err();
            stoker_core::error::chain(&error)
        });
        assert!(error.contains("unit0") && error.contains("the optimizer is broken"), "{error}");
    }
}

#[test]
fn an_optimizer_of_whole_tensors_is_refused_for_shards() {
    let run = Run::new(2, 2);
    let errors = ranks::run(run.communicators(), |communicator| {
        let plugins = Plugins { optimizer: Arc::new(Panics), ..run.plugins(communicator) };
        run.engine(plugins).map(drop).unwrap_err().to_string()
    });
    assert!(errors[0].contains("the optimizer needs whole parameters"), "{}", errors[0]);
}

#[test]
fn a_stopped_engine_says_why() {
    let run = Run::new(1, 3);
    let error = alone(&run, |plugins| {
        let mut engine = run.engine(plugins).unwrap();
        engine.stop("the reason");
        engine.stop("another");
        run.train(&mut engine, 0, 0).unwrap_err().to_string()
    });
    assert_eq!(error, "the engine stopped earlier: the reason");
}

#[test]
fn mistakes_are_named() {
    let run = Run::new(1, 3);
    alone(&run, |plugins| {
        let mut engine = run.engine(plugins).unwrap();
        let error = engine.load(0, 0, 15, &[1.0]).unwrap_err().to_string();
        assert!(error.starts_with("the end of the values for parameter 0 of unit `unit0` is 16"), "{error}");
        let error = engine.land(0, 9, vec![].into()).unwrap_err().to_string();
        assert!(error.contains("parameter 9 of unit 0 was asked for, which does not exist"), "{error}");
        assert_eq!(engine.ledger().now(Place::Device, Role::Slab), 0);
    });
}

/// A step whose updates begin in backward cannot be skipped; until then it can.
#[test]
fn a_gradient_that_is_not_finite_ends_a_step_that_updates_in_backward() {
    for update_in_backward in [false, true] {
        for seed in [1, 2] {
            let mut run = Run::new(1, 3).with_seed(seed);
            run.settings.update_in_backward = update_in_backward;
            alone(&run, |plugins| {
                let mut engine = run.engine(plugins).unwrap();
                engine.set_training(true).unwrap();
                engine.announce_step(1e-2).unwrap();
                let mut made = || -> Result<Outcome, Error> {
                    for unit in [4, 5] {
                        engine.begin_call(unit, true)?;
                        engine.end_call(unit);
                    }
                    for (unit, value) in [(5, 1.0), (4, f32::NAN)] {
                        engine.before_backward(unit)?;
                        let count = engine.parameter(unit, 0).unwrap().range.len();
                        engine.land(unit, 0, vec![value; count].into())?;
                        engine.backward_done(unit)?;
                    }
                    engine.step(1e-2, 1).map(|report| report.outcome)
                };
                match made() {
                    Ok(outcome) => assert!(!update_in_backward && outcome == Outcome::Skipped),
                    Err(error) => {
                        assert!(update_in_backward, "{error}");
                        assert!(
                            matches!(&error, Error::CannotSkip { parameter } if parameter == "unit4.p0"),
                            "{error}"
                        );
                    }
                }
            });
        }
    }
}

/// After its update in backward a unit takes no other gradient in the step, and the step is what was announced.
#[test]
fn a_step_that_updates_in_backward_has_one_backward() {
    let mut run = Run::new(1, 3);
    run.settings.update_in_backward = true;
    alone(&run, |plugins| {
        let mut engine = run.engine(plugins.clone()).unwrap();
        engine.announce_step(1e-2).unwrap();
        run.accumulate(&mut engine, 0, 0, 0).unwrap();
        let error = run.accumulate(&mut engine, 0, 0, 0).unwrap_err();
        assert!(matches!(error, Error::UpdatedBefore { .. }), "{error}");

        let mut engine = run.engine(plugins).unwrap();
        engine.announce_step(1e-2).unwrap();
        run.accumulate(&mut engine, 0, 0, 0).unwrap();
        let error = engine.step(2e-2, 1).unwrap_err().to_string();
        assert!(error.contains("learning rate 1e-2 was announced"), "{error}");
    });
}
