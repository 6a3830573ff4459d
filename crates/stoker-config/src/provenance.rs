//! Layers, and which of them set what.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where a value comes from. Displayed as in `stoker config show`: `profile offload`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layer {
    /// What a plugin's schema says if nobody says anything.
    Plugin {
        /// Kind of plugin.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The defaults that are built in.
    Default,
    /// A profile.
    Profile {
        /// Its name.
        name: String,
        /// Its file, if it is not the one that is built in.
        file: Option<PathBuf>,
    },
    /// A file.
    File(PathBuf),
    /// A variable of the environment.
    Environment(String),
    /// An override of the command line.
    Set,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::Plugin { kind, name } => write!(f, "default of {kind} {name}"),
            Layer::Default => f.write_str("default"),
            Layer::Profile { name, file: None } => write!(f, "profile {name}"),
            Layer::Profile { name, file: Some(file) } => write!(f, "profile {name}, {}", file.display()),
            Layer::File(file) => write!(f, "file {}", file.display()),
            Layer::Environment(variable) => write!(f, "environment {variable}"),
            Layer::Set => f.write_str("--set"),
        }
    }
}

/// For each key in force, by full path: the layer that set it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Provenance(BTreeMap<String, Layer>);

impl Provenance {
    /// The layer that set `key`, such as `zero.stage` or `optimizer.adamw.eps`.
    pub fn of(&self, key: &str) -> Option<&Layer> {
        self.0.get(key)
    }

    /// All keys in force, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Layer)> {
        self.0.iter().map(|(key, layer)| (key.as_str(), layer))
    }

    pub(crate) fn insert(&mut self, key: String, layer: Layer) {
        self.0.insert(key, layer);
    }
}
