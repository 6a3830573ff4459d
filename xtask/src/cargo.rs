//! Calling cargo the same way everywhere.
//!
//! [Note: One build of Burn] Cargo unifies the features of the packages that it builds together, so another selection of
//! packages can mean another build of Burn, minutes each. Every command here therefore selects the whole workspace.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A command in the root of the workspace.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Cargo itself.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments);
    // What `cargo run` says of xtask itself. Build scripts that look at it would be run again, and what depends on them built
    // again, whenever a build by hand follows one from here.
    let of_xtask =
        |name: &OsStr| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|p| name.to_string_lossy().starts_with(p));
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_xtask(name)) {
        cargo.env_remove(name);
    }
    cargo
}

/// Runs a command that must succeed.
pub(crate) fn must(mut command: Command) -> Result<()> {
    let shown = show(&command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("`{shown}` could not be started"))?;
    if !status.success() {
        bail!("`{shown}` ended with {}", ended(status));
    }
    Ok(())
}

/// Builds a program of the workspace and says where it is.
pub(crate) fn build(name: &str, features: Option<&str>) -> Result<PathBuf> {
    let mut build = cargo(&["build", "--workspace", "--bin", name]);
    if let Some(features) = features {
        build.args(["--features", features]);
    }
    must(build)?;
    let program = target_directory()?.join("debug").join(name).with_extension(std::env::consts::EXE_EXTENSION);
    if !program.is_file() {
        bail!("cargo built `{name}`, but it is not at {}", program.display());
    }
    Ok(program)
}

/// Where cargo builds.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec();
    Ok(metadata.context("cargo metadata")?.target_directory.into())
}

/// Whether `cargo nextest` is installed.
pub(crate) fn has_nextest() -> bool {
    cargo(&["nextest", "--version"]).output().is_ok_and(|output| output.status.success())
}

fn show(command: &Command) -> String {
    // `cargo`, wherever it is installed.
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// How a program ended, for messages.
pub(crate) fn ended(status: ExitStatus) -> String {
    status.code().map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"))
}
