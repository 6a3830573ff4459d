//! A device that the host cannot address, whose computation and copies are ordered as the CUDA bridge orders them, and as
//! late or as early as that allows.

use crate::computation::Computation;
use crate::memory::Tensor;
use crate::streams::{AT_ONCE, Mark, Paces, Shared, Stream, Streams, lock};
use std::ops::Range;
use std::sync::Arc;
use stoker_core::{Completion, DType, HostBuffer, HostMemory, Result, Ticket};
use stoker_engine::{Adopted, Bridge, DeviceRoom, Landing};

/// What a bridge may get wrong: so that tests are known to see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The computation is not told to wait for a copy to a slab.
    ForgetsBeforeUse,
    /// Copies to a slab do not wait for the last use of its memory.
    IncomingIsEarly,
    /// Copies from the device do not wait for what computes their source.
    OutgoingIsEarly,
    /// Slabs that a graph has views of look like others.
    HidesViews,
}

#[derive(Debug)]
pub(crate) struct SimulatedDevice {
    streams: Shared,
    /// Whether the host can address the memory after all (as on a CPU backend).
    lends: bool,
    /// Whether it sums squares itself.
    sums: bool,
    memory: DeviceRoom,
    flaw: Option<Flaw>,
}

#[derive(Debug)]
pub(crate) struct SimulatedSlab {
    pub(crate) tensor: Arc<Tensor>,
    /// The end of the last copy to it, until the computation was told of it.
    filled: Option<Mark>,
}

impl SimulatedDevice {
    /// A device that lends its memory does all at once.
    pub(crate) fn new(paces: Paces, seed: u64, lends: bool, sums: bool) -> Self {
        let streams = Streams::start(if lends { AT_ONCE } else { paces }, seed);
        Self { streams, lends, sums, memory: DeviceRoom::Unknown, flaw: None }
    }

    pub(crate) fn with_memory(self, memory: DeviceRoom) -> Self {
        Self { memory, ..self }
    }

    pub(crate) fn with_flaw(self, flaw: Option<Flaw>) -> Self {
        Self { flaw, ..self }
    }

    /// What a copy stream is asked for from here on comes after all computation that was asked for until now.
    fn follow_computation(&self, stream: Stream, flaw: Flaw) {
        if self.flaw != Some(flaw) {
            let mut streams = lock(&self.streams);
            let now = streams.now(Stream::Computation);
            streams.order(stream, now);
        }
    }

    fn ticket(&self, mark: Mark, source: Option<Arc<Tensor>>) -> Ticket<HostBuffer> {
        Ticket::pending(Copy { streams: self.streams.clone(), mark, _source: source })
    }

    fn copy_from(&self, source: Arc<Tensor>, range: Range<usize>, mut into: HostBuffer) -> Ticket<HostBuffer> {
        assert_eq!(into.len(), range.len(), "a copy from the device has a target of another size");
        self.follow_computation(Stream::Outgoing, Flaw::OutgoingIsEarly);
        let place = source.place;
        let mark = lock(&self.streams).ask(Stream::Outgoing, move |blocks| {
            blocks.with(place, |memory| into.copy_elements(0, memory, range));
            Some(into)
        });
        self.ticket(mark, Some(source))
    }
}

/// A copy, which its drop waits for, and the device memory that it reads.
struct Copy {
    streams: Shared,
    mark: Mark,
    _source: Option<Arc<Tensor>>,
}

impl Completion<HostBuffer> for Copy {
    fn wait(self: Box<Self>) -> Result<HostBuffer> {
        Ok(lock(&self.streams).finish(self.mark).unwrap())
    }

    fn is_ready(&self) -> bool {
        lock(&self.streams).has_come(self.mark)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        lock(&self.streams).finish(self.mark);
    }
}

/// Norms on their way to the host.
struct Norms(Ticket<HostBuffer>);

impl Completion<Vec<f64>> for Norms {
    fn wait(self: Box<Self>) -> Result<Vec<f64>> {
        Ok(self.0.wait()?.as_slice::<f32>().iter().map(|norm| f64::from(*norm).powi(2)).collect())
    }

    fn is_ready(&self) -> bool {
        self.0.is_ready()
    }
}

impl Bridge for SimulatedDevice {
    type Slab = SimulatedSlab;
    type Gradient = Computation;

    fn allocate(&mut self, dtype: DType, elements: usize) -> Result<SimulatedSlab> {
        let tensor = Tensor::new(&self.streams, dtype, elements);
        Computation::from(vec![0.0; elements]).ask_into(&tensor, 0..elements);
        Ok(SimulatedSlab { tensor, filled: None })
    }

    fn is_shared(&self, slab: &SimulatedSlab) -> bool {
        Arc::strong_count(&slab.tensor) > 1 && self.flaw != Some(Flaw::HidesViews)
    }

    fn lend(&mut self, slab: &mut SimulatedSlab) -> Option<HostBuffer> {
        (self.lends && !self.is_shared(slab)).then(|| slab.tensor.lend())
    }

    fn restore(&mut self, slab: &mut SimulatedSlab, memory: HostBuffer) {
        slab.tensor.restore(memory);
    }

    fn copy_in(&mut self, source: HostBuffer, slab: &mut SimulatedSlab) -> Result<Ticket<HostBuffer>> {
        assert!(slab.filled.is_none(), "a slab was overwritten before it was used");
        assert!(!self.is_shared(slab), "a slab that the graph uses was overwritten");
        assert_eq!(source.len(), slab.tensor.elements(), "a slab was filled from a source of another size");
        self.follow_computation(Stream::Incoming, Flaw::IncomingIsEarly);
        let place = slab.tensor.place;
        let mark = lock(&self.streams).ask(Stream::Incoming, move |blocks| {
            blocks.with(place, |memory| memory.copy_elements(0, &source, 0..source.len()));
            Some(source)
        });
        slab.filled = Some(mark);
        Ok(self.ticket(mark, None))
    }

    fn before_use(&mut self, slab: &mut SimulatedSlab) -> Result<()> {
        if let Some(mark) = slab.filled.take()
            && self.flaw != Some(Flaw::ForgetsBeforeUse)
        {
            lock(&self.streams).order(Stream::Computation, mark);
        }
        Ok(())
    }

    fn copy_out(&mut self, slab: &SimulatedSlab, range: Range<usize>, into: HostBuffer) -> Result<Ticket<HostBuffer>> {
        Ok(self.copy_from(slab.tensor.clone(), range, into))
    }

    fn land(
        &mut self,
        gradient: Computation,
        slab: &mut SimulatedSlab,
        range: Range<usize>,
        landing: Landing,
    ) -> Result<bool> {
        let gradient = gradient.ask(&self.streams, range.len());
        let part = range.clone();
        let sum = move |inputs: &[Vec<f32>]| match landing {
            Landing::Set => inputs[0].clone(),
            Landing::Add => inputs[0].iter().zip(&inputs[1][part]).map(|(new, old)| old + new).collect(),
        };
        Computation::of(&[&gradient, &slab.tensor], sum).ask_into(&slab.tensor, range);
        // Known without waiting only where nothing is late.
        Ok(!self.lends || gradient.numbers().iter().all(|value| value.is_finite()))
    }

    fn adopt(
        &mut self,
        gradient: Computation,
        dtype: DType,
        elements: usize,
    ) -> std::result::Result<Adopted<SimulatedSlab>, Computation> {
        // Gradients are computed in f32; memory that the host lends is not.
        if self.lends || dtype != DType::F32 {
            return Err(gradient);
        }
        let tensor = gradient.ask(&self.streams, elements);
        Ok(Adopted { slab: SimulatedSlab { tensor, filled: None }, finite: true })
    }

    fn sums_of_squares(&mut self, slab: &SimulatedSlab, ranges: &[Range<usize>]) -> Result<Option<Ticket<Vec<f64>>>> {
        if !self.sums {
            return Ok(None);
        }
        let (count, ranges) = (ranges.len(), ranges.to_vec());
        let norms = Computation::of(&[&slab.tensor], move |inputs| {
            // In f32, as libtorch's: what is finite may have squares that are not.
            ranges
                .into_iter()
                .map(|range| inputs[0][range].iter().map(|value| value * value).sum::<f32>().sqrt())
                .collect()
        });
        let norms = norms.ask(&self.streams, count);
        let copy = self.copy_from(norms, 0..count, HostBuffer::zeros::<f32>(count));
        Ok(Some(Ticket::pending(Norms(copy))))
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
