//! Device memory, given away as libtorch's caching allocator does.

use crate::streams::{Mark, Shared, Stream, lock};
use std::ops::Range;
use std::sync::Arc;
use stoker_core::half::{bf16, f16};
use stoker_core::{DType, HostBuffer};

/// Blocks of memory by number. One that the host lets go of is the next one of its size that is given away, whatever work
/// that uses it is still queued.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    words: Vec<Vec<u64>>,
    free: Vec<usize>,
}

/// Numbers in a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    block: usize,
    dtype: DType,
    elements: usize,
}

impl Blocks {
    fn take(&mut self, bytes: usize) -> usize {
        // Few sizes, so that many share their memory.
        let words = bytes.div_ceil(8).next_power_of_two();
        match self.free.iter().rposition(|block| self.words[*block].len() == words) {
            Some(at) => self.free.remove(at),
            None => {
                // All ones are NaN in every type.
                self.words.push(vec![u64::MAX; words]);
                self.words.len() - 1
            }
        }
    }

    /// What `look` makes of the memory.
    pub(crate) fn with<T>(&mut self, place: Place, look: impl FnOnce(&mut HostBuffer) -> T) -> T {
        let words = std::mem::take(&mut self.words[place.block]);
        let mut buffer = HostBuffer::from_words(place.dtype, place.elements, words).unwrap();
        let result = look(&mut buffer);
        self.words[place.block] = buffer.into_words();
        result
    }

    pub(crate) fn numbers(&mut self, place: Place) -> Vec<f32> {
        self.with(place, |buffer| numbers(buffer))
    }
}

/// Memory that somebody on the host has: a tensor, whose clones stand for views that a graph holds. Queued work has none.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) device: Shared,
    pub(crate) place: Place,
}

impl Tensor {
    /// One that holds whatever was there.
    pub(crate) fn new(device: &Shared, dtype: DType, elements: usize) -> Arc<Self> {
        let block = lock(device).blocks.take(dtype.size() * elements);
        Arc::new(Self { device: device.clone(), place: Place { block, dtype, elements } })
    }

    pub(crate) fn elements(&self) -> usize {
        self.place.elements
    }

    /// What the computation that was asked for until now leaves there: the host waits for it.
    pub(crate) fn numbers(&self) -> Vec<f32> {
        let mut device = lock(&self.device);
        let now: Mark = device.now(Stream::Computation);
        device.finish(now);
        device.blocks.numbers(self.place)
    }

    /// The memory itself, for a host that can address it.
    pub(crate) fn lend(&self) -> HostBuffer {
        let Place { block, dtype, elements } = self.place;
        let words = std::mem::take(&mut lock(&self.device).blocks.words[block]);
        HostBuffer::from_words(dtype, elements, words).unwrap()
    }

    pub(crate) fn restore(&self, memory: HostBuffer) {
        lock(&self.device).blocks.words[self.place.block] = memory.into_words();
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        lock(&self.device).blocks.free.push(self.place.block);
    }
}

/// The numbers of a buffer of any type.
fn numbers(buffer: &HostBuffer) -> Vec<f32> {
    match buffer.dtype() {
        DType::F16 => buffer.as_slice::<f16>().iter().map(|value| value.to_f32()).collect(),
        DType::BF16 => buffer.as_slice::<bf16>().iter().map(|value| value.to_f32()).collect(),
        _ => buffer.as_slice::<f32>().to_vec(),
    }
}

/// Elements `range` of a buffer of any type become `values`, rounded.
pub(crate) fn set(buffer: &mut HostBuffer, range: Range<usize>, values: &[f32]) {
    assert_eq!(range.len(), values.len());
    for (at, &value) in range.zip(values) {
        match buffer.dtype() {
            DType::F16 => buffer.as_mut_slice()[at] = f16::from_f32(value),
            DType::BF16 => buffer.as_mut_slice()[at] = bf16::from_f32(value),
            _ => buffer.as_mut_slice()[at] = value,
        }
    }
}
