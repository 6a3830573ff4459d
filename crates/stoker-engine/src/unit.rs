//! One unit: what it is, and the state of its shard.

use crate::ledger::Allotment;
use crate::residency::Copying;
use std::ops::Range;
use stoker_core::{DType, ParameterSpec, Plan, Region, Ticket};
use tracing::field::Empty;
use tracing::span::EnteredSpan;
use tracing::trace_span;

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
    /// How each of them is trained; defaults beyond its end.
    pub rules: Vec<ParameterRule>,
    /// Type in which they are gathered and computed with.
    pub dtype: DType,
    /// Type in which the model itself holds them: f32, or `dtype` if the model chose it.
    pub own_dtype: DType,
    /// Whether they are trained. Frozen ones have neither gradients nor optimizer state.
    pub trainable: bool,
    /// Calls that gather it, by numbers of the caller's choice: units with a number in common are gathered together, and a
    /// unit with several is shared. None: a call of its own.
    pub calls: Vec<usize>,
}

impl UnitSpec {
    /// A unit of trained f32 parameters.
    pub fn new(name: impl Into<String>, parameters: Vec<ParameterSpec>) -> Self {
        let (dtype, own_dtype) = (DType::F32, DType::F32);
        Self { name: name.into(), parameters, rules: Vec::new(), dtype, own_dtype, trainable: true, calls: Vec::new() }
    }

    /// Whether the parameters are kept in f32 beside the type that is computed with: what an optimizer updates, and what
    /// a saved model has.
    pub(crate) fn has_master(&self) -> bool {
        self.dtype != DType::F32 && (self.trainable || self.own_dtype == DType::F32)
    }
}

/// How a parameter is trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParameterRule {
    /// Factor of the step's learning rate.
    pub learning_rate_scale: f64,
    /// Weight decay, instead of the optimizer's.
    pub weight_decay: Option<f64>,
}

impl Default for ParameterRule {
    fn default() -> Self {
        Self { learning_rate_scale: 1.0, weight_decay: None }
    }
}

/// The regions of a rank's shard of one unit.
#[derive(Debug)]
pub(crate) struct ShardRegions {
    pub(crate) parameters: Box<dyn Region>,
    /// In f32, if the parameters are not.
    pub(crate) master: Option<Box<dyn Region>>,
    /// None if the unit is frozen.
    pub(crate) gradient: Option<Box<dyn Region>>,
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
    /// Parameters of which this rank had a gradient that is not finite since the last step.
    pub(crate) not_finite: Vec<bool>,
    /// Sums of the squares of every parameter's gradient in the last bucket, of this rank alone, which tell the above where
    /// the device did not when they landed.
    pub(crate) own_squares: Option<Ticket<Vec<f64>>>,
    /// Parameters whose gradient is in the current bucket.
    pub(crate) in_bucket: Vec<bool>,
    /// Whether the gradient region holds something of this step.
    pub(crate) region_filled: bool,
    /// Sums of the squares of every parameter's gradient in the region, where they are known without reading it.
    pub(crate) sums_of_squares: Option<Ticket<Vec<f64>>>,
    /// Whether the unit's update of this step was submitted already.
    pub(crate) updated: bool,
}

impl GradientState {
    pub(crate) fn new(parameters: usize) -> Self {
        let none = || vec![false; parameters];
        Self { arrived: none(), not_finite: none(), in_bucket: none(), ..Self::default() }
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
    pub(crate) dtype: DType,
    /// Type of its bucket, its reduction and its gradient region.
    pub(crate) gradient_dtype: DType,
    pub(crate) trainable: bool,
    pub(crate) rules: Vec<ParameterRule>,
    /// Updates that each parameter has had.
    pub(crate) updates: Vec<u64>,
    pub(crate) shard: Shard,
    /// What the device may still be reading of the parameters, or of a copy of them.
    pub(crate) copying: Option<Copying>,
    pub(crate) gradient: GradientState,
    /// Number of updates submitted: a slab of another version is stale.
    pub(crate) version: u64,
}

impl Unit {
    pub(crate) fn name(&self) -> &str {
        &self.plan.unit
    }

    /// Where each parameter is in the flat vector.
    pub(crate) fn parameter_ranges(&self) -> Vec<Range<usize>> {
        self.plan.parameters.iter().map(|placed| placed.range.clone()).collect()
    }

    /// For what copies it to the device. A device that copies later fills in when it did.
    pub(crate) fn copy_in_span(&self) -> EnteredSpan {
        let bytes = self.slab_bytes();
        trace_span!("copy in", unit = %self.name(), bytes, began_us_ago = Empty, ended_us_ago = Empty).entered()
    }

    /// For what copies its gradient from the device, likewise.
    pub(crate) fn copy_out_span(&self) -> EnteredSpan {
        let bytes = self.bucket_bytes();
        trace_span!("copy out", unit = %self.name(), bytes, began_us_ago = Empty, ended_us_ago = Empty).entered()
    }

    /// Counts an update of every parameter that has a gradient.
    pub(crate) fn count_update(&mut self) {
        for (updates, arrived) in self.updates.iter_mut().zip(&self.gradient.arrived) {
            *updates += u64::from(*arrived);
        }
    }

    /// Bytes of the gathered unit.
    pub(crate) fn slab_bytes(&self) -> u64 {
        (self.plan.elements * self.dtype.size()) as u64
    }

    /// Bytes of its whole gradient.
    pub(crate) fn bucket_bytes(&self) -> u64 {
        (self.plan.elements * self.gradient_dtype.size()) as u64
    }
}
