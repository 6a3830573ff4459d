//! A training run whose gradients depend on the parameters that the engine hands out, so that a stale, mixed-up or
//! unfinished slab changes everything after it.

use crate::device::{SimulatedDevice, SimulatedSlab, numbers};
use std::sync::Arc;
use std::time::Duration;
use stoker_core::registry::{self, Given, Group, TargetContext};
use stoker_core::{Communicator, OffloadTarget, OptionValue, ParameterSpec, Place};
use stoker_engine::{DeviceRoom, Engine, Error, Outcome, Plugins, Settings, Stage, UnitSpec};
use stoker_testkit::faults::Delayed;
use stoker_testkit::ranks;
use stoker_testkit::staged::StagedTarget;

pub(crate) const STEPS: usize = 5;

/// Parameter sizes by unit: odd, empty and single ones; the last unit is called twice, the second in some steps only, the
/// last parameter of the first unit gets no gradient, and the fourth unit is frozen.
const UNITS: [&[usize]; 6] = [&[15, 3, 2], &[7], &[0, 1], &[2, 5], &[16, 6], &[9]];

/// Which of them is frozen.
const FROZEN: usize = 3;

#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) world: usize,
    pub(crate) settings: Settings,
    /// Shards that the host cannot address.
    pub(crate) staged: bool,
    /// A device that lends its memory.
    pub(crate) lends: bool,
    pub(crate) seed: u64,
    pub(crate) delays: bool,
    pub(crate) memory: DeviceRoom,
}

impl Run {
    pub(crate) fn new(world: usize, stage: u8) -> Self {
        let stage = Stage::from_number(stage).unwrap();
        let settings = Settings { stage, timeout: Duration::from_secs(60), ..Settings::default() };
        Self { world, settings, staged: false, lends: false, seed: 1, delays: false, memory: DeviceRoom::Unknown }
    }

    pub(crate) fn communicators(&self) -> Vec<Arc<dyn Communicator>> {
        let group = Group { world: self.world, timeout: self.settings.timeout };
        let ends = registry::communicators("threads", &Given::new(), &group).unwrap();
        let delay = |end| -> Arc<dyn Communicator> { Arc::new(Delayed::new(end, self.seed)) };
        if self.delays { ends.into_iter().map(delay).collect() } else { ends }
    }

    pub(crate) fn plugins(&self, communicator: Arc<dyn Communicator>) -> Plugins {
        let context = TargetContext { rank: communicator.rank(), device: None, host_memory_is_given: false };
        let target: Arc<dyn OffloadTarget> = if self.staged {
            Arc::new(StagedTarget::new(Place::Disk, None))
        } else {
            registry::offload_target("cpu-offload", &Given::new(), &context).unwrap()
        };
        let alignment = Given::from([("alignment".to_owned(), OptionValue::Integer(4))]);
        Plugins {
            partitioner: registry::partitioner("flat", &alignment).unwrap(),
            target,
            optimizer: registry::optimizer("adamw", &Given::new()).unwrap(),
            communicator,
        }
    }

    pub(crate) fn device(&self, rank: usize) -> SimulatedDevice {
        // No rank's clock is another's.
        let seed = self.seed + 7919 * rank as u64;
        let (lends, sums, memory) = (self.lends, self.seed.is_multiple_of(2), self.memory);
        SimulatedDevice { seed, lends, sums, memory }
    }

    pub(crate) fn engine(&self, plugins: Plugins) -> Result<Engine<SimulatedDevice>, Error> {
        let device = self.device(plugins.communicator.rank());
        let mut engine = Engine::new(self.settings.clone(), device, plugins, specs())?;
        for (unit, sizes) in UNITS.iter().enumerate() {
            for (parameter, &size) in sizes.iter().enumerate() {
                let values: Vec<f32> =
                    (0..size).map(|i| ((i * 37 + unit * 11 + parameter) % 17) as f32 / 8.5 - 1.0).collect();
                // In two parts.
                let half = size / 2;
                engine.load(unit, parameter, half, &values[half..])?;
                engine.load(unit, parameter, 0, &values[..half])?;
            }
        }
        Ok(engine)
    }

    /// All parameters after training, as rank 0 sees them; the same on every rank.
    pub(crate) fn parameters(&self) -> Vec<Vec<f32>> {
        let results = ranks::run(self.communicators(), |communicator| {
            let mut engine = self.engine(self.plugins(communicator.clone())).unwrap();
            for step in 0..STEPS {
                let report = train(&mut engine, step, communicator.rank(), self.world).unwrap();
                assert_eq!((report.outcome, report.updates), (Outcome::Updated, step as u64 + 1));
                assert!(report.gradient_norm > 0.0);
                // Between steps, the same gathers as an evaluation makes: they must change nothing.
                if step == 2 {
                    evaluate(&mut engine);
                }
            }
            engine.flush().unwrap();
            read(&mut engine)
        });
        for other in &results[1..] {
            assert_eq!(*other, results[0], "ranks hold different parameters");
        }
        results.into_iter().next().unwrap()
    }
}

pub(crate) fn specs() -> Vec<UnitSpec> {
    let parameter = |unit: usize, (parameter, &size): (usize, &usize)| ParameterSpec {
        path: format!("unit{unit}.p{parameter}"),
        shape: vec![size],
    };
    let unit = |(unit, sizes): (usize, &&[usize])| UnitSpec {
        trainable: unit != FROZEN,
        ..UnitSpec::new(format!("unit{unit}"), sizes.iter().enumerate().map(|p| parameter(unit, p)).collect())
    };
    UNITS.iter().enumerate().map(unit).collect()
}

/// The order of unit calls of a step.
fn calls(step: usize) -> Vec<usize> {
    if step.is_multiple_of(2) { vec![0, 1, 2, 3, 4, 5, 5] } else { vec![0, 2, 3, 4, 5, 5] }
}

/// What the computation sees of a slab: all numbers, none stale or in flight.
fn look(slab: &SimulatedSlab) -> Vec<f32> {
    let values = numbers(&slab.memory.lock().unwrap());
    assert!(values.iter().all(|value| value.is_finite()), "a slab was used before it was filled: {values:?}");
    values
}

pub(crate) fn train(
    engine: &mut Engine<SimulatedDevice>,
    step: usize,
    rank: usize,
    world: usize,
) -> Result<stoker_engine::StepReport, Error> {
    engine.announce_step(1e-2)?;
    accumulate(engine, step, rank, world)?;
    engine.step(1e-2, 1)
}

/// One micro-batch.
pub(crate) fn accumulate(
    engine: &mut Engine<SimulatedDevice>,
    step: usize,
    rank: usize,
    world: usize,
) -> Result<(), Error> {
    engine.set_training(true)?;
    for unit in calls(step) {
        engine.begin_call(unit, true)?;
        look(engine.slab(unit)?);
        engine.end_call(unit);
    }
    for unit in calls(step).into_iter().rev() {
        engine.before_backward(unit)?;
        let values = look(engine.slab(unit)?);
        for parameter in 0..UNITS[unit].len() {
            let range = engine.parameter(unit, parameter).unwrap().range.clone();
            if (unit, parameter) == (0, 2) {
                continue;
            }
            // Ranks share the gradient of the same global batch out: their mean does not depend on their number.
            let shift =
                (step as f32 + 1.0) * if world == 1 { 0.0 } else { rank as f32 - (world as f32 - 1.0) / 2.0 } / 8.0;
            let gradient = values[range].iter().map(|value| value * 0.5 + 0.25 + shift).collect();
            engine.land(unit, parameter, gradient)?;
        }
        engine.backward_done(unit)?;
    }
    Ok(())
}

fn evaluate(engine: &mut Engine<SimulatedDevice>) {
    engine.set_training(false).unwrap();
    for unit in [5, 0, 1, 3, 2, 4] {
        engine.begin_call(unit, false).unwrap();
        look(engine.slab(unit).unwrap());
        engine.end_call(unit);
    }
}

pub(crate) fn read(engine: &mut Engine<SimulatedDevice>) -> Vec<Vec<f32>> {
    let all =
        UNITS.iter().enumerate().flat_map(|(unit, sizes)| (0..sizes.len()).map(move |parameter| (unit, parameter)));
    all.map(|(unit, parameter)| engine.read_parameter(unit, parameter).unwrap().as_slice::<f32>().to_vec()).collect()
}
