//! What can go wrong, and the exit code of each.

use std::path::PathBuf;

/// A result of this program.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Exit codes beside 0.
pub(crate) mod exit {
    /// A file was met, but not within its tolerances.
    pub(crate) const OVER: u8 = 1;
    /// The command line is wrong, or a file is not what it should be.
    pub(crate) const USAGE: u8 = 2;
    /// A run did not come to its end.
    pub(crate) const FAILED: u8 = 3;
}

/// What ended the program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The command line made no settings.
    #[error(transparent)]
    Settings(#[from] Box<stoker::config::Error>),
    /// A setting under which nothing could be compared.
    #[error("{key} is {found}; the files are trained in f32, with all parameters alike: leave it as it is by default")]
    OtherNumbers {
        /// The setting.
        key: &'static str,
        /// What it is.
        found: String,
    },
    /// A file is not a trajectory that can be followed.
    #[error("{}", .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: Box<Problem>,
    },
    /// Ranks cannot share a micro-batch evenly.
    #[error(
        "{}: {ranks} ranks cannot share its micro-batches of {batch} evenly; choose --ranks among {}", .file.display(),
        .choices.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
    )]
    Uneven {
        /// The file.
        file: PathBuf,
        /// Number of ranks.
        ranks: usize,
        /// Records of a micro-batch.
        batch: usize,
        /// Numbers of ranks that can.
        choices: Vec<usize>,
    },
    /// Files between the program and its ranks.
    #[error("a temporary file could not be written to {}; set TMPDIR to a directory that is writable and has room", std::env::temp_dir().display())]
    Scratch(#[source] std::io::Error),
    /// The ranks could not be started, or failed.
    #[error("{}", .file.display())]
    Ranks {
        /// The file that they were to follow.
        file: PathBuf,
        /// Why.
        source: Box<stoker::Error>,
    },
    /// The result could not be shown.
    #[error("cannot write to standard output")]
    Print(#[source] std::io::Error),
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// It cannot be read.
    #[error("cannot be read; check that it exists and may be read")]
    Unreadable(#[source] std::io::Error),
    /// It is of another format.
    #[error("is no safetensors file, or a damaged one; write it with the safetensors library")]
    NotSafetensors(#[source] safetensors::SafeTensorError),
    /// It says nothing of itself.
    #[error("its metadata has no `spec`; write the run's model, batch, steps, optimizer and tolerance there, as JSON")]
    NoSpec,
    /// What it says is not understood.
    #[error("the `spec` of its metadata is not understood")]
    Spec(#[source] serde_json::Error),
    /// A field of `spec` cannot have this value.
    #[error("`{field}` of `spec` is {found}; allowed: {wanted}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        wanted: &'static str,
    },
    /// `spec` names a network that this program does not know.
    #[error("`model` of `spec` is \"{found}\"{}; this program has: {}", stoker::core::error::did_you_mean(.nearest), .known.join(", "))]
    Network {
        /// The name.
        found: String,
        /// The one that was probably meant.
        nearest: Option<String>,
        /// Those that there are.
        known: &'static [&'static str],
    },
    /// No optimizer is made of what `spec` says.
    #[error("`optimizer` of `spec` cannot be had")]
    Optimizer(#[source] Box<stoker::core::Error>),
    /// A tensor is missing.
    #[error("tensor `{tensor}` is missing; its model `{model}` and the layout want it")]
    Missing {
        /// Its name.
        tensor: String,
        /// The network.
        model: String,
    },
    /// A tensor has no place.
    #[error(
        "tensor `{tensor}` belongs neither to the model `{model}` nor to the layout; leave it out or name its model"
    )]
    Stray {
        /// Its name.
        tensor: String,
        /// The network.
        model: String,
    },
    /// A tensor is of another type.
    #[error("tensor `{tensor}` is of {found}, {wanted} is wanted; convert it")]
    Type {
        /// Its name.
        tensor: String,
        /// Its type.
        found: safetensors::Dtype,
        /// What it should be.
        wanted: safetensors::Dtype,
    },
    /// A tensor is of another shape.
    #[error(
        "tensor `{tensor}` has shape {found:?}, {wanted:?} is wanted, which is PyTorch's layout for what `spec` says"
    )]
    Shape {
        /// Its name.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// What it should be.
        wanted: Vec<usize>,
    },
    /// A label is no class.
    #[error("label {at} is {found}; the networks tell classes 0 to {last}")]
    Label {
        /// Its number, over all steps.
        at: usize,
        /// The label.
        found: i64,
        /// The last class.
        last: usize,
    },
}

impl From<stoker::config::Error> for Error {
    fn from(error: stoker::config::Error) -> Self {
        Self::Settings(Box::new(error))
    }
}

impl Error {
    /// The exit code of the program that ends with it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Error::Settings(_) | Error::OtherNumbers { .. } | Error::File { .. } | Error::Uneven { .. } => exit::USAGE,
            Error::Ranks { source, .. } if source.exit_code() == stoker::exit::USAGE => exit::USAGE,
            Error::Ranks { .. } | Error::Scratch(_) | Error::Print(_) => exit::FAILED,
        }
    }
}
