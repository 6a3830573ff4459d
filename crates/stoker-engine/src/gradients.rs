//! Gradients land in the unit's bucket on the device and are reduced to the shard that this rank keeps.

use crate::bridge::{Adopted, Bridge, Landing};
use crate::cast;
use crate::engine::Engine;
use crate::gather::here;
use crate::ledger::Allotment;
use crate::residency::Slab;
use crate::settings::Stage;
use crate::unit::{ParameterId, Unit, UnitId};
use crate::{Error, Result};
use std::ops::Range;
use stoker_core::communicator::Exchanged;
use stoker_core::{HostBuffer, Place, Role, Ticket};

/// [Note: Buckets] A unit's bucket is its flat gradient on the device. At stages 2 and 3 it lives from the unit's first
/// gradient to the end of its reduction. Among several ranks one reduction is in flight, so at most two units have a
/// bucket; a rank alone, whose reductions are copies, has as many under way as fit in the bytes of the two largest. A
/// reduction is cut in pieces of at most `bucket_bytes`; each piece holds the same part of every rank's shard, so the
/// counts are equal, and since sums are taken element by element in the order of the ranks, the cut does not change a bit
/// of the result.
#[derive(Debug)]
pub(crate) struct Reduction<S> {
    unit: UnitId,
    /// Dropped before the bucket, which it may be reading: its drop waits.
    source: Source,
    bucket: Slab<S>,
}

#[derive(Debug)]
enum Source {
    /// The bucket's own memory.
    Lent(HostBuffer),
    /// On its way to the gradient region's own memory.
    ToRegion(Ticket<HostBuffer>),
    /// On its way to a staging buffer.
    ToStaging(Ticket<HostBuffer>, Allotment),
    /// All in one piece, already with the communicator.
    Scattering { exchange: Ticket<Exchanged>, lent: bool, _staging: Vec<Allotment> },
}

impl Source {
    /// Whether finishing it takes no waiting.
    fn is_ready(&self) -> bool {
        match self {
            Self::ToRegion(ticket) | Self::ToStaging(ticket, _) => ticket.is_ready(),
            Self::Lent(_) => true,
            Self::Scattering { exchange, .. } => exchange.is_ready(),
        }
    }
}

impl<B: Bridge> Engine<B> {
    /// A parameter's gradient arrives.
    ///
    /// # Errors
    /// When it has not the parameter's size, or the device has no room for the bucket.
    pub fn land(&mut self, unit: UnitId, parameter: ParameterId, gradient: B::Gradient) -> Result<()> {
        self.alive()?;
        self.at("backward", unit);
        let range = self.parameter_range(unit, parameter)?;
        if !self.units[unit].trainable {
            // Autodiff has no way to make a frozen parameter again without its gradient.
            return Ok(());
        }
        let gradient = match self.adopt(unit, &range, gradient)? {
            Ok(finite) => {
                self.arrived(unit, parameter, finite);
                return Ok(());
            }
            Err(gradient) => gradient,
        };
        if self.buckets[unit].is_none() {
            self.buckets[unit] = Some(self.new_bucket(unit)?);
        }
        let Some(bucket) = &mut self.buckets[unit] else { return Ok(()) };
        let landing = if self.units[unit].gradient.in_bucket[parameter] { Landing::Add } else { Landing::Set };
        let finite = self.bridge.land(gradient, &mut bucket.buffer, range, landing)?;
        self.arrived(unit, parameter, finite);
        Ok(())
    }

    /// Makes a gradient that is all of its unit's the bucket, if there is none yet, and tells whether it is finite; gives
    /// it back if it cannot.
    fn adopt(
        &mut self,
        unit: UnitId,
        range: &Range<usize>,
        gradient: B::Gradient,
    ) -> Result<std::result::Result<bool, B::Gradient>> {
        let Unit { plan, gradient_dtype, .. } = &self.units[unit];
        let (dtype, elements) = (*gradient_dtype, plan.elements);
        if self.buckets[unit].is_some() || range.len() != elements {
            return Ok(Err(gradient));
        }
        let allotment = self.book_bucket(unit)?;
        Ok(self.bridge.adopt(gradient, dtype, elements).map(|Adopted { slab, finite }| {
            self.buckets[unit] = Some(Slab::new(slab, dtype, elements, allotment));
            finite
        }))
    }

    fn arrived(&mut self, unit: UnitId, parameter: ParameterId, finite: bool) {
        let state = &mut self.units[unit].gradient;
        state.in_bucket[parameter] = true;
        state.arrived[parameter] = true;
        state.not_finite[parameter] |= !finite;
    }

    fn new_bucket(&mut self, unit: UnitId) -> Result<Slab<B::Slab>> {
        let allotment = self.book_bucket(unit)?;
        let Unit { plan, gradient_dtype, .. } = &self.units[unit];
        let buffer = self.bridge.allocate(*gradient_dtype, plan.elements)?;
        Ok(Slab::new(buffer, *gradient_dtype, plan.elements, allotment))
    }

    /// Books a bucket, once there is room for it.
    fn book_bucket(&mut self, unit: UnitId) -> Result<Allotment> {
        let bytes = self.units[unit].bucket_bytes();
        while self.ledger.now(Place::Device, Role::GradientBucket) + bytes > self.bucket_limit
            && self.finish_first_reduction()?
        {}
        Ok(self.ledger.allot(Place::Device, Role::GradientBucket, self.units[unit].name(), bytes)?)
    }

    /// The backward of a tracked call of the unit is about to begin: what comes after it is fetched ahead.
    ///
    /// Where gathers are collectives the unit itself is gathered here, and not when something asks for it: whether
    /// anything does may differ from rank to rank.
    ///
    /// # Errors
    /// What a collective or a copy failed with.
    pub fn before_backward(&mut self, unit: UnitId) -> Result<()> {
        self.alive()?;
        self.at("backward", unit);
        if self.settings.stage == Stage::Three && self.plugins.communicator.world() > 1 {
            self.hold(unit).in_backward = true;
            return self.gather(unit, true);
        }
        if self.is_alone() {
            self.finish_ready_reductions()?;
        }
        if self.settings.overlap { self.fetch_ahead(unit) } else { Ok(()) }
    }

    /// The backward of one tracked call of the unit is done: all its gradients have landed.
    ///
    /// # Errors
    /// What a collective or a copy failed with.
    pub fn backward_done(&mut self, unit: UnitId) -> Result<()> {
        self.alive()?;
        self.at("backward", unit);
        self.hold(unit).in_backward = false;
        let state = &mut self.units[unit].gradient;
        state.calls_open = state.calls_open.saturating_sub(1);
        if state.calls_open > 0 {
            return Ok(());
        }
        self.hold(unit).until_backward = false;
        self.pool.trim(&self.bridge, &self.order);
        if self.settings.stage >= Stage::Two && self.units[unit].trainable {
            if !self.is_alone() {
                // Also without a gradient of its own: another rank may have one.
                self.finish_reductions()?;
                self.ask_whether_finite(unit)?;
                self.start_reduction(unit)?;
            } else if !self.units[unit].gradient.bucket_is_empty() {
                self.start_reduction(unit)?;
                if !self.settings.overlap {
                    self.finish_reductions()?;
                }
            }
        }
        Ok(())
    }

    /// Starts reducing the unit's bucket (zeros if it has none).
    pub(crate) fn start_reduction(&mut self, unit: UnitId) -> Result<()> {
        while self.reductions.iter().any(|reduction| reduction.unit == unit) {
            self.finish_first_reduction()?;
        }
        self.check_not_updated(unit)?;
        let mut bucket = match self.buckets[unit].take() {
            Some(bucket) => bucket,
            None => self.new_bucket(unit)?,
        };
        self.units[unit].gradient.in_bucket.fill(false);
        let Unit { gradient_dtype, .. } = self.units[unit];
        let elements = self.units[unit].plan.elements;
        if self.keep_on_device(unit, &bucket)? {
            return self.update_in_backward(unit);
        }
        self.sum_on_device(unit, &bucket)?;
        self.moved.from_device += self.units[unit].bucket_bytes();
        let copying = self.units[unit].copy_out_span();
        let source = match self.bridge.lend(&mut bucket.buffer) {
            Some(memory) if self.pieces(unit) == 1 && self.is_reduced_in_order(unit) => {
                self.start_scatter(unit, memory, true, Vec::new())?
            }
            Some(memory) => Source::Lent(memory),
            None => match self.empty_region(unit)? {
                Some(region) => Source::ToRegion(self.bridge.copy_out(&bucket.buffer, 0..elements, region)?),
                None => {
                    let allotment = self.stage(unit, gradient_dtype, elements)?;
                    let staging = HostBuffer::zeros_of(gradient_dtype, elements);
                    Source::ToStaging(self.bridge.copy_out(&bucket.buffer, 0..elements, staging)?, allotment)
                }
            },
        };
        drop(copying);
        self.reductions.push_back(Reduction { unit, bucket, source });
        Ok(())
    }

    /// Lets the device sum the squares of the bucket, if that will be the whole gradient of the step.
    fn sum_on_device(&mut self, unit: UnitId, bucket: &Slab<B::Slab>) -> Result<()> {
        let state = &self.units[unit].gradient;
        self.units[unit].gradient.sums_of_squares = if self.is_alone() && !state.region_filled {
            let ranges = self.units[unit].parameter_ranges();
            self.bridge.sums_of_squares(&bucket.buffer, &ranges)?
        } else {
            None
        };
        Ok(())
    }

    /// The gradient region's own memory, if the bucket can be copied there as it is.
    fn empty_region(&mut self, unit: UnitId) -> Result<Option<HostBuffer>> {
        if !self.is_alone() || self.units[unit].gradient.region_filled {
            return Ok(None);
        }
        self.settle_update(unit)?;
        let gradient = &mut here(&mut self.units[unit].shard)?.gradient;
        Ok(gradient.as_mut().and_then(|region| region.host()).map(HostBuffer::take))
    }

    /// Whether the bucket can be handed to one reduce-scatter as it is.
    fn is_reduced_in_order(&self, unit: UnitId) -> bool {
        self.units[unit].plan.world() > 1 && self.units[unit].plan.is_in_order()
    }

    fn pieces(&self, unit: UnitId) -> usize {
        self.units[unit].plan.shard_elements().div_ceil(self.piece_elements(unit)).max(1)
    }

    /// Elements of each rank's shard in one piece.
    fn piece_elements(&self, unit: UnitId) -> usize {
        let Unit { plan, gradient_dtype, .. } = &self.units[unit];
        let bytes_of_all = (plan.world() * gradient_dtype.size()) as u64;
        usize::try_from(self.settings.bucket_bytes / bytes_of_all).unwrap_or(usize::MAX).max(1)
    }

    fn start_scatter(
        &mut self,
        unit: UnitId,
        full: HostBuffer,
        lent: bool,
        mut staging: Vec<Allotment>,
    ) -> Result<Source> {
        let shard_elements = self.units[unit].plan.shard_elements();
        let dtype = full.dtype();
        staging.push(self.stage(unit, dtype, shard_elements)?);
        self.moved.between_ranks += full.bytes() as u64;
        let call = format!("reduce {}", self.units[unit].name());
        let shard = HostBuffer::zeros_of(dtype, shard_elements);
        let exchange = self.plugins.communicator.reduce_scatter(&call, full, shard)?;
        Ok(Source::Scattering { exchange, lent, _staging: staging })
    }

    /// Finishes the reductions that need not be waited for. A rank alone may: among others, finishing can be a collective.
    fn finish_ready_reductions(&mut self) -> Result<()> {
        while self.reductions.front().is_some_and(|first| first.source.is_ready()) {
            self.finish_first_reduction()?;
        }
        Ok(())
    }

    /// Waits for all reductions in flight.
    pub(crate) fn finish_reductions(&mut self) -> Result<()> {
        while self.finish_first_reduction()? {}
        Ok(())
    }

    /// Waits for the reduction that was started first, and adds its result to the gradient region. False if there is none.
    fn finish_first_reduction(&mut self) -> Result<bool> {
        let Some(Reduction { unit, mut bucket, source }) = self.reductions.pop_front() else { return Ok(false) };
        let _span = tracing::trace_span!("reduce", unit = %self.units[unit].name()).entered();
        self.settle_update(unit)?;
        match source {
            Source::Scattering { exchange, lent, _staging } => {
                let exchanged = exchange.wait()?;
                if lent {
                    self.bridge.restore(&mut bucket.buffer, exchanged.sent);
                }
                self.accumulate(unit, 0, &exchanged.received)?;
            }
            Source::Lent(memory) => {
                let memory = self.reduce_pieces(unit, memory)?;
                self.bridge.restore(&mut bucket.buffer, memory);
            }
            Source::ToRegion(ticket) => {
                let memory = ticket.wait()?;
                let gradient = &mut here(&mut self.units[unit].shard)?.gradient;
                if let Some(place) = gradient.as_mut().and_then(|region| region.host()) {
                    *place = memory;
                }
            }
            Source::ToStaging(ticket, _allotment) => {
                let full = ticket.wait()?;
                self.reduce_pieces(unit, full)?;
            }
        }
        self.units[unit].gradient.region_filled = true;
        // The bucket is dropped: the next unit has another size, and its zeros must be fresh.
        drop(bucket);
        self.update_in_backward(unit)?;
        Ok(true)
    }

    /// Reduces a whole flat gradient piece by piece; gives the memory back.
    fn reduce_pieces(&mut self, unit: UnitId, full: HostBuffer) -> Result<HostBuffer> {
        let world = self.plugins.communicator.world();
        if world == 1 {
            self.accumulate(unit, 0, &full)?;
            return Ok(full);
        }
        let dtype = full.dtype();
        let piece = self.piece_elements(unit);
        let shard_elements = self.units[unit].plan.shard_elements();
        let whole = self.units[unit].plan.world() == 1;
        let mut start = 0;
        while start < shard_elements {
            let part = start..(start + piece).min(shard_elements);
            let _staging = self.stage(unit, dtype, part.len() * (world + 1))?;
            let call = format!("reduce {} [{}..{}]", self.units[unit].name(), part.start, part.end);
            let reduced = if whole {
                let mut sent = HostBuffer::zeros_of(dtype, part.len());
                sent.copy_elements(0, &full, part.clone());
                self.moved.between_ranks += sent.bytes() as u64;
                self.plugins.communicator.all_reduce(&call, sent)?.wait()?
            } else {
                let sent = self.units[unit].plan.packed(&full, &part);
                self.moved.between_ranks += sent.bytes() as u64;
                let received = HostBuffer::zeros_of(dtype, part.len());
                self.plugins.communicator.reduce_scatter(&call, sent, received)?.wait()?.received
            };
            self.accumulate(unit, part.start, &reduced)?;
            start = part.end;
        }
        Ok(full)
    }

    /// Writes or adds `part` to the gradient region at element `at`.
    fn accumulate(&mut self, unit: UnitId, at: usize, part: &HostBuffer) -> Result<()> {
        let add = self.units[unit].gradient.region_filled;
        let Some(gradient) = &mut here(&mut self.units[unit].shard)?.gradient else { return Ok(()) };
        if let Some(memory) = gradient.host() {
            if add {
                cast::add(memory, at, part);
            } else {
                memory.copy_elements(at, part, 0..part.len());
            }
            return Ok(());
        }
        let mut staged = HostBuffer::zeros_of(part.dtype(), part.len());
        if add {
            staged = gradient.read(at, staged)?.wait()?;
            cast::add(&mut staged, 0, part);
        } else {
            staged.copy_elements(0, part, 0..part.len());
        }
        gradient.write(at, staged)?.wait()?;
        Ok(())
    }

    pub(crate) fn parameter_range(&self, unit: UnitId, parameter: ParameterId) -> Result<Range<usize>> {
        let found = self.units.get(unit).and_then(|unit| unit.plan.parameters.get(parameter));
        found.map(|parameter| parameter.range.clone()).ok_or_else(|| {
            Error::Stopped(format!("parameter {parameter} of unit {unit} was asked for, which does not exist"))
        })
    }
}
