//! What must be the same in a collective's call on every rank.

use std::fmt;
use stoker_core::{DType, Error, HostBuffer, Result};

/// The collective operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    AllGather,
    ReduceScatter,
    AllReduce,
    Broadcast { root: usize },
    Barrier,
}

/// Operation, name, type and count of what is contributed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) operation: Operation,
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) count: usize,
}

impl Fingerprint {
    pub(crate) fn new(operation: Operation, name: &str, buffer: &HostBuffer) -> Self {
        Self { operation, name: name.to_owned(), dtype: buffer.dtype(), count: buffer.len() }
    }

    /// Operation and name.
    pub(crate) fn short(&self) -> String {
        let text = self.to_string();
        text.split_once(" of ").map_or_else(|| text.clone(), |(short, _)| short.to_owned())
    }

    /// Checks the second buffer of a call: `many` is as long as `world` times `one`.
    pub(crate) fn check_lengths(&self, one: &HostBuffer, many: &HostBuffer, world: usize) -> Result<()> {
        let refuse = |what: &str, found: usize, wanted: usize| {
            Err(Error::OutOfRange { what: format!("{what} of {self}"), found: found as u64, wanted: wanted as u64 })
        };
        if one.dtype() != many.dtype() {
            return Err(Error::WrongType {
                what: format!("the shard of {self}"),
                found: one.dtype(),
                wanted: many.dtype(),
            });
        }
        match one.len().checked_mul(world) {
            Some(wanted) if wanted == many.len() => Ok(()),
            wanted => refuse("the whole length", many.len(), wanted.unwrap_or(usize::MAX)),
        }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, name, dtype, count } = self;
        match operation {
            Operation::AllGather => write!(f, "all_gather `{name}` of {count} x {dtype}"),
            Operation::ReduceScatter => write!(f, "reduce_scatter `{name}` of {count} x {dtype}"),
            Operation::AllReduce => write!(f, "all_reduce `{name}` of {count} x {dtype}"),
            Operation::Broadcast { root } => write!(f, "broadcast `{name}` of {count} x {dtype} from rank {root}"),
            Operation::Barrier => write!(f, "barrier `{name}`"),
        }
    }
}
