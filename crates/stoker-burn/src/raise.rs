//! How an error leaves a tensor operation.
//!
//! Tensor operations return no `Result`, so an error inside a gather or a gradient can only unwind. It travels as the
//! payload of a panic, which Burn lets through cleanly, and becomes a `Result` again at the edge ([`catch`]).

use crate::{Error, Result};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

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
            Err(payload) => Error::Panicked { during: during(), message: message(payload.as_ref()) },
        }),
    }
}

/// The text of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
