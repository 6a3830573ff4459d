//! How an error leaves a tensor operation.
//!
//! Tensor operations return no `Result`, so an error inside a gather or a gradient can only unwind. It travels as the
//! payload of a panic, which Burn lets through cleanly, and becomes a `Result` again at the edge ([`catch`]).

use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use stoker_core::error::panic_text;

/// Unwinds with `error` as the payload. The panic hook is not called: nothing is printed.
pub(crate) fn raise(error: impl Into<Error>) -> ! {
    resume_unwind(Box::new(error.into()))
}

/// The value, or unwinds.
pub(crate) fn or_raise<T, E: Into<Error>>(result: std::result::Result<T, E>) -> T {
    result.unwrap_or_else(|error| raise(error))
}

/// Runs `work`; what it unwinds with becomes an error. `during` is asked where it happened.
pub(crate) fn catch<T>(work: impl FnOnce() -> Result<T>, during: impl FnOnce() -> String) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(payload) => Err(match payload.downcast::<Error>() {
            Ok(error) => *error,
            Err(payload) => Error::Panicked { during: during(), message: panic_text(payload.as_ref()) },
        }),
    }
}
