//! A unit's slab is filled: its update is awaited, its shards are gathered, the result is copied in.

use crate::bridge::Bridge;
use crate::engine::Engine;
use crate::ledger::Allotment;
use crate::residency::{Filling, Residency, Slab};
use crate::settings::Stage;
use crate::unit::{ParameterId, Shard, ShardRegions, UnitId};
use crate::{Error, Result};
use stoker_core::{DType, HostBuffer, Place, Plan, Role};

impl<B: Bridge> Engine<B> {
    /// Gathers `unit` for a call, and fetches the next ones ahead. Every call is ended by
    /// [`end_call`](Self::end_call).
    ///
    /// `tracked`: a backward will follow.
    ///
    /// # Errors
    /// What the update, a collective or a copy failed with.
    pub fn begin_call(&mut self, unit: UnitId, tracked: bool) -> Result<()> {
        self.at("forward", unit);
        self.gather(unit, tracked)?;
        let keep = self.settings.stage == Stage::Three && !self.settings.reshard_after_forward;
        let hold = self.hold(unit);
        hold.calls += 1;
        if tracked {
            hold.until_backward |= keep;
            self.units[unit].gradient.calls_open += 1;
        }
        Ok(())
    }

    /// The call is over: the slab may go when its bytes are wanted.
    pub fn end_call(&mut self, unit: UnitId) {
        let hold = self.hold(unit);
        hold.calls = hold.calls.saturating_sub(1);
    }

    /// The slab of `unit`, gathered if it is not: for whoever needs the weights in backward.
    ///
    /// # Errors
    /// As [`begin_call`](Self::begin_call).
    pub fn slab(&mut self, unit: UnitId) -> Result<&B::Slab> {
        self.gather(unit, self.training)?;
        match &self.pool.units[unit] {
            Residency::Gathered { slab, .. } => Ok(&slab.buffer),
            _ => Err(Error::Stopped(format!("unit `{}` was gathered but is not there", self.units[unit].name()))),
        }
    }

    /// Gathers `unit` now; `expected` gathers are recorded for the forecast and start fetching ahead.
    pub(crate) fn gather(&mut self, unit: UnitId, expected: bool) -> Result<()> {
        self.alive()?;
        if expected {
            self.order.record(unit);
        }
        self.fill(unit, true)?;
        self.finish_fill(unit)?;
        if expected && self.settings.overlap {
            self.fetch_ahead(unit)?;
        }
        Ok(())
    }

    /// Starts filling the slabs of the units that are expected next, as far as their bytes are allowed to be under way
    /// and nothing that is needed earlier must give way.
    pub(crate) fn fetch_ahead(&mut self, current: UnitId) -> Result<()> {
        let upcoming: Vec<_> = self.order.upcoming().take(self.units.len()).collect();
        // The unit in use must not give way to one that is fetched.
        self.hold(current).calls += 1;
        let mut result = Ok(());
        for unit in upcoming {
            if !matches!(self.pool.units[unit], Residency::Absent) {
                continue;
            }
            let bytes = self.units[unit].slab_bytes();
            if self.pool.filling_bytes() + bytes > self.settings.prefetch_bytes {
                break;
            }
            match self.fill(unit, false) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.hold(current).calls -= 1;
        result
    }

    /// Starts filling the unit's slab, unless it is fresh or being filled. False if there is no room and it can wait.
    fn fill(&mut self, unit: UnitId, must_have: bool) -> Result<bool> {
        let version = self.units[unit].version;
        match std::mem::replace(&mut self.pool.units[unit], Residency::Absent) {
            fresh @ Residency::Gathered { version: found, .. } if found == version => {
                self.pool.units[unit] = fresh;
                return Ok(true);
            }
            filling @ Residency::Filling { .. } => {
                self.pool.units[unit] = filling;
                return Ok(true);
            }
            Residency::Gathered { slab, .. } => self.pool.discard(&self.bridge, slab),
            Residency::Absent => {}
        }
        self.settle_update(unit)?;
        let elements = self.units[unit].plan.elements;
        let name = self.units[unit].plan.unit.clone();
        let slab = self.pool.take(&mut self.bridge, &self.order, unit, &name, elements, must_have)?;
        let Some(slab) = slab else { return Ok(false) };
        self.start_fill(unit, slab, version)?;
        Ok(true)
    }

    fn start_fill(&mut self, unit: UnitId, mut slab: Slab<B::Slab>, version: u64) -> Result<()> {
        let elements = self.units[unit].plan.elements;
        let whole = self.units[unit].plan.world() == 1;
        let lent = self.bridge.lend(&mut slab.buffer);
        let regions = here(&mut self.units[unit].shard)?;
        self.moved.to_device += elements as u64 * 4;
        if whole {
            match (lent, regions.parameters.host()) {
                (Some(mut memory), Some(source)) => {
                    memory.as_mut_slice::<f32>().copy_from_slice(source.as_slice::<f32>());
                    self.bridge.restore(&mut slab.buffer, memory);
                    self.pool.units[unit] = Residency::Gathered { slab, version };
                }
                (Some(memory), None) => {
                    let memory = regions.parameters.read(0, memory)?.wait()?;
                    self.bridge.restore(&mut slab.buffer, memory);
                    self.pool.units[unit] = Residency::Gathered { slab, version };
                }
                (None, Some(source)) => {
                    let ticket = self.bridge.copy_in(source.take(), &mut slab.buffer)?;
                    self.pool.units[unit] = Residency::Filling { slab, filling: Filling::FromRegion(ticket), version };
                }
                (None, None) => {
                    let allotment = self.stage(unit, elements)?;
                    let staging = HostBuffer::zeros::<f32>(elements);
                    let staging = here(&mut self.units[unit].shard)?.parameters.read(0, staging)?.wait()?;
                    let ticket = self.bridge.copy_in(staging, &mut slab.buffer)?;
                    let filling = Filling::FromStaging(ticket, vec![allotment]);
                    self.pool.units[unit] = Residency::Filling { slab, filling, version };
                }
            }
            return Ok(());
        }
        let shard_elements = self.units[unit].plan.shard_elements();
        let mut staging = Vec::new();
        let regions = here(&mut self.units[unit].shard)?;
        let region_lent = regions.parameters.host().is_some();
        let shard = match regions.parameters.host() {
            Some(source) => source.take(),
            None => {
                staging.push(self.stage(unit, shard_elements)?);
                let buffer = HostBuffer::zeros::<f32>(shard_elements);
                here(&mut self.units[unit].shard)?.parameters.read(0, buffer)?.wait()?
            }
        };
        // The gathered vector may go straight into the slab only if no rearrangement follows.
        let in_place = lent.is_some() && self.units[unit].plan.is_in_order();
        let full = match lent {
            Some(memory) if in_place => memory,
            lent => {
                if let Some(memory) = lent {
                    self.bridge.restore(&mut slab.buffer, memory);
                }
                staging.push(self.stage(unit, elements)?);
                HostBuffer::zeros::<f32>(elements)
            }
        };
        self.moved.between_ranks += elements as u64 * 4;
        let call = format!("gather {}", self.units[unit].name());
        let exchange = self.plugins.communicator.all_gather(&call, shard, full)?;
        let filling = Filling::Gather { exchange, in_place, region_lent, _staging: staging };
        self.pool.units[unit] = Residency::Filling { slab, filling, version };
        Ok(())
    }

    /// Waits until the unit's slab is filled, if it is being filled.
    pub(crate) fn finish_fill(&mut self, unit: UnitId) -> Result<()> {
        let (mut slab, filling, version) = match std::mem::replace(&mut self.pool.units[unit], Residency::Absent) {
            Residency::Filling { slab, filling, version } => (slab, filling, version),
            settled => {
                self.pool.units[unit] = settled;
                return Ok(());
            }
        };
        match filling {
            Filling::FromRegion(ticket) => {
                let source = ticket.wait()?;
                self.give_back(unit, source)?;
            }
            Filling::FromStaging(ticket, _allotments) => {
                ticket.wait()?;
            }
            Filling::Gather { exchange, in_place, region_lent, _staging } => {
                let exchanged = exchange.wait()?;
                if region_lent {
                    self.give_back(unit, exchanged.sent)?;
                }
                let plan = &self.units[unit].plan;
                if in_place {
                    self.bridge.restore(&mut slab.buffer, exchanged.received);
                } else {
                    let full =
                        if plan.is_in_order() { exchanged.received } else { in_flat_order(plan, &exchanged.received) };
                    self.bridge.copy_in(full, &mut slab.buffer)?.wait()?;
                }
            }
        }
        self.pool.units[unit] = Residency::Gathered { slab, version };
        Ok(())
    }

    /// Puts the parameter region's own memory back.
    fn give_back(&mut self, unit: UnitId, memory: HostBuffer) -> Result<()> {
        if let Some(place) = here(&mut self.units[unit].shard)?.parameters.host() {
            *place = memory;
        }
        Ok(())
    }

    /// Books a staging buffer.
    pub(crate) fn stage(&self, unit: UnitId, elements: usize) -> Result<Allotment> {
        let bytes = (elements * DType::F32.size()) as u64;
        Ok(self.ledger.allot(Place::Host, Role::Staging, self.units[unit].name(), bytes)?)
    }

    /// Copies a parameter's values out of its gathered unit. Every rank must call it: it may gather.
    ///
    /// # Errors
    /// As [`begin_call`](Self::begin_call).
    pub fn read_parameter(&mut self, unit: UnitId, parameter: ParameterId) -> Result<HostBuffer> {
        self.at("export", unit);
        self.gather(unit, false)?;
        let range = self.parameter_range(unit, parameter)?;
        let into = HostBuffer::zeros::<f32>(range.len());
        match &self.pool.units[unit] {
            Residency::Gathered { slab, .. } => Ok(self.bridge.copy_out(&slab.buffer, range, into)?.wait()?),
            _ => Err(Error::Stopped(format!("unit `{}` was gathered but is not there", self.units[unit].name()))),
        }
    }
}

/// Ranks' shards, one after another, put where the plan says.
fn in_flat_order(plan: &Plan, shards: &HostBuffer) -> HostBuffer {
    let mut full = HostBuffer::zeros::<f32>(plan.elements);
    let (source, target) = (shards.as_slice::<f32>(), full.as_mut_slice::<f32>());
    let mut at = 0;
    for range in plan.shards.iter().flatten() {
        target[range.clone()].copy_from_slice(&source[at..at + range.len()]);
        at += range.len();
    }
    full
}

/// The regions, which must not be away: `settle_update` comes first.
pub(crate) fn here(shard: &mut Shard) -> Result<&mut ShardRegions> {
    match shard {
        Shard::Here(regions) => Ok(regions),
        Shard::Updating(_) => Err(Error::Stopped("a shard was used while its update runs".to_owned())),
        Shard::Lost => Err(Error::Stopped("a shard was lost with an earlier error".to_owned())),
    }
}
