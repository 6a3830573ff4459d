//! ZeRO (Rajbhandari et al., 2020; ZeRO-Offload and ZeRO-Infinity, 2021) as a state machine over flat buffers.
//!
//! The engine knows no tensors. A model is a list of **units**, each one flat vector of parameters
//! ([Note: Flat vector](stoker_core::Plan)); a [`Bridge`] moves bytes between host memory and the device that computes.
//! The life of a step, by file:
//!
//! | file | moment |
//! |---|---|
//! | `engine` | construction: plans, admission, regions |
//! | `order` | which unit is wanted next, from the last step |
//! | `residency` | which units are gathered; whose slab goes when room is needed |
//! | `gather` | a unit's slab is filled: update awaited, all-gather, copy in; prefetch |
//! | `gradients` | gradients land in the unit's bucket; reduce-scatter to the shard |
//! | `agree` | which gradients arrived on any rank, their norm, and whether they are finite |
//! | `step` | reduce what is left, decide (one number), update |
//! | `on_device` | shards that the device keeps and updates itself |
//! | `early` | updates that begin in backward |
//! | `loss_scale` | how gradients are kept in the range of f16 |
//! | `update` | a unit's update, in place, inline or on the update thread |
//! | `cast` | buffers from one type to another |
//! | `ledger`, `admission`, `memory_plan` | every byte, by place, role and unit; what is refused before it is allocated |
//!
//! [Note: Stages] The stages differ in three answers only:
//!
//! | | optimizer state and gradients of a rank | full gradient is reduced | gathered parameters |
//! |---|---|---|---|
//! | 0 | whole | in `step`, all-reduce | kept |
//! | 1 | its shard | in `step`, reduce-scatter | kept, gathered anew after an update |
//! | 2 | its shard | when the unit's backward is done | kept, gathered anew after an update |
//! | 3 | its shard | when the unit's backward is done | a cache that gives way |
#![forbid(unsafe_code)]

mod admission;
mod agree;
mod bridge;
mod cast;
mod early;
mod engine;
mod error;
mod gather;
mod gradients;
mod ledger;
mod loss_scale;
mod memory_plan;
mod on_device;
mod order;
mod residency;
mod settings;
mod step;
mod unit;
mod update;
mod workers;

pub use agree::NotFinite;
pub use bridge::{Adopted, Bridge, Copies, DeviceRoom, Landing};
pub use engine::{Busy, Engine, Moved, Plugins};
pub use error::{Error, Result};
pub use ledger::{Allotment, Ledger, Peak};
pub use memory_plan::{Limit, LimitKind, MemoryPlan, PlacePlan};
pub use on_device::{OnDevice, ShardOnDevice};
pub use settings::{Clipping, DynamicLossScale, LossScale, Settings, Stage};
pub use step::{Outcome, StepReport};
pub use unit::{ParameterId, ParameterRule, UnitId, UnitSpec};
