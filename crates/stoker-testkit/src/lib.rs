//! Conformance suites for stoker's plugins, and stand-ins that fail on purpose.
//!
//! One suite a trait, called from a plugin's own tests:
//!
//! | trait | suite |
//! |---|---|
//! | [`Partitioner`](stoker_core::Partitioner) | [`partitioner::conforms`] |
//! | [`OffloadTarget`](stoker_core::OffloadTarget) | [`offload::conforms`] |
//! | [`Communicator`](stoker_core::Communicator) | [`communicator::conforms`] |
//! | [`Optimizer`](stoker_core::Optimizer) | [`optimizer::conforms`] |
//!
//! A suite panics at the first law that is broken and says which, with the case. It knows nothing of the plugin but the
//! trait, so a third party's plugin is held to what ours are held to.
//!
//! [`faults`] and [`staged`] are for those who *use* plugins: communicators and targets that fail, delay or fall silent
//! where a test wants it, and memory that can only be reached by reads and writes.
#![forbid(unsafe_code)]
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used, reason = "a conformance suite reports by panicking")]

pub mod communicator;
pub mod faults;
pub mod offload;
pub mod optimizer;
pub mod partitioner;
pub mod ranks;
pub mod staged;
pub mod values;
