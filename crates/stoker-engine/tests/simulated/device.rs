//! A device that the host cannot address, whose copies are done at once or only when they are waited for.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use stoker_core::half::{bf16, f16};
use stoker_core::{Completion, DType, HostBuffer, Result, Ticket};
use stoker_engine::{Bridge, Landing};
use stoker_testkit::values;

/// Device memory: clones stand for views that a graph holds.
pub(crate) type Memory = Arc<Mutex<HostBuffer>>;

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

/// The numbers of a buffer of any type.
pub(crate) fn numbers(buffer: &HostBuffer) -> Vec<f32> {
    match buffer.dtype() {
        DType::F16 => buffer.as_slice::<f16>().iter().map(|value| value.to_f32()).collect(),
        DType::BF16 => buffer.as_slice::<bf16>().iter().map(|value| value.to_f32()).collect(),
        _ => buffer.as_slice::<f32>().to_vec(),
    }
}

fn set(buffer: &mut HostBuffer, at: usize, value: f32) {
    match buffer.dtype() {
        DType::F16 => buffer.as_mut_slice()[at] = f16::from_f32(value),
        DType::BF16 => buffer.as_mut_slice()[at] = bf16::from_f32(value),
        _ => buffer.as_mut_slice()[at] = value,
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

    fn allocate(&mut self, dtype: DType, elements: usize) -> Result<SimulatedSlab> {
        Ok(SimulatedSlab(Arc::new(Mutex::new(HostBuffer::zeros_of(dtype, elements)))))
    }

    fn is_shared(&self, slab: &SimulatedSlab) -> bool {
        Arc::strong_count(&slab.0) > 1
    }

    fn lend(&mut self, slab: &mut SimulatedSlab) -> Option<HostBuffer> {
        (self.lends && !self.is_shared(slab)).then(|| slab.0.lock().unwrap().take())
    }

    fn restore(&mut self, slab: &mut SimulatedSlab, memory: HostBuffer) {
        *slab.0.lock().unwrap() = memory;
    }

    fn copy_in(&mut self, source: HostBuffer, slab: &mut SimulatedSlab) -> Result<Ticket<HostBuffer>> {
        assert!(!self.is_shared(slab), "a slab that the graph uses was overwritten");
        let target = slab.0.clone();
        // All ones are NaN in every type.
        target.lock().unwrap().as_mut_bytes().fill(0xff);
        let copy = move || {
            target.lock().unwrap().copy_elements(0, &source, 0..source.len());
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
            into.copy_elements(0, &source.lock().unwrap(), range);
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
    ) -> Result<bool> {
        let mut memory = slab.0.lock().unwrap();
        let old = numbers(&memory);
        for (at, value) in range.zip(&gradient) {
            set(&mut memory, at, if landing == Landing::Add { old[at] + value } else { *value });
        }
        Ok(gradient.iter().all(|value| value.is_finite()))
    }
}
