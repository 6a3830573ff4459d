//! CPU kernels of stoker: optimizer steps, reductions, norms.
//!
//! Plain loops that the compiler vectorises. Every kernel is a pure function of its slices, runs on the calling thread,
//! and gives the same bits however its input is cut into pieces: that is what lets a caller shard, chunk and parallelise
//! without changing a run.
#![forbid(unsafe_code)]

pub mod adamw;
pub mod convert;
pub mod norm;
pub mod reduce;

pub use adamw::{AdamW, adamw};
pub use norm::{SquareSum, sum_of_squares};

/// All slices of a kernel call are equally long. Anything else is a mistake in the caller, which has checked its input:
/// it must not pass silently, as a shorter update would.
#[inline]
fn same_length(what: &str, found: usize, wanted: usize) {
    assert_eq!(found, wanted, "{what} has {found} elements, {wanted} were wanted: the caller checks this");
}
