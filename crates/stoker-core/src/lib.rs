//! The contract between stoker's engine and everything that plugs into it.
//!
//! Four traits, each small enough to be implemented in an afternoon and each held to a conformance suite in
//! `stoker-testkit`:
//!
//! | trait | decides |
//! |---|---|
//! | [`Partitioner`] | which rank keeps which part of a unit's parameters |
//! | [`OffloadTarget`] | where a shard's bytes live, and how they are read and written |
//! | [`Communicator`] | how ranks exchange bytes |
//! | [`Optimizer`] | how one shard is updated |
//!
//! A plugin is a crate that implements one of them and submits a [`registry::Plugin`] with [`inventory`]; it is chosen
//! by name in the configuration. This crate knows no Burn, does no I/O and holds no `unsafe`.
#![forbid(unsafe_code)]

pub mod buffer;
pub mod communicator;
pub mod error;
pub mod layout;
pub mod meter;
pub mod offload;
pub mod optimizer;
pub mod options;
pub mod partitioner;
pub mod registry;
pub mod ticket;
pub mod values;

pub use buffer::{DType, HostBuffer, HostMemory};
pub use communicator::Communicator;
pub use error::{Error, Result};
pub use layout::{ParameterSpec, PlacedParameter, Plan};
pub use meter::{Meter, Reading};
pub use offload::{Bound, DeviceMemory, OffloadTarget, Place, Region, RegionSpec, Role, TargetTraits};
pub use optimizer::{DeviceRule, Granularity, Optimizer, Segment, ShardUpdate, StateSlot, StepContext};
pub use options::{OptionKind, OptionSpec, OptionValue, Options};
pub use partitioner::Partitioner;
pub use ticket::{Completion, Ticket};
pub use values::{Values, ValuesMut};

pub use half;
pub use inventory;
