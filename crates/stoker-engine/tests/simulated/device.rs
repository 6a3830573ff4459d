//! A device that the host cannot address, whose copies are done at once or only when they are waited for.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use stoker_core::{Completion, HostBuffer, Result, Ticket};
use stoker_engine::{Bridge, Landing};
use stoker_testkit::values;

/// Device memory: clones stand for views that a graph holds.
pub(crate) type Memory = Arc<Mutex<Vec<f32>>>;

#[derive(Debug)]
pub(crate) struct SimulatedDevice {
    /// Decides which copies are late.
    pub(crate) seed: u64,
    /// Whether the host can address the memory after all (as on a CPU backend).
    pub(crate) lends: bool,
}

#[derive(Debug)]
pub(crate) struct SimulatedSlab(pub(crate) Memory);

impl SimulatedDevice {
    fn late(&mut self) -> bool {
        !values::next(&mut self.seed).is_multiple_of(4)
    }
}

/// A copy that happens when it is waited for; until then its target holds no numbers.
struct Late<F>(F);

impl<T, F: FnOnce() -> T + Send> Completion<T> for Late<F> {
    fn wait(self: Box<Self>) -> Result<T> {
        Ok((self.0)())
    }

    fn is_ready(&self) -> bool {
        false
    }
}

impl Bridge for SimulatedDevice {
    type Slab = SimulatedSlab;
    type Gradient = Vec<f32>;

    fn allocate(&mut self, elements: usize) -> Result<SimulatedSlab> {
        Ok(SimulatedSlab(Arc::new(Mutex::new(vec![0.0; elements]))))
    }

    fn is_shared(&self, slab: &SimulatedSlab) -> bool {
        Arc::strong_count(&slab.0) > 1
    }

    fn lend(&mut self, slab: &mut SimulatedSlab) -> Option<HostBuffer> {
        (self.lends && !self.is_shared(slab))
            .then(|| HostBuffer::from_slice(&std::mem::take(&mut *slab.0.lock().unwrap())))
    }

    fn restore(&mut self, slab: &mut SimulatedSlab, memory: HostBuffer) {
        *slab.0.lock().unwrap() = memory.as_slice::<f32>().to_vec();
    }

    fn copy_in(&mut self, source: HostBuffer, slab: &mut SimulatedSlab) -> Result<Ticket<HostBuffer>> {
        assert!(!self.is_shared(slab), "a slab that the graph uses was overwritten");
        let target = slab.0.clone();
        target.lock().unwrap().fill(f32::NAN);
        let copy = move || {
            target.lock().unwrap()[..source.len()].copy_from_slice(source.as_slice::<f32>());
            source
        };
        Ok(if self.late() { Ticket::pending(Late(copy)) } else { Ticket::ready(copy()) })
    }

    fn copy_out(
        &mut self,
        slab: &SimulatedSlab,
        range: Range<usize>,
        mut into: HostBuffer,
    ) -> Result<Ticket<HostBuffer>> {
        let source = slab.0.clone();
        let copy = move || {
            into.as_mut_slice::<f32>().copy_from_slice(&source.lock().unwrap()[range]);
            into
        };
        Ok(if self.late() { Ticket::pending(Late(copy)) } else { Ticket::ready(copy()) })
    }

    fn land(
        &mut self,
        gradient: Vec<f32>,
        slab: &mut SimulatedSlab,
        range: Range<usize>,
        landing: Landing,
    ) -> Result<()> {
        for (place, value) in slab.0.lock().unwrap()[range].iter_mut().zip(gradient) {
            *place = if landing == Landing::Add { *place + value } else { value };
        }
        Ok(())
    }
}
