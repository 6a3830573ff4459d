//! Which units are gathered, and whose slab goes when room is needed.

use crate::Bridge;
use crate::ledger::{Allotment, Ledger};
use crate::order::Order;
use stoker_core::communicator::Exchanged;
use stoker_core::{DType, HostBuffer, Place, Result, Role, Ticket};

/// Where a unit's gathered parameters are, and what memory that costs.
#[derive(Debug)]
pub(crate) enum Residency<S> {
    /// Nowhere: only the shards exist.
    Absent,
    /// On their way: what is in flight, whose drop waits for it, and the slab, which must live so long.
    Filling { filling: Filling, slab: Slab<S>, version: u64 },
    /// In a slab, as of update `version`.
    Gathered { slab: Slab<S>, version: u64 },
}

/// What is in flight towards a slab.
#[derive(Debug)]
pub(crate) enum Filling {
    /// The device copies.
    Copy(Copying),
    /// Ranks exchange shards. `in_place`: the result is the slab's own memory. `region_lent`: what was sent is the
    /// parameter region's own memory.
    Gather { exchange: Ticket<Exchanged>, in_place: bool, region_lent: bool, staging: Vec<Allotment> },
}

/// A copy to a slab, which the computation may use before the host has the source back.
#[derive(Debug)]
pub(crate) struct Copying {
    pub(crate) ticket: Ticket<HostBuffer>,
    pub(crate) source: CopySource,
}

/// What the device copies from.
#[derive(Debug)]
pub(crate) enum CopySource {
    /// The parameter region's own memory.
    Region,
    /// A staging buffer.
    Staging { _allotments: Vec<Allotment> },
}

/// A device buffer and its entry in the books.
#[derive(Debug)]
pub(crate) struct Slab<S> {
    pub(crate) buffer: S,
    dtype: DType,
    elements: usize,
    /// Held for its drop.
    _allotment: Allotment,
}

impl<S> Slab<S> {
    pub(crate) fn new(buffer: S, dtype: DType, elements: usize, allotment: Allotment) -> Self {
        Self { buffer, dtype, elements, _allotment: allotment }
    }

    fn bytes(&self) -> u64 {
        (self.elements * self.dtype.size()) as u64
    }
}

/// A slab that is wanted, and for whom.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) unit: usize,
    pub(crate) name: &'a str,
    pub(crate) dtype: DType,
    pub(crate) elements: usize,
    /// Whether the caller cannot do without.
    pub(crate) must_have: bool,
}

impl Wanted<'_> {
    fn bytes(&self) -> u64 {
        (self.elements * self.dtype.size()) as u64
    }

    fn is_like<S>(&self, slab: &Slab<S>) -> bool {
        (slab.dtype, slab.elements) == (self.dtype, self.elements)
    }
}

/// What makes a unit's slab give way, or not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hold {
    /// Calls of the unit that run now.
    pub(crate) calls: usize,
    /// Whether the backward of a call runs.
    pub(crate) in_backward: bool,
    /// Kept from forward to backward (`reshard_after_forward = false`).
    pub(crate) until_backward: bool,
    /// Kept always (stages 0 to 2, persistent units).
    pub(crate) always: bool,
}

impl Hold {
    /// Whether the computation may ask for the slab at any moment.
    pub(crate) fn is_in_use(self) -> bool {
        self.calls > 0 || self.in_backward
    }

    fn lets_go(self) -> bool {
        !self.is_in_use() && !self.until_backward && !self.always
    }
}

/// [Note: Residency is lazy] A gathered unit stays until its bytes are wanted by another. Since the order of uses is
/// known (see [Note: Order]), the one whose next use is farthest goes first (Belady's rule), so a unit that is the last
/// of forward and the first of backward is not gathered twice. A slab that the autodiff graph still references is never
/// overwritten: it leaves the pool and lives as long as the graph wants, and the books count it until it is dropped.
///
/// Where gathers are collectives, every rank must release and gather the same units. So the choice follows from the
/// order of calls alone, which all ranks share, and not from what this rank's graph happens to hold: a rank that skips a
/// unit holds nothing of it.
#[derive(Debug)]
pub(crate) struct Pool<B: Bridge> {
    pub(crate) units: Vec<Residency<B::Slab>>,
    pub(crate) holds: Vec<Hold>,
    free: Vec<Slab<B::Slab>>,
    /// Slabs that were replaced while the graph still used them.
    held_by_graph: Vec<Slab<B::Slab>>,
    /// Bytes that may stay, of all but units that always do.
    kept: u64,
    /// Bytes that there may be while the largest call has its own.
    limit: u64,
    /// Whether a gather is a collective.
    collective: bool,
    ledger: Ledger,
    warned: Vec<bool>,
}

impl<B: Bridge> Pool<B> {
    /// `kept` bytes may stay; `largest` are those of the largest call, which may be more.
    pub(crate) fn new(units: usize, kept: u64, largest: u64, collective: bool, ledger: Ledger) -> Self {
        Self {
            units: (0..units).map(|_| Residency::Absent).collect(),
            holds: vec![Hold::default(); units],
            free: Vec::new(),
            held_by_graph: Vec::new(),
            kept,
            limit: kept.max(largest),
            collective,
            ledger,
            warned: vec![false; units],
        }
    }

    /// Bytes of units that may be released.
    fn resident_bytes(&self) -> u64 {
        let pooled = self.units.iter().zip(&self.holds).filter(|(_, hold)| !hold.always);
        pooled
            .map(|(unit, _)| match unit {
                Residency::Absent => 0,
                Residency::Filling { slab, .. } | Residency::Gathered { slab, .. } => slab.bytes(),
            })
            .sum()
    }

    fn held_bytes(&self) -> u64 {
        self.held_by_graph.iter().map(Slab::bytes).sum()
    }

    fn free_bytes(&self) -> u64 {
        self.free.iter().map(Slab::bytes).sum()
    }

    /// Sorts slabs that the graph has let go since to the free ones.
    fn reap(&mut self, bridge: &B) {
        let (held, free) = std::mem::take(&mut self.held_by_graph)
            .into_iter()
            .partition(|slab: &Slab<B::Slab>| bridge.is_shared(&slab.buffer));
        self.held_by_graph = held;
        self.free.extend::<Vec<_>>(free);
    }

    /// A slab like `wanted`, that nobody shares. `None` if that would take a slab that is in use and the caller can do
    /// without.
    pub(crate) fn take(&mut self, bridge: &mut B, order: &Order, wanted: &Wanted<'_>) -> Result<Option<Slab<B::Slab>>> {
        self.reap(bridge);
        let bytes = wanted.bytes();
        let pooled = !self.holds.get(wanted.unit).is_some_and(|hold| hold.always);
        if pooled {
            let limit = if wanted.must_have { self.limit } else { self.kept };
            if !wanted.must_have {
                // Nothing gives way in vain.
                let may_go =
                    self.victims(bridge, order, Some(wanted)).filter_map(|(_, unit)| self.may_go(bridge, unit));
                if self.resident_bytes() + self.held_in_books() + bytes > limit + may_go.sum::<u64>() {
                    return Ok(None);
                }
            }
            while self.resident_bytes() + self.held_in_books() + bytes > limit {
                match self.farthest(bridge, order, Some(wanted)) {
                    Some(victim) => self.release(bridge, victim),
                    None if wanted.must_have => break,
                    None => return Ok(None),
                }
            }
        }
        if let Some(at) = self.free.iter().position(|slab| wanted.is_like(slab)) {
            return Ok(Some(self.free.swap_remove(at)));
        }
        while pooled && self.resident_bytes() + self.held_bytes() + self.free_bytes() + bytes > self.limit {
            if self.free.pop().is_none() {
                self.warn_overflow(bridge, wanted);
                break;
            }
        }
        let allotment = self.ledger.allot(Place::Device, Role::Slab, wanted.name, bytes)?;
        Ok(Some(Slab::new(bridge.allocate(wanted.dtype, wanted.elements)?, wanted.dtype, wanted.elements, allotment)))
    }

    /// What is beyond the bytes that may stay goes: a call is over that had more.
    pub(crate) fn trim(&mut self, bridge: &B, order: &Order) {
        if self.limit == self.kept {
            return;
        }
        self.reap(bridge);
        // What alone is more than that goes in any case, and others may stay then.
        for unit in 0..self.units.len() {
            if self.may_go(bridge, unit).is_some_and(|bytes| bytes > self.kept) {
                self.release(bridge, unit);
            }
        }
        while self.resident_bytes() + self.held_in_books() > self.kept {
            match self.farthest(bridge, order, None) {
                Some(victim) => self.release(bridge, victim),
                None => break,
            }
        }
        while self.resident_bytes() + self.held_bytes() + self.free_bytes() > self.kept && self.free.pop().is_some() {}
    }

    /// Bytes that this rank's graph holds, which count only where no other rank must choose alike.
    fn held_in_books(&self) -> u64 {
        if self.collective { 0 } else { self.held_bytes() }
    }

    /// The bytes that would be free if the unit's slab went, if it is there and may go.
    fn may_go(&self, bridge: &B, unit: usize) -> Option<u64> {
        match &self.units[unit] {
            // One that the graph holds frees nothing.
            Residency::Gathered { slab, .. }
                if self.holds[unit].lets_go() && (self.collective || !bridge.is_shared(&slab.buffer)) =>
            {
                Some(slab.bytes())
            }
            _ => None,
        }
    }

    fn release(&mut self, bridge: &B, unit: usize) {
        if let Residency::Gathered { slab, .. } = std::mem::replace(&mut self.units[unit], Residency::Absent) {
            self.discard(bridge, slab);
        }
    }

    /// The gathered unit that may go for `wanted` and is itself wanted last.
    fn farthest(&self, bridge: &B, order: &Order, wanted: Option<&Wanted<'_>>) -> Option<usize> {
        self.victims(bridge, order, wanted).max().map(|(_, unit)| unit)
    }

    /// Gathered units that may go, after the distance to their next use. For a fetch ahead, none that is wanted before
    /// what it fetches.
    fn victims(&self, bridge: &B, order: &Order, wanted: Option<&Wanted<'_>>) -> impl Iterator<Item = (usize, usize)> {
        let (own, mine) = match wanted {
            Some(wanted) if wanted.must_have => (Some(wanted.unit), None),
            Some(wanted) => (Some(wanted.unit), Some(order.distance(wanted.unit))),
            None => (None, None),
        };
        (0..self.units.len())
            .filter(move |&unit| Some(unit) != own && self.may_go(bridge, unit).is_some())
            // `None` (not expected at all) is farther than any distance.
            .map(|unit| (order.distance(unit).map_or(usize::MAX, |distance| distance), unit))
            .filter(move |(distance, _)| mine.is_none_or(|mine| mine.is_some_and(|mine| *distance > mine)))
    }

    fn warn_overflow(&mut self, bridge: &B, wanted: &Wanted<'_>) {
        if std::mem::replace(&mut self.warned[wanted.unit], true) {
            return;
        }
        let shared = self
            .units
            .iter()
            .filter(|unit| matches!(unit, Residency::Gathered { slab, .. } if bridge.is_shared(&slab.buffer)))
            .count();
        tracing::warn!(
            unit = wanted.name,
            bytes = wanted.bytes(),
            pool_bytes = self.limit,
            still_referenced = shared + self.held_by_graph.len(),
            "the slab pool overflows: nothing in it can be released; raise schedule.pool_bytes, or schedule.copy_below \
             if the graph keeps views of parameters"
        );
    }

    /// The unit's slab is not wanted any more: free it, or leave it to the graph.
    pub(crate) fn discard(&mut self, bridge: &B, slab: Slab<B::Slab>) {
        if bridge.is_shared(&slab.buffer) {
            self.held_by_graph.push(slab);
        } else {
            self.free.push(slab);
        }
    }

    /// Bytes of fills in flight.
    pub(crate) fn filling_bytes(&self) -> u64 {
        let filling = self.units.iter().map(|unit| match unit {
            Residency::Filling { slab, .. } => slab.bytes(),
            _ => 0,
        });
        filling.sum()
    }
}
