//! What every communicator owes.

mod exchange;
mod failure;

use std::sync::Arc;
use std::time::Duration;
use stoker_core::{Communicator, Result, Ticket};

pub use exchange::{
    allreduce_is_the_same_everywhere, barriers_hold, bits_are_only_moved, collectives_are_right,
    dropped_tickets_hold_nobody_up, many_may_be_in_flight, wrong_lengths_are_refused,
};
pub use failure::{disagreement_is_told_to_all, lost_ranks_are_named, served_ranks_may_leave, silent_ranks_are_named};

/// Makes the ends of a new group of this many ranks, with this timeout, in the order of the ranks.
pub trait Make: Fn(usize, Duration) -> Vec<Arc<dyn Communicator>> {}

impl<F: Fn(usize, Duration) -> Vec<Arc<dyn Communicator>>> Make for F {}

/// For groups in which nobody is late on purpose: never reached.
const PATIENT: Duration = Duration::from_secs(30);

/// For groups in which somebody is late on purpose.
const IMPATIENT: Duration = Duration::from_millis(100);

/// Panics unless the groups that `make` makes do what they must.
///
/// Its laws are public, too, for a communicator that can be held to some only. What they ask of texts: an error's calls
/// contain the operation as the trait calls it, the call's name, its type (`f32`, `bf16`) and its count; a late rank
/// is told as `rank 2`.
pub fn conforms(make: impl Make) {
    collectives_are_right(&make);
    bits_are_only_moved(&make);
    allreduce_is_the_same_everywhere(&make);
    many_may_be_in_flight(&make);
    barriers_hold(&make);
    dropped_tickets_hold_nobody_up(&make);
    wrong_lengths_are_refused(&make);
    served_ranks_may_leave(&make);
    disagreement_is_told_to_all(&make);
    lost_ranks_are_named(&make);
    silent_ranks_are_named(&make);
}

/// A new group, checked for ranks and world.
fn group(make: &impl Make, world: usize, timeout: Duration) -> Vec<Arc<dyn Communicator>> {
    let ends = make(world, timeout);
    let ranks: Vec<_> = ends.iter().map(|end| (end.rank(), end.world())).collect();
    assert_eq!(ranks, (0..world).map(|rank| (rank, world)).collect::<Vec<_>>(), "ranks and world of every end");
    ends
}

/// What came of a call, whether it failed at once or in the wait.
fn settle<T>(call: Result<Ticket<T>>) -> Result<T> {
    call.and_then(Ticket::wait)
}

#[track_caller]
fn done<T>(call: Result<Ticket<T>>) -> T {
    settle(call).unwrap_or_else(|error| panic!("a collective that nothing is wrong with fails: {error}"))
}
