//! What the LibTorch bridge does otherwise on a GPU: copies on streams of their own, from and to pinned memory.
#![allow(
    unsafe_code,
    reason = "a copy beside the computation needs a promise about the memory, which the bridge gives"
)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stoker_core::{Completion, HostBuffer, Result, Ticket};
use stoker_cuda::{CopyStream, Device, Held, Mark, PinnedMemory};
use stoker_engine::Copies;

/// A GPU that libtorch computes on, on its legacy default stream (as Burn has it).
#[derive(Debug)]
pub(super) struct Cuda {
    device: Device,
    incoming: CopyStream,
    outgoing: CopyStream,
    /// Pinned buffers that norms come back in.
    spares: Spares,
    /// Whether the host has refused to pin memory.
    refused: bool,
    _held: Option<Held>,
}

impl Cuda {
    pub(super) fn open(ordinal: usize, timeout: Duration, memory_limit: Option<u64>) -> Result<Self> {
        let device = Device::open(ordinal)?;
        let held = match memory_limit {
            Some(limit) => device.hold_all_but(limit)?,
            None => None,
        };
        Ok(Self {
            incoming: CopyStream::new(&device, timeout)?,
            outgoing: CopyStream::new(&device, timeout)?,
            device,
            spares: Spares::default(),
            refused: false,
            _held: held,
        })
    }

    pub(super) fn free_bytes(&self) -> Result<u64> {
        Ok(self.device.memory()?.free)
    }

    pub(super) fn copies(&self) -> Copies {
        Copies { to_device: self.incoming.copied(), from_device: self.outgoing.copied() }
    }

    /// Copies `source` to all of `target`.
    pub(super) fn copy_in(&self, source: HostBuffer, target: &tch::Tensor) -> Result<(Ticket<HostBuffer>, Mark)> {
        // SAFETY: the tensor is contiguous, on this device, and of as many bytes: a part of a slab that is as long as the
        // source and of its type. The engine keeps the slab, whose memory libtorch gives to nobody else before all that
        // was asked for until then is done, and asks for no computation with it before `before_use`.
        Ok(unsafe { self.incoming.copy_in(source, target.data_ptr() as u64) }?)
    }

    /// Copies all of `source` to `into`.
    pub(super) fn copy_out(&self, source: tch::Tensor, into: HostBuffer) -> Result<Ticket<HostBuffer>> {
        // SAFETY: as above; the ticket has the tensor, and with it the memory, until the copy is done. Nobody writes to a
        // bucket whose reduction has begun.
        let copy = unsafe { self.outgoing.copy_out(source.data_ptr() as u64, into) }?;
        Ok(Ticket::pending(Outgoing { copy, _source: source }))
    }

    /// The squares of f32 numbers on the device.
    pub(super) fn squares(&mut self, norms: tch::Tensor) -> Result<Ticket<Vec<f64>>> {
        let count = norms.numel();
        let buffer = self.spares.take(count).unwrap_or_else(|| self.pin(HostBuffer::zeros::<f32>(count)));
        let copy = self.copy_out(norms, buffer)?;
        Ok(Ticket::pending(Squares { copy: Some(copy), spares: self.spares.clone() }))
    }

    /// The same elements in pinned memory, unless the host refuses.
    pub(super) fn pin(&mut self, memory: HostBuffer) -> HostBuffer {
        if self.refused || memory.is_empty() {
            return memory;
        }
        match PinnedMemory::zeros(&self.device, memory.bytes().div_ceil(8)) {
            Ok(Some(pinned)) => memory.moved_to(Box::new(pinned)).unwrap_or_else(|memory| memory),
            Ok(None) => memory,
            Err(error) => {
                self.refused = true;
                let bytes = memory.bytes();
                tracing::warn!(
                    bytes,
                    error = %stoker_core::error::chain(&error),
                    "the host refuses to pin memory: copies to and from the device will be slow"
                );
                memory
            }
        }
    }
}

struct Outgoing {
    // Dropped first, which waits for the copy.
    copy: Ticket<HostBuffer>,
    _source: tch::Tensor,
}

impl Completion<HostBuffer> for Outgoing {
    fn wait(self: Box<Self>) -> Result<HostBuffer> {
        let Self { copy, _source } = *self;
        copy.wait()
    }

    fn is_ready(&self) -> bool {
        self.copy.is_ready()
    }
}

/// Buffers that are used again: to pin memory takes the driver long.
#[derive(Debug, Clone, Default)]
struct Spares(Arc<Mutex<Vec<HostBuffer>>>);

impl Spares {
    /// One of `count` elements, in whatever order they were given.
    fn take(&self, count: usize) -> Option<HostBuffer> {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = spares.iter().position(|buffer| buffer.len() == count)?;
        Some(spares.swap_remove(at))
    }

    fn give(&self, buffer: HostBuffer) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

/// Norms on their way. They need not be waited for: a later gradient may make them void.
struct Squares {
    copy: Option<Ticket<HostBuffer>>,
    spares: Spares,
}

impl Completion<Vec<f64>> for Squares {
    fn wait(mut self: Box<Self>) -> Result<Vec<f64>> {
        let Some(copy) = self.copy.take() else { return Ok(Vec::new()) };
        let norms = copy.wait()?;
        let squares = norms.as_slice::<f32>().iter().map(|norm| f64::from(*norm).powi(2)).collect();
        self.spares.give(norms);
        Ok(squares)
    }

    fn is_ready(&self) -> bool {
        self.copy.as_ref().is_none_or(Ticket::is_ready)
    }
}

impl Drop for Squares {
    fn drop(&mut self) {
        // A copy that failed is told to whoever copies next.
        if let Some(Ok(norms)) = self.copy.take().map(Ticket::wait) {
            self.spares.give(norms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spares_are_found_in_any_order_and_come_back_unread() {
        let spares = Spares::default();
        let ask = |count: usize| {
            let buffer = spares.take(count).unwrap_or_else(|| HostBuffer::zeros::<f32>(count));
            Ticket::pending(Squares { copy: Some(Ticket::ready(buffer)), spares: spares.clone() })
        };
        for step in 0..5 {
            for (number, ticket) in [4, 2, 2].map(ask).into_iter().enumerate() {
                if number != step % 4 {
                    assert!(ticket.wait().unwrap().iter().all(|square| *square == 0.0));
                }
            }
            assert_eq!(spares.0.lock().unwrap().len(), 3);
        }
    }
}
