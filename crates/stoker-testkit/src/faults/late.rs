//! Who is late, and by how much.

use crate::values;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use stoker_core::{Completion, Result, Ticket};

/// Makes calls late, at random from a seed: all of them, or one in so many.
#[derive(Debug)]
pub(super) struct Delays {
    state: Mutex<u64>,
    one_in: u64,
}

impl Delays {
    /// In all calls.
    pub(super) fn new(seed: u64) -> Self {
        Self { state: Mutex::new(seed), one_in: 1 }
    }

    /// In one call of `calls`, on average.
    pub(super) fn one_in(self, calls: u64) -> Self {
        Self { one_in: calls.max(1), ..self }
    }

    fn next(&self) -> u64 {
        values::next(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the next call is late.
    fn chosen(&self) -> bool {
        self.one_in == 1 || self.next().is_multiple_of(self.one_in)
    }

    /// How often to yield the processor.
    fn yields(&self) -> u64 {
        let bits = self.next();
        if self.one_in > 1 {
            // Rare and long: what is seldom late must be late enough to be noticed.
            return 8 + (bits >> 58);
        }
        // A few long delays among many short ones; on a busy machine a yield is a whole time slice.
        if bits.is_multiple_of(8) { bits >> 60 } else { bits >> 62 }
    }

    /// Makes the call and hands on its ticket, both of them late if it is this call's turn.
    pub(super) fn pass<T: Send + 'static>(&self, call: impl FnOnce() -> Result<Ticket<T>>) -> Result<Ticket<T>> {
        if !self.chosen() {
            return call();
        }
        (0..self.yields()).for_each(|_| thread::yield_now());
        Ok(Ticket::pending(Slow { ticket: call()?, yields: self.yields(), asked: AtomicU64::new(0) }))
    }
}

/// Says the first few times that it is not ready, and yields before it waits.
struct Slow<T> {
    ticket: Ticket<T>,
    yields: u64,
    asked: AtomicU64,
}

impl<T: Send + 'static> Completion<T> for Slow<T> {
    fn wait(self: Box<Self>) -> Result<T> {
        (0..self.yields).for_each(|_| thread::yield_now());
        self.ticket.wait()
    }

    fn is_ready(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) >= self.yields.min(4) && self.ticket.is_ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these many calls are late.
    fn late(delays: &Delays, calls: usize) -> Vec<usize> {
        let is_late = |_: &usize| {
            let ticket = delays.pass(|| Ok(Ticket::ready(7))).unwrap();
            let late = !ticket.is_ready();
            // Not ready a few times, and not for ever.
            assert!(!late || (0..4).any(|_| ticket.is_ready()));
            assert_eq!(ticket.wait().unwrap(), 7);
            late
        };
        (0..calls).filter(is_late).collect()
    }

    #[test]
    fn one_in_a_hundred_is_late_and_the_same_again() {
        let found = late(&Delays::new(5).one_in(100), 10_000);
        assert!((50..200).contains(&found.len()), "{} of 10000 calls are late", found.len());
        assert_eq!(found, late(&Delays::new(5).one_in(100), 10_000));
        assert_ne!(found, late(&Delays::new(6).one_in(100), 10_000));
    }

    #[test]
    fn all_calls_are_delayed_unless_told_otherwise() {
        for delays in [Delays::new(5), Delays::new(5).one_in(1), Delays::new(5).one_in(0)] {
            // Some by nothing.
            assert!(late(&delays, 1000).len() > 600);
        }
    }

    #[test]
    fn an_error_is_handed_on() {
        let lost = || Err(stoker_core::Error::RankLost { rank: 1, reason: "gone".into() });
        assert!(Delays::new(1).pass(lost as fn() -> Result<Ticket<()>>).is_err());
    }
}
