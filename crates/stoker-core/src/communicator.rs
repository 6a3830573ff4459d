//! How ranks exchange bytes.

use crate::{HostBuffer, Result, Ticket};
use std::fmt::Debug;

/// The two buffers of a collective, handed back.
#[derive(Debug)]
pub struct Exchanged {
    /// What was contributed, unchanged.
    pub sent: HostBuffer,
    /// The result.
    pub received: HostBuffer,
}

/// One rank's end of a group of ranks (the collectives of MPI and NCCL).
///
/// Every rank makes the same calls in the same order. A call starts the work and returns; the ticket gives the buffers
/// back. `call` names it in errors and is part of its **fingerprint** (operation, name, dtype, count): ranks that
/// disagree all get [`Error::Disagree`](crate::Error::Disagree) that quotes both sides. A rank that dies, or that does
/// not come within the configured timeout, gives all the others an error that names it. After the first error the
/// group is unusable and every later call fails with the same story. Nothing hangs.
///
/// A ticket needs every rank to have made the call, not to wait for it: ranks may wait in any order, late, or never
/// (a dropped ticket). What every rank has called is completed even if a rank leaves afterwards.
///
/// Gathers and broadcasts move elements of any type to the bit, NaN included.
///
/// [Note: Sums] Sums depend on neither timing nor chunking, and every rank gets the same bits. In f32 and f64 they are
/// taken in the order of the ranks, and every addition is rounded: there is one right result. In f16 and bf16 it is left
/// to the communicator whether it adds in a wider type and how often it rounds: the result differs from the exact sum
/// by at most [`world`](Self::world) units in the last place of the sum of the magnitudes (where that is finite in the
/// type). Ranks that need more sum in f32.
pub trait Communicator: Debug + Send + Sync {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn world(&self) -> usize;

    /// Concatenates every rank's `shard` in `full` (`world` times as long), in the order of the ranks.
    ///
    /// # Errors
    /// See the trait; [`Error::OutOfRange`](crate::Error::OutOfRange) when the lengths do not fit,
    /// [`Error::WrongType`](crate::Error::WrongType) when the types of the two buffers differ.
    fn all_gather(&self, call: &str, shard: HostBuffer, full: HostBuffer) -> Result<Ticket<Exchanged>>;

    /// Sums every rank's `full`; this rank's part of the sum lands in `shard` (a `world`-th as long).
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    fn reduce_scatter(&self, call: &str, full: HostBuffer, shard: HostBuffer) -> Result<Ticket<Exchanged>>;

    /// Replaces `buffer` by the sum over all ranks.
    ///
    /// # Errors
    /// See the trait.
    fn all_reduce(&self, call: &str, buffer: HostBuffer) -> Result<Ticket<HostBuffer>>;

    /// Replaces `buffer` by `root`'s.
    ///
    /// # Errors
    /// See the trait; [`Error::OutOfRange`](crate::Error::OutOfRange) when there is no such root.
    fn broadcast(&self, call: &str, root: usize, buffer: HostBuffer) -> Result<Ticket<HostBuffer>>;

    /// Ready when every rank has called it.
    ///
    /// # Errors
    /// See the trait.
    fn barrier(&self, call: &str) -> Result<Ticket<()>>;

    /// Tells the others that this rank gives up: their waits end with [`Error::RankLost`](crate::Error::RankLost) and
    /// `reason`.
    fn abort(&self, reason: &str);
}
