//! Offload targets that dawdle.

use super::Delays;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stoker_core::{Bound, HostBuffer, OffloadTarget, Region, RegionSpec, Result, TargetTraits, Ticket};

/// Does what another target does, and completes reads and writes late: yields the processor a number of times that looks
/// random before the call and before its ticket is waited on, and says of the ticket that it is not ready the first few
/// times. Around a [`StagedTarget`](crate::staged::StagedTarget), what is written late is also seen late.
///
/// [`Region::host`] is handed on: who works in place is not delayed.
#[derive(Debug, Clone)]
pub struct LateTarget {
    inner: Arc<dyn OffloadTarget>,
    seed: u64,
    one_in: u64,
    hides_host: bool,
    regions: Arc<AtomicU64>,
}

impl LateTarget {
    /// All reads and writes are late; by how much follows from `seed` and the number of the region, whichever thread
    /// uses it when.
    pub fn new(inner: Arc<dyn OffloadTarget>, seed: u64) -> Self {
        Self { inner, seed, one_in: 1, hides_host: false, regions: Arc::default() }
    }

    /// One in so many `calls` is late, at random, and that one by more.
    pub fn one_in(self, calls: u64) -> Self {
        Self { one_in: calls, ..self }
    }

    /// The memory cannot be addressed, so that everything is read and written.
    pub fn hiding_host(self) -> Self {
        Self { hides_host: true, ..self }
    }
}

impl OffloadTarget for LateTarget {
    fn traits(&self) -> TargetTraits {
        let traits = self.inner.traits();
        TargetTraits { host_addressable: traits.host_addressable && !self.hides_host, ..traits }
    }

    fn bounds(&self) -> Vec<Bound> {
        self.inner.bounds()
    }

    fn allocate(&self, spec: RegionSpec) -> Result<Box<dyn Region>> {
        let inner = self.inner.allocate(spec)?;
        let number = self.regions.fetch_add(1, Ordering::Relaxed);
        let delays = Delays::new(self.seed ^ number << 32).one_in(self.one_in);
        Ok(Box::new(LateRegion { inner, delays, hides_host: self.hides_host }))
    }
}

#[derive(Debug)]
struct LateRegion {
    inner: Box<dyn Region>,
    delays: Delays,
    hides_host: bool,
}

impl Region for LateRegion {
    fn spec(&self) -> &RegionSpec {
        self.inner.spec()
    }

    fn read(&mut self, at: usize, into: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.delays.pass(|| self.inner.read(at, into))
    }

    fn write(&mut self, at: usize, from: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.delays.pass(|| self.inner.write(at, from))
    }

    fn host(&mut self) -> Option<&mut HostBuffer> {
        if self.hides_host { None } else { self.inner.host() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staged::StagedTarget;
    use stoker_core::{DType, Place, Role};

    fn staged(capacity: Option<u64>) -> Arc<dyn OffloadTarget> {
        Arc::new(StagedTarget::new(Place::Disk, capacity))
    }

    #[test]
    fn keeps_every_law_though_late() {
        for one_in in [1, 3] {
            crate::offload::conforms(|| Arc::new(LateTarget::new(staged(None), 1).one_in(one_in)));
            crate::offload::conforms(|| Arc::new(LateTarget::new(staged(Some(100_001)), 2).one_in(one_in)));
        }
    }

    /// How often each of 3000 accesses, of three regions in turn, says that it is not ready.
    fn answers(target: &LateTarget) -> Vec<usize> {
        let spec = RegionSpec { unit: "u".into(), role: Role::Parameters, dtype: DType::BF16, elements: 1 };
        let mut regions: Vec<_> = (0..3).map(|_| target.allocate(spec.clone()).unwrap()).collect();
        let mut ask = |call: usize| {
            let region = &mut regions[call % 3];
            let buffer = HostBuffer::zeros_of(DType::BF16, 1);
            let ticket = if call.is_multiple_of(2) { region.read(0, buffer) } else { region.write(0, buffer) }.unwrap();
            let times = (0..9).take_while(|_| !ticket.is_ready()).count();
            ticket.wait().unwrap();
            times
        };
        (0..3000).map(&mut ask).collect()
    }

    #[test]
    fn one_access_in_a_hundred_is_late_and_the_same_again() {
        // The staged target itself is not ready when it is asked first.
        let late = |answers: &[usize]| answers.iter().filter(|times| **times > 1).count();
        let of = |seed| answers(&LateTarget::new(staged(None), seed).one_in(100));
        let found = of(7);
        assert!((15..60).contains(&late(&found)), "{} of 3000 accesses are late", late(&found));
        assert!(found.iter().all(|times| *times < 9), "nothing is late for ever");
        assert_eq!(found, of(7));
        assert_ne!(found, of(8));
        assert!(late(&answers(&LateTarget::new(staged(None), 7))) > 1800, "without a rate, most are late");
    }
}
