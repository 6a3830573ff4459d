//! Memory that can only be reached by reads and writes, as a device's or a file's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use stoker_core::offload::{Allowance, MemoryRegion};
use stoker_core::{
    Completion, Error, HostBuffer, OffloadTarget, Place, Region, RegionSpec, Result, TargetTraits, Ticket,
};

/// An [`OffloadTarget`] whose regions give no `host` and whose tickets are pending.
///
/// As unhelpful as the contract allows: a write is stored when its ticket is waited on (or dropped), not before, so that
/// who reads earlier reads what was there earlier; and a ticket says that it is not ready when it is asked first.
#[derive(Debug, Clone)]
pub struct StagedTarget {
    place: Place,
    capacity: Option<u64>,
    used: Allowance,
}

impl StagedTarget {
    /// A target that says it is at `place` and has `capacity` bytes.
    pub fn new(place: Place, capacity: Option<u64>) -> Self {
        Self { place, capacity, used: Allowance::default() }
    }

    /// Bytes that are handed out.
    pub fn used(&self) -> u64 {
        self.used.used()
    }
}

impl OffloadTarget for StagedTarget {
    fn traits(&self) -> TargetTraits {
        let capacity_left = self.capacity.map(|capacity| capacity.saturating_sub(self.used()));
        TargetTraits { place: self.place, host_addressable: false, capacity_left }
    }

    fn allocate(&self, spec: RegionSpec) -> Result<Box<dyn Region>> {
        const ADVICE: &str = "Give the test's target more";
        let taken =
            self.used.take(spec.bytes(), self.capacity.unwrap_or(u64::MAX)).map_err(|available| Error::Full {
                unit: spec.unit.clone(),
                role: spec.role,
                place: self.place,
                needed: spec.bytes(),
                available,
                advice: ADVICE.to_owned(),
            })?;
        let memory = MemoryRegion::new(spec.clone(), taken, self.place, ADVICE)?;
        Ok(Box::new(StagedRegion { spec, memory: Arc::new(Mutex::new(memory)) }))
    }
}

#[derive(Debug)]
struct StagedRegion {
    spec: RegionSpec,
    memory: Arc<Mutex<MemoryRegion>>,
}

impl Region for StagedRegion {
    fn spec(&self) -> &RegionSpec {
        &self.spec
    }

    fn read(&mut self, at: usize, into: HostBuffer) -> Result<Ticket<HostBuffer>> {
        let buffer = self.memory.lock().unwrap().read(at, into)?.wait()?;
        Ok(Ticket::pending(Staged { buffer: Some(buffer), write: None, asked: AtomicBool::new(false) }))
    }

    fn write(&mut self, at: usize, from: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.spec.check(at, &from, "writing")?;
        let write = Some((at, self.memory.clone()));
        Ok(Ticket::pending(Staged { buffer: Some(from), write, asked: AtomicBool::new(false) }))
    }

    fn host(&mut self) -> Option<&mut HostBuffer> {
        None
    }
}

struct Staged {
    buffer: Option<HostBuffer>,
    /// Where the buffer is still to be stored.
    write: Option<(usize, Arc<Mutex<MemoryRegion>>)>,
    asked: AtomicBool,
}

impl Staged {
    fn finish(&mut self) -> Result<HostBuffer> {
        let buffer = self.buffer.take().unwrap_or_default();
        match self.write.take() {
            Some((at, memory)) => memory.lock().unwrap().write(at, buffer)?.wait(),
            None => Ok(buffer),
        }
    }
}

impl Completion<HostBuffer> for Staged {
    fn wait(mut self: Box<Self>) -> Result<HostBuffer> {
        self.finish()
    }

    fn is_ready(&self) -> bool {
        self.asked.swap(true, Ordering::Relaxed)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // A dropped ticket does not cancel the work.
        if self.write.is_some() {
            let _ = self.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoker_core::{DType, Role};

    #[test]
    fn keeps_every_law() {
        crate::offload::conforms(|| Arc::new(StagedTarget::new(Place::Disk, None)));
        crate::offload::conforms(|| Arc::new(StagedTarget::new(Place::Pinned, Some(100_001))));
    }

    #[test]
    fn a_write_is_seen_when_its_ticket_is_done_and_not_before() {
        let spec = RegionSpec { unit: "u".into(), role: Role::Parameters, dtype: DType::F32, elements: 1 };
        let mut region = StagedTarget::new(Place::Disk, None).allocate(spec).unwrap();
        let read = |region: &mut dyn Region| {
            region.read(0, HostBuffer::zeros::<f32>(1)).unwrap().wait().unwrap().as_slice::<f32>()[0]
        };
        let ticket = region.write(0, HostBuffer::from_slice(&[1.0f32])).unwrap();
        assert!(!ticket.is_ready());
        assert_eq!(read(region.as_mut()), 0.0);
        assert!(ticket.is_ready());
        ticket.wait().unwrap();
        assert_eq!(read(region.as_mut()), 1.0);
        drop(region.write(0, HostBuffer::from_slice(&[2.0f32])).unwrap());
        assert_eq!(read(region.as_mut()), 2.0);
    }
}
