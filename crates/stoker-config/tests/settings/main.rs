//! Settings as a program sees them: layers in, settings or an error out. The plugins here are fakes, registered as any
//! crate's are.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod errors;
mod fakes;
mod groups;
mod inert;
mod layers;
mod mistyped;
mod shown;

use std::path::{Path, PathBuf};
use stoker_config::{Error, Provenance, Settings, Sources};

/// `configs/` of the workspace.
fn configs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs")
}

/// Defaults with these overrides.
fn set(overrides: &[&str]) -> Result<(Settings, Provenance), Error> {
    let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
    Settings::load(&Sources { overrides, ..Sources::default() })
}

/// Defaults with this environment.
fn environment(variables: &[(&str, &str)]) -> Result<(Settings, Provenance), Error> {
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Settings::load(&Sources { environment, ..Sources::default() })
}

/// Defaults with a file of this name and text; and the file's path.
fn file(name: &str, text: &str) -> (Result<(Settings, Provenance), Error>, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    let shown = path.display().to_string();
    (Settings::load(&Sources { file: Some(path), ..Sources::default() }), shown)
}

fn message(result: Result<(Settings, Provenance), Error>) -> String {
    result.unwrap_err().to_string()
}
