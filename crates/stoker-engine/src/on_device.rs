//! Shards that the device keeps itself: nothing of them crosses to the host, and the device updates them.

use crate::Result;
use crate::bridge::{Bridge, Landing};
use crate::engine::Engine;
use crate::gather::here;
use crate::residency::Slab;
use crate::unit::{ShardRegions, UnitId};
use std::fmt::Debug;
use stoker_core::{DeviceRule, OffloadTarget, Optimizer, Place, Region, Segment, StepContext};

/// A shard on the device: slabs of equal length.
#[derive(Debug)]
pub struct ShardOnDevice<'a, S> {
    /// Master parameters in f32, updated in place.
    pub parameters: &'a mut S,
    /// Accumulated gradient, before [`StepContext::gradient_scale`].
    pub gradient: &'a S,
    /// One slab a state slot, in their order, updated in place.
    pub state: Vec<&'a mut S>,
    /// Where the model computes in a narrower type: becomes the updated parameters, rounded.
    pub rounded: Option<&'a mut S>,
}

/// What a device does with slabs that are regions of shards. All of it comes after the computation that was asked for
/// before, and before what is asked for after.
pub trait OnDevice<S>: Debug {
    /// Writes all of `source` to `target`, which is as long and of its type, or adds it.
    ///
    /// # Errors
    /// What the device failed with.
    fn copy(&mut self, source: &S, target: &mut S, landing: Landing) -> stoker_core::Result<()>;

    /// Updates the parts of a shard that `segments` say, by `rule`.
    ///
    /// # Errors
    /// When the rule's state is not there; what the device failed with.
    fn update(
        &mut self,
        rule: &DeviceRule,
        shard: ShardOnDevice<'_, S>,
        segments: &[Segment],
        context: &StepContext,
    ) -> stoker_core::Result<()>;
}

/// The slab that a region is, if it is one of this kind.
fn slab<S: 'static>(region: &mut dyn Region) -> Option<&mut S> {
    region.device()?.downcast_mut()
}

/// Shards will be on a device that has no kernel for their update: that works, slowly.
pub(crate) fn warn_of_round_trips(target: &dyn OffloadTarget, optimizer: &dyn Optimizer) {
    let traits = target.traits();
    if traits.place == Place::Device && !traits.host_addressable && optimizer.device_rule().is_none() {
        tracing::warn!(
            optimizer = ?optimizer,
            "the device has no kernel for this optimizer: every update copies its shard to the host and back; choose \
             `adamw` or `adam` with f32 moments, or offload target `cpu-offload`"
        );
    }
}

impl<B: Bridge> Engine<B> {
    /// Fills a slab from the parameters, if the unit is whole here and the device has them. False if not.
    pub(crate) fn fill_on_device(&mut self, unit: UnitId, into: &mut Slab<B::Slab>) -> Result<bool> {
        let Some(device) = self.bridge.on_device() else { return Ok(false) };
        let Some(parameters) = slab(here(&mut self.units[unit].shard)?.parameters.as_mut()) else { return Ok(false) };
        device.copy(parameters, &mut into.buffer, Landing::Set)?;
        Ok(true)
    }

    /// Keeps the gradient in a bucket, if no other rank has a part of it and the device has its region. False if not.
    pub(crate) fn keep_on_device(&mut self, unit: UnitId, bucket: &Slab<B::Slab>) -> Result<bool> {
        if !self.is_alone() {
            return Ok(false);
        }
        let ranges = self.units[unit].parameter_ranges();
        let landing = if self.units[unit].gradient.region_filled { Landing::Add } else { Landing::Set };
        let Some(region) = &mut here(&mut self.units[unit].shard)?.gradient else { return Ok(false) };
        let (Some(device), Some(region)) = (self.bridge.on_device(), slab(region.as_mut())) else { return Ok(false) };
        device.copy(&bucket.buffer, region, landing)?;
        self.units[unit].gradient.sums_of_squares = self.bridge.sums_of_squares(region, &ranges)?;
        self.units[unit].gradient.region_filled = true;
        Ok(true)
    }

    /// Updates the unit, if the device has its shard and a kernel for the rule. False if not.
    pub(crate) fn update_on_device(
        &mut self,
        unit: UnitId,
        segments: &[Segment],
        context: &StepContext,
    ) -> Result<bool> {
        let (Some(rule), Some(device)) = (self.plugins.optimizer.device_rule(), self.bridge.on_device()) else {
            return Ok(false);
        };
        let Some(shard) = on_device(here(&mut self.units[unit].shard)?) else { return Ok(false) };
        device.update(&rule, shard, segments, context)?;
        Ok(true)
    }
}

fn on_device<S: 'static>(regions: &mut ShardRegions) -> Option<ShardOnDevice<'_, S>> {
    let ShardRegions { parameters, master, gradient, state, .. } = regions;
    let (parameters, rounded) = match master {
        Some(master) => (slab(master.as_mut())?, Some(slab(parameters.as_mut())?)),
        None => (slab(parameters.as_mut())?, None),
    };
    let gradient = slab(gradient.as_mut()?.as_mut())?;
    let state = state.iter_mut().map(|region| slab(region.as_mut())).collect::<Option<Vec<_>>>()?;
    Some(ShardOnDevice { parameters, gradient, state, rounded })
}
