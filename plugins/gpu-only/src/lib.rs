//! `gpu-only`: shards stay in the memory of the device that computes.
#![forbid(unsafe_code)]

mod target;

pub use target::{HostDevice, OwnDevice};
