//! Work that was started and can be waited on.

use crate::Result;
use std::fmt;

/// What a plugin implements to hand out a pending [`Ticket`].
pub trait Completion<T>: Send {
    /// Waits for the work.
    ///
    /// Must return within the timeout that the plugin was configured with: on expiry, an error that says what was
    /// waited for and which rank or device is late.
    fn wait(self: Box<Self>) -> Result<T>;

    /// Whether [`wait`](Self::wait) would return without blocking.
    fn is_ready(&self) -> bool;
}

/// The receipt of an asynchronous call: [`wait`](Self::wait) gives its result, buffers included.
///
/// Dropping a ticket does not cancel the work; it gives up the buffers.
#[must_use = "the work is not known to be done before the ticket was waited on"]
pub struct Ticket<T>(State<T>);

enum State<T> {
    Ready(T),
    Pending(Box<dyn Completion<T>>),
}

impl<T> Ticket<T> {
    /// A ticket for work that is done already.
    pub fn ready(value: T) -> Self {
        Self(State::Ready(value))
    }

    /// A ticket for work that goes on.
    pub fn pending(completion: impl Completion<T> + 'static) -> Self {
        Self(State::Pending(Box::new(completion)))
    }

    /// Waits for the work, at most as long as the configured timeout.
    ///
    /// # Errors
    /// What the work failed with, or [`Error::Timeout`](crate::Error::Timeout).
    pub fn wait(self) -> Result<T> {
        match self.0 {
            State::Ready(value) => Ok(value),
            State::Pending(completion) => completion.wait(),
        }
    }

    /// Whether [`wait`](Self::wait) would return without blocking.
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            State::Ready(_) => true,
            State::Pending(completion) => completion.is_ready(),
        }
    }
}

impl<T> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_ready() { "Ticket(ready)" } else { "Ticket(pending)" })
    }
}
