//! What can go wrong in the engine.

use crate::agree::NotFinite;
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
        "the model does not fit: {needed} bytes of {place} memory are needed{} ({}), the limit is {limit} ({source_of_limit}). What would help: {}",
        by(*ranks), breakdown.join(", "), advice.join("; ")
    )]
    DoesNotFit {
        /// Where.
        place: Place,
        /// Bytes that the plan needs, of all ranks that share the limit.
        needed: u64,
        /// How many these are.
        ranks: usize,
        /// Bytes that there are.
        limit: u64,
        /// Where that number comes from.
        source_of_limit: String,
        /// The needed bytes by role.
        breakdown: Vec<String>,
        /// Settings that change it.
        advice: Vec<String>,
    },
    /// Every one of the last steps was skipped: nothing is trained any more.
    #[error(
        "the last {skips} steps were skipped, up to step {step} with loss scale {loss_scale}: the gradient of `{}` is not finite ({}). What would help: {advice}",
        not_finite.parameter, found_by(not_finite.rank)
    )]
    NothingTrained {
        /// Steps skipped in a row.
        skips: u32,
        /// The last of them, counted from 1 with the skipped ones.
        step: u64,
        /// Its loss scale.
        loss_scale: f64,
        /// What was not finite in it.
        not_finite: NotFinite,
        /// What to change.
        advice: &'static str,
    },
    /// A gradient is not finite, and units after it have been updated, so that the step cannot be skipped.
    #[error(
        "the gradient of `{parameter}` is not finite, and the units after it have been updated with theirs already. What \
         would help: schedule.update_in_backward = false (such a step is then skipped as a whole), or a lower learning rate"
    )]
    CannotSkip {
        /// Its path.
        parameter: String,
    },
    /// A unit got a gradient after its update.
    #[error(
        "unit `{unit}` got another gradient after its update in the same step. Set schedule.update_in_backward = false: it \
         takes one backward a step"
    )]
    UpdatedBefore {
        /// The unit.
        unit: String,
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

fn by(ranks: usize) -> String {
    if ranks == 1 { String::new() } else { format!(" by {ranks} ranks together") }
}

fn found_by(rank: Option<usize>) -> String {
    rank.map_or_else(|| "in the sum over ranks".to_owned(), |rank| format!("on rank {rank}"))
}
