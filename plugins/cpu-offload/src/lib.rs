//! `cpu-offload`: shards in host memory (ZeRO-Offload).
#![forbid(unsafe_code)]

pub mod machine;
mod target;

pub use target::CpuOffload;
