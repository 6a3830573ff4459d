//! A training run whose gradients depend on the parameters that the engine hands out.

use crate::device::{Flaw, SimulatedDevice};
use crate::graph::Graph;
use crate::memory::Tensor;
use crate::model::Model;
use crate::streams::Paces;
use std::sync::Arc;
use std::time::Duration;
use stoker_core::registry::{self, Given, Group, TargetContext};
use stoker_core::{Communicator, OffloadTarget, OptionValue, Place};
use stoker_engine::{DeviceRoom, Engine, Error, Outcome, Plugins, Settings, Stage, StepReport};
use stoker_testkit::faults::Delayed;
use stoker_testkit::ranks;
use stoker_testkit::staged::StagedTarget;
use stoker_testkit::values;

pub(crate) const STEPS: usize = 5;

#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) world: usize,
    pub(crate) model: Model,
    pub(crate) settings: Settings,
    pub(crate) micro_batches: usize,
    /// Shards that the host cannot address.
    pub(crate) staged: bool,
    /// A device that lends its memory.
    pub(crate) lends: bool,
    /// A device that sums squares itself.
    pub(crate) sums: bool,
    /// Decides what is late, and by how much.
    pub(crate) seed: u64,
    /// How fast the device's streams are; by the seed if not told.
    pub(crate) paces: Option<Paces>,
    /// Whether ranks are late.
    pub(crate) delays: bool,
    pub(crate) memory: DeviceRoom,
    pub(crate) flaw: Option<Flaw>,
}

/// All that can be seen of a run.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) parameters: Vec<Vec<f32>>,
    /// What every forward gave, those of evaluations among them.
    outputs: Vec<Vec<f32>>,
    /// Of every step: what it did, the loss scale and the gradient norm's bits.
    steps: Vec<(Outcome, f64, u64)>,
}

impl Run {
    pub(crate) fn new(world: usize, stage: u8) -> Self {
        let stage = Stage::from_number(stage).unwrap();
        let settings = Settings { stage, timeout: Duration::from_secs(60), ..Settings::default() };
        Self {
            world,
            model: Model::of_many_kinds(),
            settings,
            micro_batches: 1,
            staged: false,
            lends: false,
            sums: false,
            seed: 1,
            paces: None,
            delays: false,
            memory: DeviceRoom::Unknown,
            flaw: None,
        }
    }

    /// A seed, and what follows from it.
    pub(crate) fn with_seed(self, seed: u64) -> Self {
        Self { seed, sums: seed.is_multiple_of(2), ..self }
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
        let mut seed = self.seed + 7919 * rank as u64;
        let paces = self.paces.unwrap_or_else(|| [(); 3].map(|()| values::next(&mut seed) % 5));
        SimulatedDevice::new(paces, seed, self.lends, self.sums).with_memory(self.memory).with_flaw(self.flaw)
    }

    pub(crate) fn engine(&self, plugins: Plugins) -> Result<Engine<SimulatedDevice>, Error> {
        let device = self.device(plugins.communicator.rank());
        let mut engine = Engine::new(self.settings.clone(), device, plugins, self.model.specs())?;
        self.model.load(&mut engine)?;
        Ok(engine)
    }

    /// All parameters after training, as rank 0 sees them; the same on every rank.
    pub(crate) fn parameters(&self) -> Vec<Vec<f32>> {
        let seen = self.train_all();
        for (number, (outcome, _, norm)) in seen.steps.iter().enumerate() {
            assert_eq!(*outcome, Outcome::Updated, "step {number}");
            assert!(f64::from_bits(*norm) > 0.0);
        }
        seen.parameters
    }

    /// What rank 0 sees of a whole training; all ranks see the same parameters.
    pub(crate) fn train_all(&self) -> Seen {
        let results = ranks::run(self.communicators(), |communicator| {
            let rank = communicator.rank();
            let mut engine = self.engine(self.plugins(communicator)).unwrap();
            let (mut outputs, mut steps) = (Vec::new(), Vec::new());
            for step in 0..STEPS {
                let report = self.train_seeing(&mut engine, step, rank, &mut outputs).unwrap();
                assert_eq!(report.updates + engine.skipped(), step as u64 + 1);
                steps.push((report.outcome, report.loss_scale, report.gradient_norm.to_bits()));
                // Between steps, the same gathers as an evaluation makes: they must change nothing.
                if step == 2 {
                    let backwards: Vec<_> = self.model.calls(0).iter().rev().copied().collect();
                    engine.set_training(false).unwrap();
                    let evaluated = Graph::forward(&self.model, &mut engine, &backwards, 0, false).unwrap();
                    outputs.push(evaluated.output());
                }
            }
            engine.flush().unwrap();
            let parameters = self.model.read(&mut engine);
            // Only now the host waits for what it did not need.
            Seen { parameters, outputs: outputs.iter().map(|output| output.numbers()).collect(), steps }
        });
        for other in &results[1..] {
            assert_eq!(other.parameters, results[0].parameters, "ranks hold different parameters");
        }
        results.into_iter().next().unwrap()
    }

    /// A step.
    pub(crate) fn train(
        &self,
        engine: &mut Engine<SimulatedDevice>,
        step: usize,
        rank: usize,
    ) -> Result<StepReport, Error> {
        self.train_seeing(engine, step, rank, &mut Vec::new())
    }

    fn train_seeing(
        &self,
        engine: &mut Engine<SimulatedDevice>,
        step: usize,
        rank: usize,
        outputs: &mut Vec<Arc<Tensor>>,
    ) -> Result<StepReport, Error> {
        if self.micro_batches == 1 {
            engine.announce_step(1e-2)?;
        }
        for micro_batch in 0..self.micro_batches {
            outputs.push(self.accumulate(engine, step, micro_batch, rank)?);
        }
        engine.step(1e-2, u32::try_from(self.micro_batches).unwrap())
    }

    /// One micro-batch; gives what its forward gave.
    pub(crate) fn accumulate(
        &self,
        engine: &mut Engine<SimulatedDevice>,
        step: usize,
        micro_batch: usize,
        rank: usize,
    ) -> Result<Arc<Tensor>, Error> {
        engine.set_training(true)?;
        let start = step * 3 + micro_batch;
        let graph = Graph::forward(&self.model, engine, self.model.calls(step), start, true)?;
        let output = graph.output();
        // Ranks share the gradient of the same global batch out: their mean does not depend on their number.
        let of_rank = if self.world == 1 { 0.0 } else { rank as f32 - (self.world as f32 - 1.0) / 2.0 };
        graph.backward(engine, (step as f32 + 1.0) * of_rank / 8.0)?;
        Ok(output)
    }
}
