//! Regions in ordinary memory, for every target that keeps its bytes there.

use super::{Place, Region, RegionSpec};
use crate::{Error, HostBuffer, Result, Ticket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the bytes that a target has handed out.
///
/// ```
/// use stoker_core::offload::Allowance;
/// let allowance = Allowance::default();
/// let taken = allowance.take(60, 100).unwrap();
/// assert_eq!(allowance.take(50, 100).unwrap_err(), 40); // what is left
/// drop(taken);
/// assert_eq!(allowance.used(), 0);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Allowance(Arc<AtomicU64>);

/// Bytes of an [`Allowance`], given back on drop.
#[derive(Debug)]
#[must_use = "dropping it gives the bytes back"]
pub struct Taken {
    from: Allowance,
    bytes: u64,
}

impl Allowance {
    /// Bytes that are handed out now.
    pub fn used(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Takes `bytes` if no more than `limit` are then in use.
    ///
    /// # Errors
    /// The bytes that are left; none was taken.
    pub fn take(&self, bytes: u64, limit: u64) -> std::result::Result<Taken, u64> {
        let within = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, within) {
            Ok(_) => Ok(Taken { from: self.clone(), bytes }),
            Err(used) => Err(limit.saturating_sub(used)),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.from.0.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// A [`Region`] that is a [`HostBuffer`]: every read and write is done when the call returns.
#[derive(Debug)]
pub struct MemoryRegion {
    spec: RegionSpec,
    memory: HostBuffer,
    _taken: Taken,
}

impl MemoryRegion {
    /// Zeros for `spec`, written at once, so that memory that is not there is missed here and not in a later step.
    ///
    /// # Errors
    /// [`Error::Full`] with `advice` when the allocator refuses; `place` is for the message.
    pub fn new(spec: RegionSpec, taken: Taken, place: Place, advice: &str) -> Result<Self> {
        let mut words = Vec::new();
        let memory = usize::try_from(spec.bytes().div_ceil(8)).ok().and_then(|count| {
            words.try_reserve_exact(count).ok()?;
            words.resize(count, 0);
            HostBuffer::from_words(spec.dtype, spec.elements, words).ok()
        });
        match memory {
            Some(memory) => Ok(Self { spec, memory, _taken: taken }),
            None => Err(Error::Full {
                needed: spec.bytes(),
                unit: spec.unit,
                role: spec.role,
                place,
                available: 0,
                advice: advice.to_owned(),
            }),
        }
    }

    fn check(&self, at: usize, buffer: &HostBuffer, doing: &str) -> Result<()> {
        self.spec.check(at, buffer, doing)?;
        if self.memory.len() == self.spec.elements {
            return Ok(());
        }
        Err(Error::OutOfRange {
            what: format!(
                "what {doing} finds of {} of unit `{}` (was `host` not put back?)",
                self.spec.role, self.spec.unit
            ),
            found: self.memory.len() as u64,
            wanted: self.spec.elements as u64,
        })
    }
}

impl RegionSpec {
    /// Checks that `buffer` has the region's type and fits at element `at`: what every [`Region::read`] and
    /// [`Region::write`] owes before it moves anything. `doing` is for the message.
    ///
    /// # Errors
    /// [`Error::WrongType`], [`Error::OutOfRange`].
    pub fn check(&self, at: usize, buffer: &HostBuffer, doing: &str) -> Result<()> {
        let (unit, role) = (&self.unit, self.role);
        if buffer.dtype() != self.dtype {
            return Err(Error::WrongType {
                what: format!("the buffer for {doing} {role} of unit `{unit}`"),
                found: buffer.dtype(),
                wanted: self.dtype,
            });
        }
        let end = at.saturating_add(buffer.len());
        if end > self.elements {
            return Err(Error::OutOfRange {
                what: format!("the end of {doing} {role} of unit `{unit}`"),
                found: end as u64,
                wanted: self.elements as u64,
            });
        }
        Ok(())
    }
}

impl Region for MemoryRegion {
    fn spec(&self) -> &RegionSpec {
        &self.spec
    }

    fn read(&mut self, at: usize, mut into: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.check(at, &into, "reading")?;
        // In range and of one type: `check` compared them.
        let range = at..at + into.len();
        into.copy_elements(0, &self.memory, range);
        Ok(Ticket::ready(into))
    }

    fn write(&mut self, at: usize, from: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.check(at, &from, "writing")?;
        self.memory.copy_elements(at, &from, 0..from.len());
        Ok(Ticket::ready(from))
    }

    fn host(&mut self) -> Option<&mut HostBuffer> {
        Some(&mut self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Role};

    fn region(elements: usize) -> Result<MemoryRegion> {
        let spec = RegionSpec { unit: "u".into(), role: Role::Gradients, dtype: DType::F32, elements };
        let taken = Allowance::default().take(spec.bytes(), u64::MAX).unwrap();
        MemoryRegion::new(spec, taken, Place::Host, "Use less.")
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut region = region(4).unwrap();
        let message = |result: Result<Ticket<HostBuffer>>| result.unwrap_err().to_string();
        assert!(
            message(region.read(2, HostBuffer::zeros::<f32>(3)))
                .starts_with("the end of reading gradients of unit `u` is 5")
        );
        assert!(message(region.write(usize::MAX, HostBuffer::zeros::<f32>(3))).contains("at most or exactly 4"));
        assert!(message(region.write(0, HostBuffer::zeros::<f64>(1))).contains("is of f64, f32 is wanted"));
        let moved_out = region.host().unwrap().take();
        assert!(message(region.read(0, HostBuffer::zeros::<f32>(1))).contains("was `host` not put back?"));
        *region.host().unwrap() = moved_out;
        assert_eq!(region.read(0, HostBuffer::zeros::<f32>(1)).unwrap().wait().unwrap().as_slice::<f32>(), [0.0]);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let error = region(usize::MAX >> 4).unwrap_err().to_string();
        assert!(error.contains("0 are left. Use less."), "{error}");
    }
}
