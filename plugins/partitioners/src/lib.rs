//! How a unit's parameters are shared among ranks. One partitioner so far: [`flat`].
#![forbid(unsafe_code)]

pub mod flat;
