//! Plugins that fail or dawdle where a test wants it, around real ones.

mod communicator;
mod gate;
mod late;
mod late_target;
mod target;

pub use communicator::{Collective, Delayed, Fault, FaultyCommunicator};
pub use gate::{Gate, Opener, gate};
pub use late_target::LateTarget;
pub use target::{Access, FaultyTarget, When};

use late::Delays;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts calls, and says once that the wanted one has come.
#[derive(Debug)]
struct Countdown {
    calls: AtomicU64,
    at: u64,
}

impl Countdown {
    /// `at` counts from 0.
    fn new(at: u64) -> Self {
        Self { calls: AtomicU64::new(0), at }
    }

    fn is_now(&self) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) == self.at
    }
}
