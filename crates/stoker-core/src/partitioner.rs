//! Which rank keeps which part of a unit.

use crate::{ParameterSpec, Plan, Result};
use std::fmt::Debug;

/// Lays a unit's parameters out in a flat vector and shares it among ranks (ZeRO's partitioning; FSDP's flat parameter).
///
/// Pure: the same arguments give the same plan in every process, which is what makes checkpoints and collectives agree.
pub trait Partitioner: Debug + Send + Sync {
    /// The plan of unit `unit` over `world` ranks.
    ///
    /// Owes what [`Plan::check`] verifies: each element of each parameter once over all ranks, equal shards, padding
    /// outside every parameter.
    ///
    /// # Errors
    /// [`Error::BadPlan`](crate::Error::BadPlan) when the parameters cannot be laid out.
    fn plan(&self, unit: &str, parameters: &[ParameterSpec], world: usize) -> Result<Plan>;
}
