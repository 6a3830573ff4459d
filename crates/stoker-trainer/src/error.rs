//! What can go wrong in a run, and the exit code of each.

use std::path::PathBuf;
use stoker_burn::Error as BurnError;
use stoker_core::Error as CoreError;
use stoker_data::{DataError, SamplerError};
use stoker_engine::Error as EngineError;

/// A result of a run.
pub type Result<T> = std::result::Result<T, Error>;

/// Exit codes of the program.
pub mod exit {
    /// What was asked for is done.
    pub const DONE: u8 = 0;
    /// What the other codes do not say.
    pub const OTHER: u8 = 1;
    /// The configuration or the command line is wrong.
    pub const USAGE: u8 = 2;
    /// The model does not fit the memory there is.
    pub const DOES_NOT_FIT: u8 = 3;
    /// A rank panicked, was lost or was late.
    pub const RANK_LOST: u8 = 4;
    /// A data set or a weights file is missing or damaged.
    pub const DATA: u8 = 5;
    /// As many steps in a row as `precision.max_consecutive_skips` were skipped: nothing is trained any more.
    pub const NOTHING_TRAINED: u8 = 6;
}

/// What was wanted, what was found, and what to do.
///
/// The text of each says only its own part; [`source`](std::error::Error::source) has the rest. See
/// [`exit_code`](Error::exit_code).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(Box<stoker_config::Error>),
    /// A plugin could not be made, or failed.
    #[error(transparent)]
    Core(Box<CoreError>),
    /// The model or a step of it failed.
    #[error(transparent)]
    Burn(Box<BurnError>),
    /// The data set could not be opened.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The data set cannot be shared out as the configuration wants.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// A record of the data set could not be read.
    #[error("record {record} of the data set cannot be read")]
    Record {
        /// Its number.
        record: usize,
        /// Why.
        source: burn_dataset::DatasetError,
    },
    /// What a rank failed with, before any other.
    #[error("rank {rank} failed")]
    Rank {
        /// The rank.
        rank: usize,
        /// Why.
        source: Box<Error>,
    },
    /// A rank panicked outside of a step.
    #[error("panic: {0}")]
    Panicked(String),
    /// The thread of a rank could not be started.
    #[error("thread `{name}` could not be started; run fewer ranks (run.ranks) or allow more threads")]
    Thread {
        /// Its name.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// A communicator came with ends for another number of ranks.
    #[error(
        "communicator `{name}` has {found} ranks in this process, run.ranks = {wanted}: only communicators whose ranks \
         are all threads of one process can be used here"
    )]
    Ends {
        /// The communicator.
        name: String,
        /// Its ends.
        found: usize,
        /// Ranks of the run.
        wanted: usize,
    },
    /// Settings that were made by hand and not checked.
    #[error("{key} is {found}; allowed: {wanted}")]
    Setting {
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
        /// What is allowed.
        wanted: String,
    },
    /// A method was called at the wrong time.
    #[error("{0}")]
    Misuse(&'static str),
    /// A file cannot be written.
    #[error("cannot write {}; check that its directory exists, is writable and has room", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An error of the user's own code.
    #[error(transparent)]
    Other(#[from] Box<dyn std::error::Error + Send + Sync>),
}

// Boxed: they are large, and a `Result` is as large as its error.
impl From<stoker_config::Error> for Error {
    fn from(error: stoker_config::Error) -> Self {
        Self::Config(Box::new(error))
    }
}

impl From<CoreError> for Error {
    fn from(error: CoreError) -> Self {
        Self::Core(Box::new(error))
    }
}

impl From<BurnError> for Error {
    fn from(error: BurnError) -> Self {
        Self::Burn(Box::new(error))
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        BurnError::from(error).into()
    }
}

/// How near an error is to what went wrong first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closeness {
    /// It is it.
    Cause,
    /// Somebody did not come, for whatever reason.
    Missed,
    /// Another rank gave up.
    Heard,
    /// The engine stopped for an earlier error.
    Stopped,
}

impl Error {
    /// An error of the user's own code.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// The exit code of a program that ends with it: one of [`exit`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Config(_) | Error::Sampler(_) | Error::Setting { .. } | Error::Ends { .. } => exit::USAGE,
            Error::Data(_) | Error::Record { .. } => exit::DATA,
            Error::Panicked(_) => exit::RANK_LOST,
            Error::Rank { source, .. } => source.exit_code(),
            Error::Core(error) => code_of_core(error),
            Error::Burn(error) => code_of_burn(error),
            Error::Thread { .. } | Error::Misuse(_) | Error::Write { .. } => exit::OTHER,
            Error::Other(error) => code_of_any(error.as_ref()),
        }
    }

    pub(crate) fn closeness(&self) -> Closeness {
        match self {
            Error::Rank { source, .. } => source.closeness(),
            Error::Core(error) => closeness_of_core(error),
            Error::Burn(error) => match error.as_ref() {
                BurnError::Engine(EngineError::Stopped(_)) => Closeness::Stopped,
                BurnError::Engine(EngineError::Core(error)) => closeness_of_core(error),
                _ => Closeness::Cause,
            },
            _ => Closeness::Cause,
        }
    }

    /// The error and its causes on one line.
    pub fn chain(&self) -> String {
        stoker_core::error::chain(self)
    }
}

fn closeness_of_core(error: &CoreError) -> Closeness {
    match error {
        CoreError::RankLost { .. } => Closeness::Heard,
        CoreError::Timeout { .. } => Closeness::Missed,
        _ => Closeness::Cause,
    }
}

fn code_of_core(error: &CoreError) -> u8 {
    match error {
        CoreError::Full { .. } => exit::DOES_NOT_FIT,
        CoreError::RankLost { .. } | CoreError::Timeout { .. } | CoreError::Disagree { .. } => exit::RANK_LOST,
        CoreError::UnknownPlugin { .. }
        | CoreError::DuplicatePlugin { .. }
        | CoreError::UnknownOption { .. }
        | CoreError::BadOption { .. } => exit::USAGE,
        CoreError::Plugin { source, .. } => code_of_any(source.as_ref()),
        _ => exit::OTHER,
    }
}

fn code_of_burn(error: &BurnError) -> u8 {
    match error {
        BurnError::Engine(EngineError::DoesNotFit { .. }) | BurnError::OutOfDeviceMemory { .. } => exit::DOES_NOT_FIT,
        BurnError::Engine(EngineError::Core(error)) => code_of_core(error),
        BurnError::Engine(EngineError::NothingTrained { .. }) => exit::NOTHING_TRAINED,
        BurnError::Engine(EngineError::Stopped(_) | EngineError::UpdatePanicked { .. })
        | BurnError::Panicked { .. } => exit::RANK_LOST,
        BurnError::BackendMissing { .. }
        | BurnError::Pattern { .. }
        | BurnError::TwoGroups { .. }
        | BurnError::EmptyGroup { .. } => exit::USAGE,
        BurnError::Weights { .. } | BurnError::WeightsFile { .. } => exit::DATA,
        _ => exit::OTHER,
    }
}

/// Looks for an error of ours among the causes of somebody else's.
fn code_of_any(error: &(dyn std::error::Error + 'static)) -> u8 {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<Error>() {
            return error.exit_code();
        }
        if let Some(error) = error.downcast_ref::<CoreError>() {
            return code_of_core(error);
        }
        next = error.source();
    }
    exit::OTHER
}

#[cfg(test)]
mod tests;
