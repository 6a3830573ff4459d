//! The engine on a simulated device: no Burn, no GPU, and every copy as late as it may be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code reports by panicking")]

mod admission;
mod device;
mod equivalence;
mod failures;
mod meters;
mod training;

use stoker_cpu_offload as _;
use stoker_gpu_only as _;
use stoker_optimizers as _;
use stoker_partitioners as _;
use stoker_threads as _;
