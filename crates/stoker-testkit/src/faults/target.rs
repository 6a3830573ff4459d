//! Offload targets that fail.

use super::Countdown;
use std::sync::Arc;
use stoker_core::{
    Bound, Completion, Error, HostBuffer, OffloadTarget, Region, RegionSpec, Result, TargetTraits, Ticket,
};

/// What can fail of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// [`OffloadTarget::allocate`], with [`Error::Full`].
    Allocate,
    /// [`Region::read`], with [`Error::Plugin`].
    Read,
    /// [`Region::write`], with [`Error::Plugin`].
    Write,
}

/// When a read or a write fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In the call.
    Called,
    /// When its ticket is waited on.
    WaitedFor,
}

/// Does what another target does, but for one access. Nothing is allocated, read or written then.
#[derive(Debug, Clone)]
pub struct FaultyTarget {
    inner: Arc<dyn OffloadTarget>,
    fault: Arc<Point>,
}

#[derive(Debug)]
struct Point {
    access: Access,
    when: When,
    countdown: Countdown,
}

impl Point {
    fn is_now(&self, access: Access) -> bool {
        self.access == access && self.countdown.is_now()
    }
}

impl FaultyTarget {
    /// Fails in access `at`, from 0 and over all regions, of this kind.
    pub fn new(inner: Arc<dyn OffloadTarget>, access: Access, at: u64, when: When) -> Self {
        Self { inner, fault: Arc::new(Point { access, when, countdown: Countdown::new(at) }) }
    }
}

impl OffloadTarget for FaultyTarget {
    fn traits(&self) -> TargetTraits {
        self.inner.traits()
    }

    fn bounds(&self) -> Vec<Bound> {
        self.inner.bounds()
    }

    fn allocate(&self, spec: RegionSpec) -> Result<Box<dyn Region>> {
        if self.fault.is_now(Access::Allocate) {
            return Err(Error::Full {
                needed: spec.bytes(),
                unit: spec.unit,
                role: spec.role,
                place: self.traits().place,
                available: 0,
                advice: "A test wants this to fail".to_owned(),
            });
        }
        Ok(Box::new(FaultyRegion { inner: self.inner.allocate(spec)?, fault: self.fault.clone() }))
    }
}

#[derive(Debug)]
struct FaultyRegion {
    inner: Box<dyn Region>,
    fault: Arc<Point>,
}

impl FaultyRegion {
    fn fail(&self, doing: &str) -> Result<Ticket<HostBuffer>> {
        let spec = self.inner.spec();
        let error = Error::Plugin {
            plugin: "faulty target".to_owned(),
            doing: format!("{doing} {} of unit `{}`", spec.role, spec.unit),
            source: "a test wants this to fail".into(),
        };
        match self.fault.when {
            When::Called => Err(error),
            When::WaitedFor => Ok(Ticket::pending(Failed(error))),
        }
    }
}

struct Failed(Error);

impl Completion<HostBuffer> for Failed {
    fn wait(self: Box<Self>) -> Result<HostBuffer> {
        Err(self.0)
    }

    fn is_ready(&self) -> bool {
        true
    }
}

impl Region for FaultyRegion {
    fn spec(&self) -> &RegionSpec {
        self.inner.spec()
    }

    fn read(&mut self, at: usize, into: HostBuffer) -> Result<Ticket<HostBuffer>> {
        if self.fault.is_now(Access::Read) { self.fail("reading") } else { self.inner.read(at, into) }
    }

    fn write(&mut self, at: usize, from: HostBuffer) -> Result<Ticket<HostBuffer>> {
        if self.fault.is_now(Access::Write) { self.fail("writing") } else { self.inner.write(at, from) }
    }

    fn host(&mut self) -> Option<&mut HostBuffer> {
        self.inner.host()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staged::StagedTarget;
    use stoker_core::{DType, Place, Role};

    fn target(access: Access, at: u64, when: When) -> FaultyTarget {
        FaultyTarget::new(Arc::new(StagedTarget::new(Place::Disk, None)), access, at, when)
    }

    fn spec() -> RegionSpec {
        RegionSpec { unit: "u".into(), role: Role::Parameters, dtype: DType::F32, elements: 1 }
    }

    #[test]
    fn one_allocation_fails() {
        let target = target(Access::Allocate, 1, When::Called);
        let found: Vec<_> = (0..3).map(|_| target.allocate(spec()).is_ok()).collect();
        assert_eq!(found, [true, false, true]);
    }

    #[test]
    fn one_write_of_any_region_fails_and_changes_nothing() {
        for when in [When::Called, When::WaitedFor] {
            let target = target(Access::Write, 1, when);
            let mut regions = [target.allocate(spec()).unwrap(), target.allocate(spec()).unwrap()];
            let write = |region: &mut dyn Region, value: f32| {
                let call = region.write(0, HostBuffer::from_slice(&[value]));
                assert!(call.is_ok() || when == When::Called);
                call.and_then(Ticket::wait).is_ok()
            };
            assert!(write(regions[0].as_mut(), 1.0));
            assert!(!write(regions[1].as_mut(), 2.0));
            let found = regions[1].read(0, HostBuffer::zeros::<f32>(1)).unwrap().wait().unwrap();
            assert_eq!(found.as_slice::<f32>(), [0.0]);
            assert!(write(regions[1].as_mut(), 3.0));
        }
    }
}
