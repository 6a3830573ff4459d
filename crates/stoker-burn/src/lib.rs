//! ZeRO for Burn modules.
//!
//! [Note: A parameter is a node that can be made again] Burn's autodiff knows how not to keep a tensor and to make it
//! again in backward: an operation marked memory-bound carries a `RetroForward`, and whoever uses its output records
//! the node, not the tensor. A sharded parameter is the output of such an operation, **gather**: in forward it is a view
//! of the unit's slab; in backward it is made again on demand; and its own backward hands the full gradient to the
//! engine at once, so no gradient waits in Burn's container. Every module of `burn::nn` works unmodified.
//!
//! | file | idea |
//! |---|---|
//! | `unit` | [`Unit`]: the part of a model that is gathered and released together |
//! | `call` | one call of a unit: mark, lazy parameters, token; or its skipping |
//! | `current` | the rank that a call belongs to |
//! | `parameters` | what is said of parameters by their names |
//! | `buffers`, `statistics` | running statistics: told from parameters, shared by ranks |
//! | `depth` | in which order backward runs, and how marks make it so |
//! | `flow` | what may go in and out of a call |
//! | `ops` | mark, gather, token and join as Burn autodiff operations |
//! | `boundary` | how a walk over a module notices units |
//! | `survey`, `adopt` | a model is measured, then sharded parameter by parameter |
//! | `start` | the engine of a surveyed model: planned, or made |
//! | `init` | initial weights that depend on seed and path only |
//! | `shared` | one rank's engine, as operations and units see it |
//! | `collective` | a sum over ranks as a Burn autodiff operation |
//! | `nn` | modules that take the place of Burn's where these would keep a gathered parameter, see one rank only, or be slow |
//! | `bridge` | one file per backend |
//! | `rank` | [`Rank`]: build, step, evaluate |
//! | `weights` | safetensors files in and out |
//! | `raise` | how an error leaves a tensor operation |
#![deny(unsafe_code)]
#![cfg_attr(
    feature = "libtorch",
    allow(deprecated, reason = "burn-tch is deprecated upstream; 0.22 is its last release, which we pin")
)]

mod adopt;
mod boundary;
mod bridge;
mod buffers;
mod call;
mod collective;
mod current;
mod depth;
mod device;
mod error;
mod flow;
pub mod init;
pub mod nn;
mod ops;
mod parameters;
mod raise;
mod rank;
mod shared;
mod start;
mod statistics;
mod survey;
mod unit;
mod weights;

pub use device::{Backend, Checkpointing, DeviceSettings};
pub use error::{Error, Result};
pub use flow::{FloatMap, Flow};
pub use parameters::{ParameterGroup, ParameterRules, RunningStatistics};
pub use rank::{Rank, Step};
pub use unit::Unit;
