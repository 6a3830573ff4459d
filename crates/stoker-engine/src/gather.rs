//! A unit's slab is filled: its update is awaited, its shards are gathered, the result is copied in.

use crate::bridge::Bridge;
use crate::cast;
use crate::engine::Engine;
use crate::ledger::Allotment;
use crate::residency::{CopySource, Copying, Filling, Residency, Slab, Wanted};
use crate::settings::Stage;
use crate::unit::{ParameterId, Shard, ShardRegions, Unit, UnitId};
use crate::{Error, Result};
use stoker_core::{DType, HostBuffer, Place, Role};
use tracing::trace_span;

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
        // What fails until the next call is not the unit's doing.
        self.phase = "what follows the forward";
        let hold = self.hold(unit);
        hold.calls = hold.calls.saturating_sub(1);
        self.pool.trim(&self.bridge, &self.order);
    }

    /// The slab of `unit`, gathered if it is not: for whoever needs the weights in backward.
    ///
    /// # Errors
    /// As [`begin_call`](Self::begin_call).
    pub fn slab(&mut self, unit: UnitId) -> Result<&B::Slab> {
        // In a call, and from the beginning of its backward on where gathers are collectives, it is there and recorded.
        let held = self.pool.holds[unit].is_in_use() && self.is_fresh(unit);
        self.gather(unit, self.training && !held)?;
        match &self.pool.units[unit] {
            Residency::Gathered { slab, .. } => Ok(&slab.buffer),
            _ => Err(Error::Stopped(format!("unit `{}` was gathered but is not there", self.units[unit].name()))),
        }
    }

    /// Whether the unit's slab is there and is not older than its parameters.
    fn is_fresh(&self, unit: UnitId) -> bool {
        matches!(&self.pool.units[unit], Residency::Gathered { version, .. } if *version == self.units[unit].version)
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
            // A fill is a collective where there are other ranks: then nothing may depend on this rank's clock.
            let alone = self.units[unit].plan.world() == 1;
            match &self.pool.units[unit] {
                Residency::Absent => {}
                Residency::Gathered { .. } if alone && !self.is_fresh(unit) => {}
                Residency::Filling { .. } | Residency::Gathered { .. } => continue,
            }
            // What is not needed yet is not waited for.
            if alone && matches!(&self.units[unit].shard, Shard::Updating(update) if !update.is_ready()) {
                break;
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
        let name = self.units[unit].name();
        let _span =
            if must_have { trace_span!("gather", unit = %name) } else { trace_span!("fetch", unit = %name) }.entered();
        self.settle(unit)?;
        let wanted = Wanted {
            unit,
            name: self.units[unit].name(),
            dtype: self.units[unit].dtype,
            elements: self.units[unit].plan.elements,
            must_have,
        };
        let slab = self.pool.take(&mut self.bridge, &self.order, &wanted)?;
        let Some(slab) = slab else { return Ok(false) };
        self.start_fill(unit, slab, version)?;
        Ok(true)
    }

    fn start_fill(&mut self, unit: UnitId, mut slab: Slab<B::Slab>, version: u64) -> Result<()> {
        let Unit { dtype, .. } = self.units[unit];
        let elements = self.units[unit].plan.elements;
        let whole = self.units[unit].plan.world() == 1;
        if whole && self.fill_on_device(unit, &mut slab)? {
            self.pool.units[unit] = Residency::Gathered { slab, version };
            return Ok(());
        }
        let lent = self.bridge.lend(&mut slab.buffer);
        self.moved.to_device += self.units[unit].slab_bytes();
        if whole {
            let _span = self.units[unit].copy_in_span();
            let regions = here(&mut self.units[unit].shard)?;
            match (lent, regions.parameters.host()) {
                (Some(mut memory), Some(source)) => {
                    memory.copy_elements(0, source, 0..elements);
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
                    let filling = Filling::Copy(Copying { ticket, source: CopySource::Region });
                    self.pool.units[unit] = Residency::Filling { slab, filling, version };
                }
                (None, None) => {
                    let allotments = vec![self.stage(unit, dtype, elements)?];
                    let staging = HostBuffer::zeros_of(dtype, elements);
                    let staging = here(&mut self.units[unit].shard)?.parameters.read(0, staging)?.wait()?;
                    let ticket = self.bridge.copy_in(staging, &mut slab.buffer)?;
                    let source = CopySource::Staging { _allotments: allotments };
                    let filling = Filling::Copy(Copying { ticket, source });
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
                staging.push(self.stage(unit, dtype, shard_elements)?);
                let buffer = HostBuffer::zeros_of(dtype, shard_elements);
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
                staging.push(self.stage(unit, dtype, elements)?);
                HostBuffer::zeros_of(dtype, elements)
            }
        };
        self.moved.between_ranks += self.units[unit].slab_bytes();
        let call = format!("gather {}", self.units[unit].name());
        let exchange = self.plugins.communicator.all_gather(&call, shard, full)?;
        let filling = Filling::Gather { exchange, in_place, region_lent, staging };
        self.pool.units[unit] = Residency::Filling { slab, filling, version };
        Ok(())
    }

    /// The unit's slab, if it is being filled, can be used from here on: by the device, which may still be copying to it.
    pub(crate) fn finish_fill(&mut self, unit: UnitId) -> Result<()> {
        let (mut slab, filling, version) = match std::mem::replace(&mut self.pool.units[unit], Residency::Absent) {
            Residency::Filling { slab, filling, version } => (slab, filling, version),
            settled => {
                self.pool.units[unit] = settled;
                return Ok(());
            }
        };
        match filling {
            Filling::Copy(copying) => {
                self.bridge.before_use(&mut slab.buffer)?;
                self.units[unit].copying = Some(copying);
            }
            Filling::Gather { exchange, in_place, region_lent, staging } => {
                let exchanged = {
                    let _span = trace_span!("await gather", unit = %self.units[unit].name()).entered();
                    exchange.wait()?
                };
                if region_lent {
                    self.give_back(unit, exchanged.sent)?;
                }
                let plan = &self.units[unit].plan;
                if in_place {
                    self.bridge.restore(&mut slab.buffer, exchanged.received);
                } else {
                    let full = if plan.is_in_order() { exchanged.received } else { plan.gathered(&exchanged.received) };
                    let copying = self.units[unit].copy_in_span();
                    let ticket = self.bridge.copy_in(full, &mut slab.buffer)?;
                    drop(copying);
                    self.bridge.before_use(&mut slab.buffer)?;
                    let source = CopySource::Staging { _allotments: staging };
                    self.units[unit].copying = Some(Copying { ticket, source });
                }
            }
        }
        self.pool.units[unit] = Residency::Gathered { slab, version };
        Ok(())
    }

    /// Waits until nothing else uses the unit's shard: the device, that copies from it, or an update.
    pub(crate) fn settle(&mut self, unit: UnitId) -> Result<()> {
        if let Some(Copying { ticket, source }) = self.units[unit].copying.take() {
            let _span = trace_span!("await copy", unit = %self.units[unit].name()).entered();
            let memory = ticket.wait()?;
            if let CopySource::Region = source {
                self.give_back(unit, memory)?;
            }
        }
        self.settle_update(unit)
    }

    /// Puts the parameter region's own memory back.
    fn give_back(&mut self, unit: UnitId, memory: HostBuffer) -> Result<()> {
        if let Some(place) = here(&mut self.units[unit].shard)?.parameters.host() {
            *place = memory;
        }
        Ok(())
    }

    /// Books a staging buffer.
    pub(crate) fn stage(&self, unit: UnitId, dtype: DType, elements: usize) -> Result<Allotment> {
        let bytes = (elements * dtype.size()) as u64;
        Ok(self.ledger.allot(Place::Host, Role::Staging, self.units[unit].name(), bytes)?)
    }

    /// A parameter's values in f32, as the optimizer has them. Every rank must call it: it may gather.
    ///
    /// # Errors
    /// As [`begin_call`](Self::begin_call).
    pub fn read_parameter(&mut self, unit: UnitId, parameter: ParameterId) -> Result<HostBuffer> {
        self.alive()?;
        self.at("export", unit);
        let range = self.parameter_range(unit, parameter)?;
        self.settle(unit)?;
        if here(&mut self.units[unit].shard)?.master.is_some() {
            let full = self.gather_master(unit)?;
            return Ok(HostBuffer::from_slice(&full.as_slice::<f32>()[range]));
        }
        self.gather(unit, false)?;
        let dtype = self.units[unit].dtype;
        let into = HostBuffer::zeros_of(dtype, range.len());
        match &self.pool.units[unit] {
            Residency::Gathered { slab, .. } => {
                let values = self.bridge.copy_out(&slab.buffer, range, into)?.wait()?;
                Ok(if dtype == DType::F32 { values } else { cast::widened(&values) })
            }
            _ => Err(Error::Stopped(format!("unit `{}` was gathered but is not there", self.units[unit].name()))),
        }
    }

    /// The unit's whole master parameters: its slab has them rounded.
    fn gather_master(&mut self, unit: UnitId) -> Result<HostBuffer> {
        let plan = &self.units[unit].plan;
        let (elements, shard_elements, world) = (plan.elements, plan.shard_elements(), plan.world());
        let _staging = self.stage(unit, DType::F32, elements + shard_elements)?;
        let call = format!("gather the master parameters of {}", self.units[unit].name());
        let mut shard = HostBuffer::zeros::<f32>(shard_elements);
        if let Some(master) = &mut here(&mut self.units[unit].shard)?.master {
            shard = master.read(0, shard)?.wait()?;
        }
        if world == 1 {
            return Ok(shard);
        }
        let full = HostBuffer::zeros::<f32>(elements);
        let received = self.plugins.communicator.all_gather(&call, shard, full)?.wait()?.received;
        Ok(self.units[unit].plan.gathered(&received))
    }
}

/// The regions, which must not be away: `settle_update` comes first.
pub(crate) fn here(shard: &mut Shard) -> Result<&mut ShardRegions> {
    match shard {
        Shard::Here(regions) => Ok(regions),
        Shard::Updating(_) => Err(Error::Stopped("a shard was used while its update runs".to_owned())),
        Shard::Lost => Err(Error::Stopped("a shard was lost with an earlier error".to_owned())),
    }
}
