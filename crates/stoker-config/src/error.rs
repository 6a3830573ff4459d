//! What can be wrong with a configuration.

use crate::Layer;
use std::fmt;
use std::path::PathBuf;
use stoker_core::error::did_you_mean;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong, where it stands, and what would be right.
///
/// The text of each is complete: causes are part of it, and there is no source to print besides.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No profile has this name.
    #[error("no profile is called `{name}`{}; profiles: {}", did_you_mean(.nearest), .known.join(", "))]
    UnknownProfile {
        /// The name that was asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// There is no such key.
    #[error("unknown key `{key}` (from {layer}){}; {known}", did_you_mean(.nearest))]
    UnknownKey {
        /// Its full path.
        key: String,
        /// Where it stands.
        layer: Box<Layer>,
        /// Full path of the key that was probably meant.
        nearest: Option<String>,
        /// What exists at its place.
        known: String,
    },
    /// A key has a value that it cannot have.
    #[error("`{key}` is {found} (from {layer}); allowed: {wanted}")]
    BadValue {
        /// Its full path.
        key: String,
        /// Where it stands.
        layer: Box<Layer>,
        /// The value that was given.
        found: String,
        /// What is allowed.
        wanted: String,
    },
    /// A group of parameters has no parameters.
    #[error(
        "`{key}` is set (from {layer}) but the group has no `match`{}; say which parameters it holds, such as --set \
         groups.{group}.match=*.bias", did_you_mean(.nearest)
    )]
    NoMatch {
        /// Its name.
        group: String,
        /// Full path of a key of it that is set.
        key: String,
        /// Where that stands.
        layer: Box<Layer>,
        /// Full path of the group that was probably meant.
        nearest: Option<String>,
    },
    /// A plugin that is chosen, or given options, does not exist or exists twice.
    #[error("`{key}` (from {layer}): {reason}")]
    Plugin {
        /// Full path of the key, or of the table with options.
        key: String,
        /// Where it stands.
        layer: Box<Layer>,
        /// What the registry says.
        reason: Box<stoker_core::Error>,
    },
    /// Two keys are right by themselves and do not fit together.
    #[error("{one} but {other}: {wanted}")]
    Conflict {
        /// The one.
        one: Box<Setting>,
        /// The other.
        other: Box<Setting>,
        /// What must hold, and what to do.
        wanted: String,
    },
    /// An override of the command line is not `section.key=value`.
    #[error("--set {given}: no `=` in it; write --set section.key=value, such as --set zero.stage=2")]
    BadOverride {
        /// What was given.
        given: String,
    },
    /// A file or a directory cannot be read.
    #[error("cannot read {}: {reason}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// The end of a file's name does not say what is in it.
    #[error("{} ends in none of .toml, .yaml, .yml and .json, so its format is not known; rename it", .path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// A file is not in the format that its name says.
    #[error("{layer} is not valid {format}: {reason}")]
    Parse {
        /// The file, or what was built in.
        layer: Layer,
        /// The format.
        format: &'static str,
        /// What the parser says.
        reason: String,
    },
    /// The schema and the type of the settings differ.
    #[error("checked values do not make settings: {reason}. This is a fault in stoker")]
    Schema {
        /// What differs.
        reason: String,
    },
}

/// A key in force. Displayed as in messages: `` `zero.stage` is 3 (from default) ``.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its full path.
    pub key: String,
    /// Its value.
    pub found: String,
    /// Where that stands.
    pub layer: Layer,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {} (from {})", self.key, self.found, self.layer)
    }
}
