//! Which units are gathered, and whose slab goes when room is needed.

use crate::Bridge;
use crate::ledger::{Allotment, Ledger};
use crate::order::Order;
use stoker_core::communicator::Exchanged;
use stoker_core::{HostBuffer, Place, Result, Role, Ticket};

/// Where a unit's gathered parameters are, and what memory that costs.
#[derive(Debug)]
pub(crate) enum Residency<S> {
    /// Nowhere: only the shards exist.
    Absent,
    /// On their way: a slab, and what is in flight.
    Filling { slab: Slab<S>, filling: Filling, version: u64 },
    /// In a slab, as of update `version`.
    Gathered { slab: Slab<S>, version: u64 },
}

/// What is in flight towards a slab.
#[derive(Debug)]
pub(crate) enum Filling {
    /// The device copies from the parameter region's own memory.
    FromRegion(Ticket<HostBuffer>),
    /// Ranks exchange shards. `in_place`: the result is the slab's own memory. `region_lent`: what was sent is the
    /// parameter region's own memory.
    Gather { exchange: Ticket<Exchanged>, in_place: bool, region_lent: bool, _staging: Vec<Allotment> },
    /// The device copies from a staging buffer.
    FromStaging(Ticket<HostBuffer>, Vec<Allotment>),
}

/// A device buffer and its entry in the books.
#[derive(Debug)]
pub(crate) struct Slab<S> {
    pub(crate) buffer: S,
    pub(crate) elements: usize,
    /// Held for its drop.
    _allotment: Allotment,
}

impl<S> Slab<S> {
    pub(crate) fn new(buffer: S, elements: usize, allotment: Allotment) -> Self {
        Self { buffer, elements, _allotment: allotment }
    }
}

/// What makes a unit's slab give way, or not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hold {
    /// Calls of the unit that run now.
    pub(crate) calls: usize,
    /// Kept from forward to backward (`reshard_after_forward = false`).
    pub(crate) until_backward: bool,
    /// Kept always (stages 0 to 2, persistent units).
    pub(crate) always: bool,
}

impl Hold {
    fn lets_go(self) -> bool {
        self.calls == 0 && !self.until_backward && !self.always
    }
}

/// [Note: Residency is lazy] A gathered unit stays until its bytes are wanted by another. Since the order of uses is
/// known (see [Note: Order]), the one whose next use is farthest goes first (Belady's rule), so a unit that is the last
/// of forward and the first of backward is not gathered twice. A slab that the autodiff graph still references is never
/// overwritten: it leaves the pool and lives as long as the graph wants, and the books count it until it is dropped.
#[derive(Debug)]
pub(crate) struct Pool<B: Bridge> {
    pub(crate) units: Vec<Residency<B::Slab>>,
    pub(crate) holds: Vec<Hold>,
    free: Vec<Slab<B::Slab>>,
    /// Slabs that were replaced while the graph still used them.
    held_by_graph: Vec<Slab<B::Slab>>,
    limit: u64,
    ledger: Ledger,
    warned: Vec<bool>,
}

impl<B: Bridge> Pool<B> {
    pub(crate) fn new(units: usize, limit: u64, ledger: Ledger) -> Self {
        Self {
            units: (0..units).map(|_| Residency::Absent).collect(),
            holds: vec![Hold::default(); units],
            free: Vec::new(),
            held_by_graph: Vec::new(),
            limit,
            ledger,
            warned: vec![false; units],
        }
    }

    /// Bytes that the limit applies to: slabs of units that may be released, free ones, and ones that the graph holds.
    fn pooled_bytes(&self) -> u64 {
        let of_units =
            self.units.iter().zip(&self.holds).filter(|(_, hold)| !hold.always).map(|(unit, _)| match unit {
                Residency::Absent => 0,
                Residency::Filling { slab, .. } | Residency::Gathered { slab, .. } => slab.elements,
            });
        let spare = self.free.iter().chain(&self.held_by_graph).map(|slab| slab.elements);
        of_units.chain(spare).map(|elements| elements as u64 * 4).sum()
    }

    /// Sorts slabs that the graph has let go since to the free ones.
    fn reap(&mut self, bridge: &B) {
        let (held, free) = std::mem::take(&mut self.held_by_graph)
            .into_iter()
            .partition(|slab: &Slab<B::Slab>| bridge.is_shared(&slab.buffer));
        self.held_by_graph = held;
        self.free.extend::<Vec<_>>(free);
    }

    /// A slab of exactly `elements` for `unit`, that nobody shares. `None` if that would take a slab that is in use and
    /// the caller can do without (`must_have` is false).
    pub(crate) fn take(
        &mut self,
        bridge: &mut B,
        order: &Order,
        unit: usize,
        name: &str,
        elements: usize,
        must_have: bool,
    ) -> Result<Option<Slab<B::Slab>>> {
        self.reap(bridge);
        if let Some(at) = self.free.iter().position(|slab| slab.elements == elements) {
            return Ok(Some(self.free.swap_remove(at)));
        }
        let bytes = elements as u64 * 4;
        let outside = self.holds.get(unit).is_some_and(|hold| hold.always);
        while !outside && self.pooled_bytes() + bytes > self.limit {
            if self.free.pop().is_some() {
                continue;
            }
            match self.farthest(bridge, order, unit, must_have) {
                Some(victim) => {
                    let Residency::Gathered { slab, .. } =
                        std::mem::replace(&mut self.units[victim], Residency::Absent)
                    else {
                        break;
                    };
                    if slab.elements == elements {
                        return Ok(Some(slab));
                    }
                }
                None if must_have => {
                    self.warn_overflow(bridge, unit, name, bytes);
                    break;
                }
                None => return Ok(None),
            }
        }
        let allotment = self.ledger.allot(Place::Device, Role::Slab, name, bytes)?;
        Ok(Some(Slab::new(bridge.allocate(elements)?, elements, allotment)))
    }

    /// The gathered unit that may go and is wanted last. A fetch ahead (`must_have` is false) takes none that is wanted
    /// before what it fetches.
    fn farthest(&self, bridge: &B, order: &Order, wanted: usize, must_have: bool) -> Option<usize> {
        let mine = order.distance(wanted);
        (0..self.units.len())
            .filter(|&unit| unit != wanted && self.holds[unit].lets_go())
            .filter(|&unit| match &self.units[unit] {
                Residency::Gathered { slab, .. } => !bridge.is_shared(&slab.buffer),
                _ => false,
            })
            // `None` (not expected at all) is farther than any distance.
            .map(|unit| (order.distance(unit).map_or(usize::MAX, |distance| distance), unit))
            .filter(|(distance, _)| must_have || mine.is_some_and(|mine| *distance > mine))
            .max()
            .map(|(_, unit)| unit)
    }

    fn warn_overflow(&mut self, bridge: &B, unit: usize, name: &str, bytes: u64) {
        if std::mem::replace(&mut self.warned[unit], true) {
            return;
        }
        let shared = self
            .units
            .iter()
            .filter(|unit| matches!(unit, Residency::Gathered { slab, .. } if bridge.is_shared(&slab.buffer)))
            .count();
        tracing::warn!(
            unit = name,
            bytes,
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
            Residency::Filling { slab, .. } => slab.elements as u64 * 4,
            _ => 0,
        });
        filling.sum()
    }
}
