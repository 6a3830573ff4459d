//! `threads`: each rank is a thread of one process.
//!
//! [Note: Rendezvous] All ranks share a hub. A collective is known by its number: the n-th call of one rank meets
//! the n-th calls of the others. A call deposits its buffers and returns; with the last deposit the collective can be
//! done, as a few pieces of work (a rank's result, or a part of a sum) that read the deposits in place. Whoever waits
//! takes pieces until none are left, its own first, then those of ranks that do not wait (yet). So a collective needs
//! every rank to *come*, and no rank to *wait*: ranks may wait in any order, late, or never, and nobody hangs on it.
//!
//! The copies and sums run outside the lock, and no thread is started here.
#![forbid(unsafe_code)]

mod call;
mod endpoint;
mod fingerprint;
mod hub;
mod story;
mod work;

pub use endpoint::{ThreadCommunicator, group};

#[cfg(test)]
mod tests;
