//! A device that the host cannot address, whose copies are done at once or only when they are waited for.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use stoker_core::half::{bf16, f16};
use stoker_core::{Completion, DType, HostBuffer, HostMemory, Result, Ticket};
use stoker_engine::{Bridge, DeviceRoom, Landing};
use stoker_kernels::norm::sum_of_squares;
use stoker_testkit::values;

/// Device memory: clones stand for views that a graph holds.
pub(crate) type Memory = Arc<Mutex<HostBuffer>>;

#[derive(Debug)]
pub(crate) struct SimulatedDevice {
    /// Decides which copies are late.
    pub(crate) seed: u64,
    /// Whether the host can address the memory after all (as on a CPU backend).
    pub(crate) lends: bool,
    /// Whether it sums squares itself.
    pub(crate) sums: bool,
    pub(crate) memory: DeviceRoom,
}

#[derive(Debug)]
pub(crate) struct SimulatedSlab {
    pub(crate) memory: Memory,
    /// The last copy to it.
    incoming: Option<Arc<Mutex<CopyIn>>>,
}

/// A copy to a slab, which happens when the computation is told to wait for it, or when its ticket is waited for.
#[derive(Debug)]
struct CopyIn {
    source: HostBuffer,
    /// Until it is done.
    target: Option<Memory>,
}

impl CopyIn {
    fn finish(&mut self) {
        if let Some(target) = self.target.take() {
            target.lock().unwrap().copy_elements(0, &self.source, 0..self.source.len());
        }
    }
}

impl SimulatedDevice {
    fn late(&mut self) -> bool {
        !values::next(&mut self.seed).is_multiple_of(4)
    }

    fn later<T: Send + 'static>(&mut self, copy: impl FnOnce() -> T + Send + 'static) -> Ticket<T> {
        let says_ready = values::next(&mut self.seed).is_multiple_of(2);
        Ticket::pending(Late { copy, says_ready })
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

/// A copy that happens when it is waited for, whatever it says of itself; until then its target holds no numbers.
struct Late<F> {
    copy: F,
    says_ready: bool,
}

impl<T, F: FnOnce() -> T + Send> Completion<T> for Late<F> {
    fn wait(self: Box<Self>) -> Result<T> {
        Ok((self.copy)())
    }

    fn is_ready(&self) -> bool {
        self.says_ready
    }
}

impl Bridge for SimulatedDevice {
    type Slab = SimulatedSlab;
    type Gradient = Vec<f32>;

    fn allocate(&mut self, dtype: DType, elements: usize) -> Result<SimulatedSlab> {
        let memory = Arc::new(Mutex::new(HostBuffer::zeros_of(dtype, elements)));
        Ok(SimulatedSlab { memory, incoming: None })
    }

    fn is_shared(&self, slab: &SimulatedSlab) -> bool {
        Arc::strong_count(&slab.memory) > 1
    }

    fn lend(&mut self, slab: &mut SimulatedSlab) -> Option<HostBuffer> {
        (self.lends && !self.is_shared(slab)).then(|| slab.memory.lock().unwrap().take())
    }

    fn restore(&mut self, slab: &mut SimulatedSlab, memory: HostBuffer) {
        *slab.memory.lock().unwrap() = memory;
    }

    fn copy_in(&mut self, source: HostBuffer, slab: &mut SimulatedSlab) -> Result<Ticket<HostBuffer>> {
        assert!(slab.incoming.is_none(), "a slab was overwritten before it was used");
        assert!(!self.is_shared(slab), "a slab that the graph uses was overwritten");
        // All ones are NaN in every type.
        slab.memory.lock().unwrap().as_mut_bytes().fill(0xff);
        let copy = Arc::new(Mutex::new(CopyIn { source, target: Some(slab.memory.clone()) }));
        if !self.late() {
            copy.lock().unwrap().finish();
        }
        slab.incoming = Some(copy.clone());
        Ok(self.later(move || {
            let mut copy = copy.lock().unwrap();
            copy.finish();
            copy.source.take()
        }))
    }

    fn before_use(&mut self, slab: &mut SimulatedSlab) -> Result<()> {
        if let Some(copy) = slab.incoming.take() {
            copy.lock().unwrap().finish();
        }
        Ok(())
    }

    fn copy_out(
        &mut self,
        slab: &SimulatedSlab,
        range: Range<usize>,
        mut into: HostBuffer,
    ) -> Result<Ticket<HostBuffer>> {
        let source = slab.memory.clone();
        let copy = move || {
            into.copy_elements(0, &source.lock().unwrap(), range);
            into
        };
        Ok(if self.late() { self.later(copy) } else { Ticket::ready(copy()) })
    }

    fn land(
        &mut self,
        gradient: Vec<f32>,
        slab: &mut SimulatedSlab,
        range: Range<usize>,
        landing: Landing,
    ) -> Result<bool> {
        let mut memory = slab.memory.lock().unwrap();
        let old = numbers(&memory);
        for (at, value) in range.zip(&gradient) {
            set(&mut memory, at, if landing == Landing::Add { old[at] + value } else { *value });
        }
        Ok(gradient.iter().all(|value| value.is_finite()))
    }

    fn sums_of_squares(&mut self, slab: &SimulatedSlab, ranges: &[Range<usize>]) -> Result<Option<Ticket<Vec<f64>>>> {
        if !self.sums {
            return Ok(None);
        }
        let values = numbers(&slab.memory.lock().unwrap());
        let sums: Vec<f64> = ranges.iter().map(|range| sum_of_squares(&values[range.clone()])).collect();
        Ok(Some(self.later(move || sums)))
    }

    fn memory(&self) -> Result<DeviceRoom> {
        Ok(self.memory)
    }

    fn pins(&self) -> bool {
        true
    }

    fn pin(&mut self, memory: HostBuffer) -> HostBuffer {
        let words = vec![u64::MAX; memory.bytes().div_ceil(8)];
        memory.moved_to(Box::new(Pinned(words))).unwrap()
    }
}

/// Memory of another kind, as pinned memory is.
#[derive(Debug)]
struct Pinned(Vec<u64>);

impl HostMemory for Pinned {
    fn words(&self) -> &[u64] {
        &self.0
    }

    fn words_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }
}
