//! Picks the data set that a configuration asks for.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use burn_dataset::Dataset;

use crate::builtin::{Builtin, DEFAULT_TRAIN_RECORDS, DEFAULT_VALID_RECORDS};
use crate::cifar10::{Cifar10, class_names, default_dir, installed};
use crate::error::DataError;
use crate::image::{ImageItem, Split};

/// What `data.source` may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SourceKind {
    /// CIFAR-10 where it is installed, the built-in set otherwise.
    #[default]
    Auto,
    /// CIFAR-10, or an error.
    Cifar10,
    /// The built-in set.
    Builtin,
}

impl FromStr for SourceKind {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self, DataError> {
        match text {
            "auto" => Ok(Self::Auto),
            "cifar10" => Ok(Self::Cifar10),
            "builtin" => Ok(Self::Builtin),
            found => Err(DataError::UnknownSource { found: found.to_owned() }),
        }
    }
}

/// Which data set to open and how much of it.
#[derive(Debug, Clone)]
pub struct SourceOptions {
    /// Which data set.
    pub kind: SourceKind,
    /// Where CIFAR-10 is looked for.
    pub dir: PathBuf,
    /// Records to train on: the first so many of CIFAR-10, exactly so many of the built-in set; 0 for all of CIFAR-10
    /// or [`DEFAULT_TRAIN_RECORDS`].
    pub train_limit: usize,
    /// Records to validate with, likewise; 0 for all of CIFAR-10 or [`DEFAULT_VALID_RECORDS`].
    pub valid_limit: usize,
    /// What the built-in set is drawn from.
    pub seed: u64,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self { kind: SourceKind::Auto, dir: default_dir(), train_limit: 0, valid_limit: 0, seed: 0 }
    }
}

/// An opened data set.
#[derive(Clone)]
pub struct Sources {
    /// The records to train on.
    pub train: Arc<dyn Dataset<ImageItem>>,
    /// The records to validate with.
    pub valid: Arc<dyn Dataset<ImageItem>>,
    /// `cifar10` or `builtin`.
    pub name: &'static str,
    /// The names of the ten classes, by label.
    pub class_names: Vec<String>,
    /// One line for the user when the choice was not theirs.
    pub notice: Option<String>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources")
            .field("name", &self.name)
            .field("train", &self.train.len())
            .field("valid", &self.valid.len())
            .field("notice", &self.notice)
            .finish_non_exhaustive()
    }
}

/// Opens the data set that `options` ask for.
///
/// # Errors
///
/// When CIFAR-10 is asked for and not there, or is there and damaged. `auto` passes over a CIFAR-10 that is not there,
/// never over one that is damaged.
pub fn open(options: &SourceOptions) -> Result<Sources, DataError> {
    match options.kind {
        SourceKind::Cifar10 => cifar10(options),
        SourceKind::Builtin => Ok(builtin(options, None)),
        SourceKind::Auto if installed(&options.dir) => cifar10(options),
        SourceKind::Auto => {
            let notice = format!(
                "CIFAR-10 is not in {}: using the built-in data set instead; get the real one with `cargo xtask data \
                 cifar10`",
                options.dir.display()
            );
            Ok(builtin(options, Some(notice)))
        }
    }
}

fn cifar10(options: &SourceOptions) -> Result<Sources, DataError> {
    Ok(Sources {
        class_names: class_names(&options.dir)?,
        train: Arc::new(Cifar10::open(&options.dir, Split::Train)?.limited(options.train_limit)),
        valid: Arc::new(Cifar10::open(&options.dir, Split::Valid)?.limited(options.valid_limit)),
        name: "cifar10",
        notice: None,
    })
}

fn builtin(options: &SourceOptions, notice: Option<String>) -> Sources {
    let or = |limit, all| if limit == 0 { all } else { limit };
    let train = or(options.train_limit, DEFAULT_TRAIN_RECORDS);
    let valid = or(options.valid_limit, DEFAULT_VALID_RECORDS);
    Sources {
        train: Arc::new(Builtin::new(options.seed, Split::Train, train)),
        valid: Arc::new(Builtin::new(options.seed, Split::Valid, valid)),
        name: "builtin",
        class_names: Builtin::class_names(),
        notice,
    }
}

#[cfg(test)]
mod tests;
