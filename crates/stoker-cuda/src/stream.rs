//! Copies beside the computation.

use crate::clock::{Clock, TIMED};
use crate::device::Device;
use crate::{Result, failed};
use cudarc::driver::{CudaEvent, CudaStream, result, sys};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use stoker_core::{Completion, Error as CoreError, HostBuffer, Meter, Reading, Result as CoreResult, Ticket};
use tracing::Span;

/// How often a wait looks whether it is over. Copies take milliseconds, and the driver's own wait knows no timeout.
const LOOK: Duration = Duration::from_micros(20);

/// A stream of its own for copies in one direction, ordered with the computation.
#[derive(Debug)]
pub struct CopyStream {
    device: Device,
    copies: Arc<CudaStream>,
    computation: Arc<CudaStream>,
    clock: Clock,
    meter: Arc<Meter>,
    timeout: Duration,
}

/// A moment of a [`CopyStream`]: the end of a copy.
#[derive(Debug, Clone)]
pub struct Mark {
    event: Arc<CudaEvent>,
    computation: Arc<CudaStream>,
}

impl CopyStream {
    /// A stream of `device`; who waits for a copy waits no longer than `timeout`.
    ///
    /// # Errors
    /// What the driver fails with.
    pub fn new(device: &Device, timeout: Duration) -> Result<Self> {
        let copies = device.context().new_stream().map_err(failed("making a stream"))?;
        let clock = Clock::start(&copies)?;
        let computation = device.context().default_stream();
        Ok(Self { device: device.clone(), copies, computation, clock, meter: Arc::default(), timeout })
    }

    /// Copies that were waited for, and the time in which the device made them: neither what they waited for, the
    /// computation and the copies before them, nor when the host saw that they were done.
    pub fn copied(&self) -> Reading {
        self.meter.read()
    }

    /// What is copied from here on comes after all computation that was asked for until now. Gives the moment when it
    /// begins.
    fn follow_computation(&self) -> Result<CudaEvent> {
        self.device.bind()?;
        let event = self.computation.record_event(None).map_err(failed("recording an event"))?;
        self.copies.wait(&event).map_err(failed("ordering streams"))?;
        self.copies.record_event(TIMED).map_err(failed("recording an event"))
    }

    /// Copies all of `source` to device memory at `target`, after all computation that was asked for until now.
    ///
    /// # Safety
    /// At `target` as many bytes as `source` has are allocated on this device, and nothing else writes them, or reads them
    /// without waiting for the mark, before it is reached.
    ///
    /// # Errors
    /// What the driver fails with.
    pub unsafe fn copy_in(&self, source: HostBuffer, target: u64) -> Result<(Ticket<HostBuffer>, Mark)> {
        let begun = self.follow_computation()?;
        if source.bytes() > 0 {
            // SAFETY: the caller vouches for `target`; `source` lives until the mark is reached, as `Copy` sees to.
            let copied = unsafe {
                result::memcpy_htod_async(target as sys::CUdeviceptr, source.as_bytes(), self.copies.cu_stream())
            };
            copied.map_err(failed("copying to the device"))?;
        }
        self.ticket(source, begun, "a copy to the device")
    }

    /// Copies device memory at `source` to all of `into`, after all computation that was asked for until now.
    ///
    /// # Safety
    /// At `source` as many bytes as `into` has are allocated on this device, and stay so, unwritten, until the ticket is
    /// ready.
    ///
    /// # Errors
    /// What the driver fails with.
    pub unsafe fn copy_out(&self, source: u64, mut into: HostBuffer) -> Result<Ticket<HostBuffer>> {
        let begun = self.follow_computation()?;
        if into.bytes() > 0 {
            // SAFETY: the caller vouches for `source`; `into` lives until the mark is reached, as `Copy` sees to.
            let copied = unsafe {
                result::memcpy_dtoh_async(into.as_mut_bytes(), source as sys::CUdeviceptr, self.copies.cu_stream())
            };
            copied.map_err(failed("copying from the device"))?;
        }
        Ok(self.ticket(into, begun, "a copy from the device")?.0)
    }

    /// For a copy from or to `buffer` that was just asked for and begins at `begun`, and the moment when it is done.
    fn ticket(&self, buffer: HostBuffer, begun: CudaEvent, what: &'static str) -> Result<(Ticket<HostBuffer>, Mark)> {
        let event = match self.copies.record_event(TIMED).map_err(failed("recording an event")) {
            Ok(event) => Arc::new(event),
            Err(error) => {
                // Nobody will know when the device is done with it.
                std::mem::forget(buffer);
                return Err(error);
            }
        };
        let mark = Mark { event, computation: self.computation.clone() };
        let copy = Copy {
            buffer: Some(buffer),
            begun,
            mark: mark.clone(),
            device: self.device.clone(),
            meter: self.meter.clone(),
            clock: self.clock.clone(),
            span: self.clock.span_to_tell(),
            what,
            timeout: self.timeout,
        };
        Ok((Ticket::pending(copy), mark))
    }
}

impl Mark {
    /// Computation that is asked for from here on comes after this moment. The host does not wait.
    ///
    /// # Errors
    /// What the driver fails with.
    pub fn before_computation(&self) -> Result<()> {
        self.computation.wait(&self.event).map_err(failed("ordering streams"))
    }
}

/// A buffer that the device reads or writes until the mark is reached.
struct Copy {
    buffer: Option<HostBuffer>,
    begun: CudaEvent,
    mark: Mark,
    device: Device,
    meter: Arc<Meter>,
    clock: Clock,
    /// Who is told when it ran.
    span: Option<Span>,
    what: &'static str,
    timeout: Duration,
}

impl Copy {
    fn finish(&mut self) -> CoreResult<()> {
        self.device.bind()?;
        let begun = Instant::now();
        while !self.mark.event.try_is_complete().map_err(failed(self.what))? {
            if begun.elapsed() > self.timeout {
                return Err(CoreError::Timeout {
                    what: self.what.to_owned(),
                    seconds: self.timeout.as_secs_f64(),
                    late: vec![format!("CUDA device {}", self.device.context().ordinal())],
                });
            }
            thread::sleep(LOOK);
        }
        let bytes = self.buffer.as_ref().map_or(0, HostBuffer::bytes);
        self.meter.add(bytes as u64, self.clock.between(&self.begun, &self.mark.event)?);
        match &self.span {
            Some(span) => Ok(self.clock.tell(span, &self.begun, &self.mark.event)?),
            None => Ok(()),
        }
    }
}

impl Completion<HostBuffer> for Copy {
    fn wait(mut self: Box<Self>) -> CoreResult<HostBuffer> {
        self.finish()?;
        Ok(self.buffer.take().unwrap_or_default())
    }

    fn is_ready(&self) -> bool {
        // What failed is ready too: `wait` says why.
        self.device.bind().is_err() || self.mark.event.try_is_complete().unwrap_or(true)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if self.buffer.is_some() && self.finish().is_err() {
            // The device may still use the memory: it is better lost than given to somebody else.
            std::mem::forget(self.buffer.take());
        }
    }
}
