//! What the engine is told.

use std::time::Duration;

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

/// Settings of an engine. Bytes and times are a rank's own.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How much is sharded.
    pub stage: Stage,
    /// Whether updates run on a thread of their own and units are fetched ahead. Off, everything happens in the plain
    /// order; the results are the same bit for bit.
    pub overlap: bool,
    /// Bytes of slabs at stage 3; at least the largest unit.
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
    /// Bytes of host memory that the engine may use.
    pub host_memory_limit: Option<u64>,
    /// How long the update thread may be waited for.
    pub timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            stage: Stage::Three,
            overlap: true,
            pool_bytes: 256 << 20,
            prefetch_bytes: 64 << 20,
            bucket_bytes: 64 << 20,
            persistence_threshold: 0,
            reshard_after_forward: true,
            device_memory_limit: None,
            host_memory_limit: None,
            timeout: Duration::from_secs(60),
        }
    }
}
