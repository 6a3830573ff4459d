//! Tests of the whole, in one program: linking Burn takes long.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code reports by panicking")]

mod arrangements;
mod building;
mod chains;
mod convolution;
mod exactness;
mod faults;
mod features;
mod interleaved;
mod matrix;
mod moe;
mod oddities;
mod precision;
mod relu;
mod resident;
mod steps;
mod sync_batch_norm;
