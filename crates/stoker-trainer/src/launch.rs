//! One thread per rank, and one error for all of them.
//!
//! [Note: The cause] A rank that fails tells its communicator, so that the others do not wait for it; they fail in turn,
//! perhaps before the first has come back from its work. Time therefore does not tell what went wrong first. What does is
//! the kind of the errors: that another rank is lost, or did not come, is an echo, anything else a cause. Of the causes
//! the earliest is returned; of echoes alone the one that says most.

use crate::compose::rank_of;
use crate::{Error, Rank, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use stoker_config::Settings;
use stoker_core::Communicator;
use stoker_core::error::panic_text;
use stoker_core::registry::{self, Group};

/// Stack of a rank's thread: what a main thread has, so that a model runs here if it runs there.
const STACK_BYTES: usize = 8 << 20;

/// Runs `work` on as many ranks as the settings say, each on a thread of its own, and gives what each returned.
///
/// All threads have ended when this returns. A rank that fails, in its work or by a panic, ends the others: they do not
/// wait for it.
///
/// # Errors
/// [`Error::Rank`] with what went wrong first; before any rank is started, plugins that cannot be made.
pub fn launch<T: Send>(settings: &Settings, work: impl Fn(&Rank) -> Result<T> + Sync) -> Result<Vec<T>> {
    let world = settings.run.ranks;
    let choice = &settings.communicator;
    let group = Group { world, timeout: settings.run.timeout() };
    let ends = registry::communicators(&choice.name, &choice.options, &group)?;
    if ends.len() != world || world == 0 {
        return Err(Error::Ends { name: choice.name.clone(), found: ends.len(), wanted: world });
    }
    let failures = AtomicUsize::new(0);
    let run = |rank: usize, communicator: Arc<dyn Communicator>| {
        // Of the highest level: a warning must say of which rank it is, whatever is logged besides.
        let span = tracing::error_span!("rank", rank);
        let _entered = span.enter();
        // Ranks share nothing that a panic could leave half done: all meet in the communicator, which is told.
        let result = catch_unwind(AssertUnwindSafe(|| {
            let rank = rank_of(settings, rank, communicator.clone())?;
            work(&rank)
        }));
        let result = result.unwrap_or_else(|payload| Err(panicked(payload)));
        result.map_err(|error| {
            let order = failures.fetch_add(1, Ordering::Relaxed);
            let chain = error.chain();
            tracing::debug!(order, error = chain, "the rank failed");
            communicator.abort(&chain);
            Failure { order, rank, error: Box::new(error) }
        })
    };
    let results = thread::scope(|scope| {
        let threads = ends.into_iter().enumerate().map(|(rank, communicator)| {
            let name = format!("rank-{rank}");
            let spare = communicator.clone();
            let run = &run;
            let spawned = thread::Builder::new()
                .name(name.clone())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || run(rank, communicator));
            spawned.map_err(|source| {
                spare.abort("its thread could not be started");
                Failure::before_all(rank, Error::Thread { name, source })
            })
        });
        // All are started before the first is waited for.
        let threads: Vec<_> = threads.collect();
        let results = threads.into_iter().enumerate().map(|(rank, thread)| {
            // `run` catches what the work panics with, so this is a panic of its own.
            thread?.join().unwrap_or_else(|payload| Err(Failure::before_all(rank, panicked(payload))))
        });
        results.collect::<Vec<_>>()
    });
    first_cause(results)
}

/// How a rank failed.
struct Failure {
    /// How many ranks had failed before it.
    order: usize,
    rank: usize,
    error: Box<Error>,
}

impl Failure {
    fn before_all(rank: usize, error: Error) -> Self {
        Self { order: 0, rank, error: Box::new(error) }
    }
}

/// See [Note: The cause].
fn first_cause<T>(results: Vec<std::result::Result<T, Failure>>) -> Result<Vec<T>> {
    let mut values = Vec::with_capacity(results.len());
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(failure) => failures.push(failure),
        }
    }
    match failures.into_iter().min_by_key(|failure| (failure.error.closeness(), failure.order)) {
        Some(cause) => Err(Error::Rank { rank: cause.rank, source: cause.error }),
        None => Ok(values),
    }
}

/// A panic outside of a step. A unit that is called there unwinds with an error of Burn's crate as the payload.
fn panicked(payload: Box<dyn Any + Send>) -> Error {
    match payload.downcast::<stoker_burn::Error>() {
        Ok(error) => Error::Burn(error),
        Err(payload) => Error::Panicked(panic_text(payload.as_ref())),
    }
}

#[cfg(test)]
mod tests;
