//! One unit: what it is, and the state of its shard.

use crate::ledger::Allotment;
use stoker_core::{ParameterSpec, Plan, Region, Ticket};

/// Number of a unit, in the order of the model.
pub type UnitId = usize;

/// Number of a parameter in its unit.
pub type ParameterId = usize;

/// A unit before it is planned.
#[derive(Debug, Clone)]
pub struct UnitSpec {
    /// Path in the model.
    pub name: String,
    /// Its parameters, in the order of the model.
    pub parameters: Vec<ParameterSpec>,
}

/// The regions of a rank's shard of one unit.
#[derive(Debug)]
pub(crate) struct ShardRegions {
    pub(crate) parameters: Box<dyn Region>,
    pub(crate) gradient: Box<dyn Region>,
    pub(crate) state: Vec<Box<dyn Region>>,
    /// Keeps their bytes in the books.
    pub(crate) _allotments: Vec<Allotment>,
}

/// Where the regions are.
#[derive(Debug)]
pub(crate) enum Shard {
    /// With the engine.
    Here(ShardRegions),
    /// With the update, which hands them back.
    Updating(Ticket<ShardRegions>),
    /// Lost with a failed update or collective.
    Lost,
}

/// What is known of a unit's gradient in this step.
#[derive(Debug, Default)]
pub(crate) struct GradientState {
    /// Tracked calls whose backward is not done.
    pub(crate) calls_open: usize,
    /// Parameters whose gradient came since the last step.
    pub(crate) arrived: Vec<bool>,
    /// Parameters whose gradient is in the current bucket.
    pub(crate) in_bucket: Vec<bool>,
    /// Whether the gradient region holds something of this step.
    pub(crate) region_filled: bool,
}

impl GradientState {
    pub(crate) fn new(parameters: usize) -> Self {
        Self { arrived: vec![false; parameters], in_bucket: vec![false; parameters], ..Self::default() }
    }

    pub(crate) fn bucket_is_empty(&self) -> bool {
        !self.in_bucket.contains(&true)
    }

    pub(crate) fn next_step(&mut self) {
        *self = Self::new(self.arrived.len());
    }
}

#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) plan: Plan,
    pub(crate) trainable: Vec<bool>,
    pub(crate) shard: Shard,
    pub(crate) gradient: GradientState,
    /// Number of updates submitted: a slab of another version is stale.
    pub(crate) version: u64,
}

impl Unit {
    pub(crate) fn name(&self) -> &str {
        &self.plan.unit
    }

    /// Bytes of the gathered unit.
    pub(crate) fn slab_bytes(&self) -> u64 {
        self.plan.elements as u64 * 4
    }
}
