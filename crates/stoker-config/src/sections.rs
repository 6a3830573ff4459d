//! The sections of the settings.

use crate::words::{
    Backend, Checkpointing, Compute, DataSource, Gradients, LearningRateSchedule, LossScale, ModelName,
    RunningStatistics, Warmup,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use stoker_core::OptionValue;

/// `[run]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Seed of initial values and of the order of the data.
    pub seed: u64,
    /// Data-parallel workers, 1 to 64.
    pub ranks: usize,
    /// How long a rank waits for another: above 0, at most 1e9.
    pub timeout_seconds: f64,
}

impl Run {
    /// How long a rank waits for another.
    pub fn timeout(&self) -> Duration {
        // The fields are public: what was put there since it was checked may be no duration.
        Duration::try_from_secs_f64(self.timeout_seconds).unwrap_or(Duration::ZERO)
    }
}

/// `[model]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Which model.
    pub name: ModelName,
    /// Widths of seednet's layers are divided by this, 1 to 1024.
    pub width_divisor: usize,
    /// Experts of moe-lenet, 1 to 1024.
    pub experts: usize,
    /// Experts that a picture goes to, 1 or 2; not more than there are.
    pub top_k: usize,
    /// Pictures that an expert takes, relative to an equal share; above 0, at most 1024.
    pub capacity_factor: f64,
    /// Weight of the loss that makes the router use all experts, at least 0.
    pub load_balance: f64,
    /// Whose running statistics (of batch norms) count.
    pub running_statistics: RunningStatistics,
}

/// `[data]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Which data set.
    pub source: DataSource,
    /// Where CIFAR-10 is; empty for the usual place.
    pub dir: PathBuf,
    /// Records to train on; 0 for all.
    pub train_records: usize,
    /// Records to validate with; 0 for all.
    pub valid_records: usize,
}

/// `[train]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Passes over the training records, at least 1.
    pub epochs: usize,
    /// Records a step over all ranks and micro-batches, a multiple of [`Run::ranks`] times `accumulation`.
    pub batch_size: usize,
    /// Micro-batches a step, at least 1.
    pub accumulation: usize,
    /// Largest L2 norm of a step's gradient; 0 for any.
    pub clip_norm: f64,
    /// Largest magnitude of an element of a step's gradient; 0 for any. Not both.
    pub clip_value: f64,
    /// Stop after so many steps; 0 for no limit.
    pub max_steps: usize,
}

/// `[learning_rate]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningRate {
    /// How it changes.
    pub schedule: LearningRateSchedule,
    /// The highest: after warm-up, at the peak of a one-cycle schedule.
    pub base: f64,
    /// At the last step of a linear or a cosine schedule; not above `base` then.
    pub end: f64,
    /// Factor of an exponential schedule at every step, of a step schedule every `step_size` steps; above 0, at most 1.
    pub gamma: f64,
    /// Steps between two changes of a step schedule; at least 1 then.
    pub step_size: usize,
    /// Part of a one-cycle schedule that rises; above 0, at most 1.
    pub pct_start: f64,
    /// A one-cycle schedule begins at `base` over this.
    pub div_factor: f64,
    /// A one-cycle schedule ends at its beginning over this.
    pub final_div_factor: f64,
    /// Steps of warm-up before the schedule.
    pub warmup_steps: usize,
    /// How it warms up.
    pub warmup: Warmup,
}

/// `[parameters]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Whether parameters of one dimension (biases, norms) decay as others do.
    pub decay_vectors: bool,
}

/// `[groups.NAME]`: parameters that are trained in a way of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Paths of its parameters, at least one; `*` stands for any text, `?` for one character.
    #[serde(rename = "match")]
    pub patterns: Vec<String>,
    /// Factor of the learning rate, at least 0.
    pub learning_rate_scale: f64,
    /// Weight decay instead of the optimizer's, at least 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Not trained at all.
    pub frozen: bool,
}

/// `[precision]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precision {
    /// What forward and backward compute in.
    pub compute: Compute,
    /// What gradients are reduced and kept in.
    pub gradients: Gradients,
    /// How the loss is scaled; see [`Precision::effective_loss_scale`].
    pub loss_scale: LossScale,
    /// The static scale; from 1e-6 to 2^32.
    pub static_scale: f64,
    /// The dynamic scale begins at 2 to this power, 0 to 32.
    pub initial_scale_power: u32,
    /// Steps without an overflow after which the scale doubles, at least 1.
    pub scale_window: u32,
    /// Overflows before the scale halves, at least 1.
    pub hysteresis: u32,
    /// Whether every good step restores the hysteresis.
    pub consecutive_hysteresis: bool,
    /// The dynamic scale does not fall below this; from 1e-6 to 2^32.
    pub minimum_scale: f64,
    /// The run ends when so many steps in a row are skipped; 0 for never.
    pub max_consecutive_skips: u32,
}

impl Precision {
    /// `loss_scale` with what "auto" stands for in its place: never [`LossScale::Auto`].
    pub fn effective_loss_scale(&self) -> LossScale {
        match self.loss_scale {
            LossScale::Auto if self.compute == Compute::F16 => LossScale::Dynamic,
            LossScale::Auto => LossScale::None,
            given => given,
        }
    }
}

/// `[device]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Burn's backend.
    pub backend: Backend,
    /// Bytes of device memory to stay within; 0 for no limit.
    pub memory_limit: u64,
}

/// `[host]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Bytes of host memory to stay within; 0 for what the machine says.
    pub memory_limit: u64,
}

/// `[zero]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zero {
    /// 0 nothing, 1 optimizer state, 2 and gradients, 3 and parameters.
    pub stage: u8,
    /// Stage 3: free weights after forward and gather them again in backward.
    pub reshard_after_forward: bool,
    /// Stage 3: units of fewer bytes stay gathered.
    pub persistence_threshold: u64,
}

/// `[schedule]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Update in the background, and prefetch.
    pub overlap: bool,
    /// Update a unit as soon as its gradient is complete, where nothing of the whole model is needed for that.
    pub update_in_backward: bool,
    /// Bytes of gathered units that may stay at stage 3.
    pub pool_bytes: u64,
    /// Bytes to fetch ahead.
    pub prefetch_bytes: u64,
    /// Bytes of the largest piece of a gradient that is reduced at once, at least 4.
    pub bucket_bytes: u64,
    /// Parameters of fewer bytes are copied out of the pool.
    pub copy_below: u64,
    /// Burn's gradient checkpointing.
    pub checkpointing: Checkpointing,
}

/// How shards are updated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimizerChoice {
    /// The optimizer.
    #[serde(flatten)]
    pub choice: PluginChoice,
    /// Threads of each rank that compute an update; 0 shares out the processors among the ranks.
    pub threads: usize,
}

/// A plugin, and what it is built with: what `stoker_core::registry` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginChoice {
    /// Its name.
    pub name: String,
    /// All its options, with its own defaults where nobody set one.
    #[serde(default)]
    pub options: BTreeMap<String, OptionValue>,
}
