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
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(of_memory(error, during)),
        Err(payload) => Err(match payload.downcast::<Error>() {
            Ok(error) => of_memory(*error, during),
            Err(payload) => {
                let (during, message) = (during(), panic_text(payload.as_ref()));
                // Burn's operations panic with what libtorch throws.
                out_of_memory(&during, &message).unwrap_or(Error::Panicked { during, message })
            }
        }),
    }
}

/// The error, told as one of memory if it is one: the bridge's own calls of libtorch return it.
fn of_memory(error: Error, during: impl FnOnce() -> String) -> Error {
    let Error::Engine(_) = &error else { return error };
    out_of_memory(&during(), &stoker_core::error::chain(&error)).unwrap_or(error)
}

/// What libtorch says in `text`, if that is that the device has no more memory.
fn out_of_memory(during: &str, text: &str) -> Option<Error> {
    let (_, said) = text.split_once("CUDA out of memory. ")?;
    let needed = said.split_once("allocate ").and_then(|(_, rest)| rest.split_once(". "));
    Some(Error::OutOfDeviceMemory {
        during: during.to_owned(),
        needed: needed.map_or_else(|| "more".to_owned(), |(needed, _)| needed.to_owned()),
        said: said.lines().next().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "test code reports by panicking")]

    use super::*;

    const SAID: &str =
        "CUDA out of memory. Tried to allocate 502.00 MiB. GPU 0 has a total capacity of 139.80 GiB.\nFrame";

    #[test]
    fn a_device_without_memory_says_where_and_how_much() {
        let during = || "backward of unit `fc1`".to_owned();
        for payload in [false, true] {
            let error = catch::<()>(
                || match payload {
                    true => std::panic::panic_any(format!("called `Result::unwrap()`: Torch(\"{SAID}\")")),
                    false => Err(Error::from(stoker_core::Error::Plugin {
                        plugin: "libtorch".to_owned(),
                        doing: "allocating a slab".to_owned(),
                        source: SAID.into(),
                    })),
                },
                during,
            );
            let error = error.unwrap_err();
            assert!(matches!(&error, Error::OutOfDeviceMemory { needed, .. } if needed == "502.00 MiB"), "{error:?}");
            for part in ["backward of unit `fc1`", "502.00 MiB", "schedule.pool_bytes", "139.80 GiB"] {
                assert!(error.to_string().contains(part), "{error}");
            }
            assert!(!error.to_string().contains("Frame"), "{error}");
        }
    }

    #[test]
    fn another_panic_is_a_panic() {
        let error = catch::<()>(|| panic!("shapes differ"), || "forward".to_owned()).unwrap_err();
        assert!(matches!(error, Error::Panicked { .. }), "{error}");
    }
}
