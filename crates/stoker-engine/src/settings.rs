//! What the engine is told.

use std::time::Duration;
use stoker_core::DType;

/// How much is sharded: see [Note: Stages](crate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing.
    Zero,
    /// Optimizer state.
    One,
    /// Optimizer state and gradients.
    Two,
    /// Optimizer state, gradients and parameters.
    Three,
}

impl Stage {
    /// The stage of this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Zero),
            1 => Some(Self::One),
            2 => Some(Self::Two),
            3 => Some(Self::Three),
            _ => None,
        }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// How gradients that overflow the range of f16 are kept in it: the loss is multiplied before backward, and the gradient
/// divided again before the update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossScale {
    /// Not at all.
    None,
    /// By the same number in every step.
    Static(f64),
    /// By a number that is halved when a gradient overflows and doubled when none has for a while.
    Dynamic(DynamicLossScale),
}

/// See [`LossScale::Dynamic`]; the meaning of each is DeepSpeed's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DynamicLossScale {
    /// The scale begins at 2 to this power.
    pub initial_power: u32,
    /// Steps without an overflow after which the scale is doubled; at least 1.
    pub window: u32,
    /// Overflows that are borne before the scale is halved; 1 halves at once.
    pub hysteresis: u32,
    /// Whether every good step makes the scale bear `hysteresis` overflows again, not only a doubling.
    pub consecutive_hysteresis: bool,
    /// The scale does not go below this.
    pub minimum: f64,
}

impl Default for DynamicLossScale {
    fn default() -> Self {
        Self { initial_power: 16, window: 1000, hysteresis: 2, consecutive_hysteresis: false, minimum: 1.0 }
    }
}

/// How large a gradient may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clipping {
    /// Any.
    None,
    /// The mean gradient of the whole model is scaled down to this global L2 norm if it is longer (Pascanu et al., 2013).
    Norm(f64),
    /// Every element of the mean gradient is cut to this magnitude.
    Value(f64),
}

/// Settings of an engine. Bytes and times are a rank's own.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How much is sharded.
    pub stage: Stage,
    /// Whether updates run on a thread of their own and units are fetched ahead. Off, everything happens in the plain
    /// order; the results are the same bit for bit.
    pub overlap: bool,
    /// Whether a unit is updated as soon as its gradient is complete, where nothing of the whole model is needed for that: see
    /// [Note: Updates in backward](crate::Engine::announce_step). A step that has a gradient that is not finite is an
    /// error then.
    pub update_in_backward: bool,
    /// Bytes of slabs that may stay at stage 3. A call that needs more has it until its end, or until that of its backward.
    pub pool_bytes: u64,
    /// Bytes of units that may be on their way ahead of their use.
    pub prefetch_bytes: u64,
    /// Bytes of the largest piece of a unit's gradient that is reduced at once.
    pub bucket_bytes: u64,
    /// Units of fewer bytes stay gathered at stage 3.
    pub persistence_threshold: u64,
    /// Whether a unit may be released between its forward and its backward.
    pub reshard_after_forward: bool,
    /// Bytes of device memory that the engine may use.
    pub device_memory_limit: Option<u64>,
    /// Bytes of host memory that the engine may use, whatever the machine says that it has.
    pub host_memory_limit: Option<u64>,
    /// Type in which gradients are reduced and kept until the update; `None` for the one that their unit computes in.
    pub gradients: Option<DType>,
    /// How gradients are kept in the range of their type.
    pub loss_scale: LossScale,
    /// Steps in a row that may be skipped before the run ends; 0 for any number.
    pub max_consecutive_skips: u32,
    /// How large a gradient may be.
    pub clipping: Clipping,
    /// Threads that compute an update, each unit's together; 0 and 1 are the thread that asks for it.
    pub update_threads: usize,
    /// How long the update thread may be waited for.
    pub timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            stage: Stage::Three,
            overlap: true,
            update_in_backward: false,
            pool_bytes: 256 << 20,
            prefetch_bytes: 64 << 20,
            bucket_bytes: 64 << 20,
            persistence_threshold: 0,
            reshard_after_forward: true,
            device_memory_limit: None,
            host_memory_limit: None,
            gradients: Some(DType::F32),
            loss_scale: LossScale::None,
            max_consecutive_skips: 0,
            clipping: Clipping::None,
            update_threads: 1,
            timeout: Duration::from_secs(60),
        }
    }
}
