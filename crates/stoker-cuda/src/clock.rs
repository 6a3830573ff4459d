//! When a stream did what, by its own events.

use crate::{Result, failed};
use cudarc::driver::{CudaEvent, CudaStream, sys};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::Span;

/// The flags of an event that knows its time.
pub(crate) const TIMED: Option<sys::CUevent_flags> = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);

/// A moment of a stream and the same moment of the host. Others are found by their distance from it, which the driver
/// gives in milliseconds as an f32: to some microseconds in the first minutes.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    origin: Arc<CudaEvent>,
    at: Instant,
}

impl Clock {
    /// Of a stream that has nothing to do.
    pub(crate) fn start(stream: &CudaStream) -> Result<Self> {
        let origin = stream.record_event(TIMED).map_err(failed("recording an event"))?;
        origin.synchronize().map_err(failed("starting a clock"))?;
        Ok(Self { origin: Arc::new(origin), at: Instant::now() })
    }

    /// The time from one event that is over to another.
    pub(crate) fn between(&self, one: &CudaEvent, other: &CudaEvent) -> Result<Duration> {
        let milliseconds = one.elapsed_ms(other).map_err(failed("timing a copy"))?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }

    /// The caller's span, if it wants to be told when what it asks for ran.
    pub(crate) fn span_to_tell(&self) -> Option<Span> {
        Some(Span::current()).filter(|span| span.has_field("ended_us_ago"))
    }

    /// [Note: Spans of the device] Work of a stream is over long after it was asked for, and seen even later, while a span
    /// is a time of a thread. So the span in which it was asked for has two empty fields, which get the beginning and the
    /// end as microseconds before now, and is entered once more: who writes a timeline finds both there.
    pub(crate) fn tell(&self, span: &Span, begun: &CudaEvent, ended: &CudaEvent) -> Result<()> {
        let ago = |event: &CudaEvent| -> Result<f64> {
            let since = self.between(&self.origin, event)?;
            Ok((self.at.elapsed().as_secs_f64() - since.as_secs_f64()) * 1e6)
        };
        span.record("began_us_ago", ago(begun)?);
        span.record("ended_us_ago", ago(ended)?);
        span.in_scope(|| {});
        Ok(())
    }
}
