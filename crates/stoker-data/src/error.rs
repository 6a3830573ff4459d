//! What can be wrong with the data or with the way it is to be split: what was found, what was wanted, what to do.

use std::path::PathBuf;

use crate::cifar10::{BATCH_BYTES, RECORDS_PER_BATCH};
use crate::image::CLASSES;

/// A data set could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file of the data set is not there.
    #[error("CIFAR-10: `{}` does not exist; get the data set with `cargo xtask data cifar10`", file.display())]
    Missing {
        /// The file that was looked for.
        file: PathBuf,
    },
    /// The operating system refused to read a file.
    #[error("CIFAR-10: cannot read `{}`, stopped at byte {offset}; check its permissions and the disk", file.display())]
    Read {
        /// The file being read.
        file: PathBuf,
        /// How many bytes had been read.
        offset: u64,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A batch file ends too early.
    #[error(
        "CIFAR-10: `{}` ends at byte {offset}, which is {found} whole records, wanted {RECORDS_PER_BATCH} records \
         ({BATCH_BYTES} bytes); remove the file and run `cargo xtask data cifar10`",
        file.display()
    )]
    Truncated {
        /// The file that is too short.
        file: PathBuf,
        /// Where it ends.
        offset: u64,
        /// The whole records it holds.
        found: usize,
    },
    /// A batch file goes on after its last record.
    #[error(
        "CIFAR-10: `{}` goes on after byte {offset} and is {found} bytes long, wanted {RECORDS_PER_BATCH} records \
         ({BATCH_BYTES} bytes); it is not a file of the binary version: remove it and run `cargo xtask data cifar10`",
        file.display()
    )]
    Overlong {
        /// The file that is too long.
        file: PathBuf,
        /// Where the surplus begins.
        offset: u64,
        /// The file's length.
        found: u64,
    },
    /// A record's label names no class.
    #[error(
        "CIFAR-10: `{}` has label {found} at byte {offset} (record {record}), wanted 0..={}; the file is damaged: \
         remove it and run `cargo xtask data cifar10`",
        file.display(),
        CLASSES - 1
    )]
    Label {
        /// The file with the wrong label.
        file: PathBuf,
        /// Where the label lies.
        offset: u64,
        /// The record within the file, from 0.
        record: usize,
        /// The label read.
        found: u8,
    },
    /// `batches.meta.txt` does not name the classes.
    #[error(
        "CIFAR-10: `{}` names {found} classes in {offset} bytes, wanted {CLASSES}, one on each line; remove the file \
         and run `cargo xtask data cifar10`",
        file.display()
    )]
    ClassNames {
        /// The file of class names.
        file: PathBuf,
        /// Where it was read to.
        offset: u64,
        /// The names found.
        found: usize,
    },
    /// A configuration names a source that does not exist.
    #[error("data.source: found `{found}`, wanted `auto`, `cifar10` or `builtin`; correct it in the configuration")]
    UnknownSource {
        /// The name found.
        found: String,
    },
}

/// A data set cannot be split over the ranks as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// The rank is not one of the world's.
    #[error(
        "sampler: found rank {rank} of a world of {world}, wanted a rank below the world size; check how the ranks \
         were started"
    )]
    Rank {
        /// The rank given.
        rank: usize,
        /// The world size given.
        world: usize,
    },
    /// A batch of no records.
    #[error("sampler: found a batch of 0 records on each rank, wanted at least 1; raise the batch size")]
    EmptyBatch,
    /// The global batch cannot be shared out equally.
    #[error(
        "sampler: found a global batch of {batch} for {world} ranks, which leaves {} over, wanted a multiple of the \
         number of ranks; try {}",
        batch % world,
        divisible(*batch, *world)
    )]
    NotDivisible {
        /// The global batch given.
        batch: usize,
        /// The number of ranks.
        world: usize,
    },
    /// One step would need more records than there are.
    #[error(
        "sampler: found {len} records, wanted at least one global batch of {batch}; lower the batch size or the number \
         of ranks, or raise the limit on the number of records"
    )]
    TooFewRecords {
        /// The records there are.
        len: usize,
        /// The global batch.
        batch: usize,
    },
    /// The global batch does not fit a `usize`.
    #[error(
        "sampler: found {micro_batch} records for each of {world} ranks, wanted a global batch that a machine can \
         count; lower the batch size"
    )]
    BatchOverflow {
        /// Records per rank.
        micro_batch: usize,
        /// The number of ranks.
        world: usize,
    },
    /// There is nothing to evaluate on.
    #[error(
        "sampler: found 0 records to evaluate on, wanted at least 1; raise the limit on the number of \
         validation records"
    )]
    NothingToEvaluate,
}

/// The multiples of `world` next to `batch`, except 0.
fn divisible(batch: usize, world: usize) -> String {
    let below = batch - batch % world;
    let above = below.saturating_add(world);
    if below == 0 { above.to_string() } else { format!("{below} or {above}") }
}
