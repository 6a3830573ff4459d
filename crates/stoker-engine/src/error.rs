//! What can go wrong in the engine.

use stoker_core::Place;

/// A result of the engine.
pub type Result<T> = std::result::Result<T, Error>;

/// What was wanted, what was found, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What a plugin answered.
    #[error(transparent)]
    Core(#[from] stoker_core::Error),
    /// The plan needs more memory than there is; nothing was allocated.
    #[error(
        "the model does not fit: {needed} bytes of {place} memory are needed ({}), the limit is {limit}. What would help: {}",
        breakdown.join(", "), advice.join("; ")
    )]
    DoesNotFit {
        /// Where.
        place: Place,
        /// Bytes that the plan needs.
        needed: u64,
        /// Bytes that there are.
        limit: u64,
        /// The needed bytes by role.
        breakdown: Vec<String>,
        /// Settings that change it.
        advice: Vec<String>,
    },
    /// The optimizer panicked on the update thread.
    #[error("the update of unit `{unit}` panicked: {reason}")]
    UpdatePanicked {
        /// The unit.
        unit: String,
        /// The panic's message.
        reason: String,
    },
    /// A thread could not be started.
    #[error("thread `{name}` could not be started")]
    Thread {
        /// Its name.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// The engine failed before and cannot go on.
    #[error("the engine stopped earlier: {0}")]
    Stopped(String),
}
