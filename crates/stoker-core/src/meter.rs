//! Bytes that were moved, and the time that took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Adds up work whose time is known once it is done, from any thread.
#[derive(Debug, Default)]
pub struct Meter {
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Meter {
    /// `bytes` were moved in `took`.
    pub fn add(&self, bytes: u64, took: Duration) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// All so far.
    pub fn read(&self) -> Reading {
        let seconds = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        Reading { bytes: self.bytes.load(Ordering::Relaxed), seconds }
    }
}

/// What a [`Meter`] shows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reading {
    /// Bytes moved.
    pub bytes: u64,
    /// Seconds in which they were being moved.
    pub seconds: f64,
}

impl Reading {
    /// What came since an `earlier` reading of the same meter.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(earlier.bytes), seconds: self.seconds - earlier.seconds }
    }

    /// Bytes a second, while there was something to move; `None` if there was nothing.
    pub fn rate(self) -> Option<f64> {
        (self.bytes > 0 && self.seconds > 0.0).then(|| self.bytes as f64 / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_adds_up_and_has_a_rate() {
        let meter = Meter::default();
        assert_eq!(meter.read().rate(), None);
        meter.add(600, Duration::from_millis(2000));
        let earlier = meter.read();
        assert_eq!(earlier, Reading { bytes: 600, seconds: 2.0 });
        meter.add(400, Duration::from_millis(500));
        assert_eq!(meter.read().since(earlier), Reading { bytes: 400, seconds: 0.5 });
        assert_eq!(meter.read().rate(), Some(400.0));
    }
}
