//! What the tests of the whole share: ranks as threads over plugins chosen by name, plain reference training, and the
//! measure of equality.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code reports by panicking")]

pub mod memory;
pub mod models;
pub mod odd;
pub mod pictures;
pub mod plain;

use burn::tensor::Device;
use std::sync::Arc;
use std::time::Duration;
use stoker_burn::{Backend, DeviceSettings, ParameterRules, Rank, RunningStatistics};
use stoker_core::registry::{self, Given, Group, TargetContext};
use stoker_core::{Communicator, OptionValue};
use stoker_engine::{Plugins, Settings, Stage};
use stoker_testkit::faults::{Delayed, LateTarget};

use stoker_cpu_offload as _;
use stoker_gpu_only as _;
use stoker_optimizers as _;
use stoker_partitioners as _;
use stoker_threads as _;

/// The backend under test: LibTorch if this package was built with its feature and `STOKER_TEST_BACKEND` says so.
pub fn backend() -> Backend {
    match std::env::var("STOKER_TEST_BACKEND").as_deref() {
        Ok("libtorch") => Backend::LibTorch,
        Ok("libtorch-cuda") => Backend::LibTorchCuda,
        _ => Backend::Flex,
    }
}

/// The device under test, without autodiff.
pub fn device() -> Device {
    Setup::new(1, 0).run(|rank| rank.device()).remove(0).without_autodiff()
}

/// How a group of ranks is composed.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Number of ranks.
    pub world: usize,
    /// Name of the offload target.
    pub target: &'static str,
    /// Whether the target is told of the device's own memory, and may keep shards there: on a GPU in any case.
    pub device_memory: bool,
    /// Name of the optimizer.
    pub optimizer: &'static str,
    /// Its options, beside AdamW's eps and weight decay.
    pub options: Given,
    /// AdamW's eps.
    pub eps: f64,
    /// AdamW's weight decay.
    pub weight_decay: f64,
    /// What is said of parameters by their names.
    pub rules: ParameterRules,
    /// Whose running statistics count.
    pub running_statistics: RunningStatistics,
    /// Delays one call in a hundred of the communicator and of the offload target, at random from this seed.
    pub delays: Option<u64>,
    /// Elements to which the flat layout is aligned.
    pub alignment: i64,
    /// How long ranks wait for each other.
    pub timeout: Duration,
    /// The engine's settings.
    pub settings: Settings,
    /// The device.
    pub device: DeviceSettings,
    /// Seed of the initial weights.
    pub seed: u64,
}

impl Setup {
    /// `world` ranks at `stage`.
    pub fn new(world: usize, stage: u8) -> Self {
        Self {
            world,
            target: "cpu-offload",
            device_memory: backend() == Backend::LibTorchCuda,
            optimizer: "adamw",
            options: Given::new(),
            eps: 1e-8,
            weight_decay: 0.01,
            delays: None,
            rules: ParameterRules::default(),
            running_statistics: RunningStatistics::default(),
            alignment: 128,
            timeout: Duration::from_secs(60),
            settings: Settings { stage: Stage::from_number(stage).unwrap(), ..Settings::default() },
            device: DeviceSettings { backend: backend(), ..DeviceSettings::default() },
            seed: 7,
        }
    }

    /// One communicator a rank.
    pub fn communicators(&self) -> Vec<Arc<dyn Communicator>> {
        let group = Group { world: self.world, timeout: self.timeout };
        let ends = registry::communicators("threads", &Given::new(), &group).unwrap();
        match self.delays {
            Some(seed) => ends.into_iter().map(|end| Arc::new(Delayed::new(end, seed).one_in(100)) as _).collect(),
            None => ends,
        }
    }

    /// A rank over this communicator.
    pub fn rank(&self, communicator: Arc<dyn Communicator>) -> Rank {
        let option = |name: &str, value: OptionValue| Given::from([(name.to_owned(), value)]);
        let mut options = self.options.clone();
        if self.optimizer == "adamw" {
            options.insert("eps".to_owned(), OptionValue::Float(self.eps));
            options.insert("weight_decay".to_owned(), OptionValue::Float(self.weight_decay));
        }
        let rank = communicator.rank();
        let device = if self.device_memory { self.device.memory(rank).unwrap() } else { None };
        let context = TargetContext { rank, device, host_memory_is_given: false };
        let mut target = registry::offload_target(self.target, &Given::new(), &context).unwrap();
        if let Some(seed) = self.delays {
            // Half of the seeds have everything read and written, which the memory of these targets does not need.
            let late = LateTarget::new(target, seed).one_in(100);
            target = Arc::new(if seed.is_multiple_of(2) { late.hiding_host() } else { late });
        }
        let plugins = Plugins {
            partitioner: registry::partitioner("flat", &option("alignment", OptionValue::Integer(self.alignment)))
                .unwrap(),
            target,
            optimizer: registry::optimizer(self.optimizer, &options).unwrap(),
            communicator,
        };
        let settings = Settings { timeout: self.timeout, ..self.settings.clone() };
        let rank = Rank::new(settings, self.device, plugins, self.seed).unwrap();
        rank.with_parameter_rules(self.rules.clone()).with_running_statistics(self.running_statistics)
    }

    /// Runs `body` on every rank, each on a thread of its own; results in the order of the ranks.
    pub fn run<T: Send>(&self, body: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
        run_ranks(self.communicators(), |communicator| body(&self.rank(communicator)))
    }
}

/// Runs `body` for every communicator on a named thread.
pub fn run_ranks<T: Send>(
    communicators: Vec<Arc<dyn Communicator>>,
    body: impl Fn(Arc<dyn Communicator>) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = communicators
            .into_iter()
            .map(|communicator| {
                let name = format!("rank-{}", communicator.rank());
                std::thread::Builder::new().name(name).spawn_scoped(scope, move || body(communicator)).unwrap()
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// ||a - b|| / ||b||.
pub fn relative_distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let difference = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    let size = norm(&mut b.iter().map(|b| f64::from(*b)));
    if size == 0.0 { difference } else { difference / size }
}

/// The one in the middle; the upper one of two.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
