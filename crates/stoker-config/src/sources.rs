//! Where settings come from.

use crate::leaf::{self, Leaf, PREFIX};
use crate::{Error, Layer, Result, profiles};
use config::FileFormat;
use std::path::{Path, PathBuf};

/// The layers over the defaults, weakest first but for `configs_dir`.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A directory with `default.toml` and `profiles/*.toml`, neither needed. Its defaults stand above those built in,
    /// its profiles replace those of the same name.
    pub configs_dir: Option<PathBuf>,
    /// Name of a profile.
    pub profile: Option<String>,
    /// A file in TOML, YAML or JSON, by the end of its name.
    pub file: Option<PathBuf>,
    /// Environment variables; those that do not begin with `STOKER__` are ignored.
    pub environment: Vec<(String, String)>,
    /// `section.key=value`; of several for a key the last wins.
    pub overrides: Vec<String>,
}

impl Sources {
    /// No layer but this process's environment. Bytes that are no text are replaced by `U+FFFD`.
    pub fn from_env() -> Self {
        let environment = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .filter(|(name, _)| name.starts_with(PREFIX))
            .collect();
        Self { environment, ..Self::default() }
    }

    /// Leaves of all layers, weakest first.
    pub(crate) fn leaves(&self) -> Result<Vec<Leaf>> {
        let configs_dir = self.configs_dir.as_deref();
        let mut leaves = leaf::document(profiles::DEFAULT, FileFormat::Toml, &Layer::Default)?;
        if let Some(default) = configs_dir.map(|dir| dir.join("default.toml")).filter(|path| path.exists()) {
            leaves.extend(file(&default)?);
        }
        if let Some(name) = &self.profile {
            let (text, layer) = profiles::profile(name, configs_dir)?;
            leaves.extend(leaf::document(&text, FileFormat::Toml, &layer)?);
        }
        if let Some(path) = &self.file {
            leaves.extend(file(path)?);
        }
        // In the order of names, not of the process: what happens must not depend on it.
        let mut environment: Vec<_> = self.environment.iter().collect();
        environment.sort();
        for (name, value) in environment {
            leaves.extend(leaf::environment(name, value));
        }
        for given in &self.overrides {
            leaves.extend(leaf::set(given)?);
        }
        Ok(leaves)
    }
}

fn file(path: &Path) -> Result<Vec<Leaf>> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let format = match extension.to_ascii_lowercase().as_str() {
        "toml" => FileFormat::Toml,
        "yaml" | "yml" => FileFormat::Yaml,
        "json" => FileFormat::Json,
        _ => return Err(Error::UnknownFormat { path: path.to_owned() }),
    };
    leaf::document(&profiles::read(path)?, format, &Layer::File(path.to_owned()))
}
