//! The engine on a simulated device: no Burn, no GPU, and all that a GPU does beside the host as late or as early as it
//! may be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code reports by panicking")]

mod admission;
mod computation;
mod delays;
mod device;
mod equivalence;
mod failures;
mod graph;
mod memory;
mod meters;
mod model;
mod streams;
mod training;

use stoker_cpu_offload as _;
use stoker_gpu_only as _;
use stoker_optimizers as _;
use stoker_partitioners as _;
use stoker_threads as _;
