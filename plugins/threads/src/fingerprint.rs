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

    /// Operation and name: enough to recognise a call that all ranks made alike.
    pub(crate) fn short(&self) -> String {
        format!("{} `{}`", self.operation, self.name)
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

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::AllGather => "all_gather",
            Operation::ReduceScatter => "reduce_scatter",
            Operation::AllReduce => "all_reduce",
            Operation::Broadcast { .. } => "broadcast",
            Operation::Barrier => "barrier",
        })
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, name, dtype, count } = self;
        write!(f, "{operation} `{name}`")?;
        match operation {
            Operation::Barrier => Ok(()),
            Operation::Broadcast { root } => write!(f, " of {count} x {dtype} from rank {root}"),
            _ => write!(f, " of {count} x {dtype}"),
        }
    }
}
