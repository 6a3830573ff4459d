//! How shards are updated. One optimizer so far: [`adamw`].
#![forbid(unsafe_code)]

pub mod adamw;
