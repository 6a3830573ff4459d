//! The pieces of work that collectives are made of.

use std::ops::Range;
use std::sync::Arc;
use stoker_core::{DType, HostBuffer};
use stoker_kernels::reduce;

/// How a result is made from buffers that many ranks read at once.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// One after another.
    Concatenate,
    /// These elements of all of them, added in the order of the ranks.
    Sum(Range<usize>),
    /// As `Sum`, into memory of its own.
    Part(Range<usize>),
}

/// A piece that somebody has taken on; it is done outside the hub's lock.
#[derive(Debug)]
pub(crate) struct Work {
    /// Its number within the stage.
    pub(crate) slot: usize,
    pub(crate) task: Task,
    pub(crate) sources: Arc<Vec<HostBuffer>>,
    pub(crate) into: HostBuffer,
}

impl Work {
    /// Does it, lets go of the sources, and gives the result.
    ///
    /// Lengths and types fit: every deposit was checked, and all have the same fingerprint.
    pub(crate) fn perform(self) -> HostBuffer {
        let Self { task, sources, mut into, .. } = self;
        if let Task::Part(range) = &task {
            into = HostBuffer::zeros_of(sources.first().map_or(DType::F32, HostBuffer::dtype), range.len());
        }
        match (task, into.dtype()) {
            (Task::Concatenate, _) => concatenate(&sources, &mut into),
            (Task::Sum(range) | Task::Part(range), DType::F16) => {
                reduce::sum_f16(into.as_mut_slice(), &parts(&sources, range));
            }
            (Task::Sum(range) | Task::Part(range), DType::BF16) => {
                reduce::sum_bf16(into.as_mut_slice(), &parts(&sources, range));
            }
            (Task::Sum(range) | Task::Part(range), DType::F32) => {
                reduce::sum_f32(into.as_mut_slice(), &parts(&sources, range));
            }
            (Task::Sum(range) | Task::Part(range), DType::F64) => {
                reduce::sum_f64(into.as_mut_slice(), &parts(&sources, range));
            }
        }
        into
    }
}

fn concatenate(sources: &[HostBuffer], into: &mut HostBuffer) {
    let mut at = 0;
    for source in sources {
        into.copy_elements(at, source, 0..source.len());
        at += source.len();
    }
}

fn parts<T: stoker_core::buffer::Element>(sources: &[HostBuffer], range: Range<usize>) -> Vec<&[T]> {
    sources.iter().map(|source| &source.as_slice::<T>()[range.clone()]).collect()
}
