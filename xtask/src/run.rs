//! Build a program of the workspace, then be it.

use crate::cargo;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::ExitCode;

/// Trains with a profile.
#[derive(Debug, clap::Args)]
pub(crate) struct RunCommand {
    /// Features to build with, `libtorch` for one.
    #[arg(long)]
    features: Option<String>,
    /// What `stoker train` is given: `--profile offload`, `--ranks 2`, `--set train.epochs=3`, …
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs any command of the program.
#[derive(Debug, clap::Args)]
pub(crate) struct StokerCommand {
    /// What `stoker` is given.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs another program of the workspace.
#[derive(Debug, clap::Args)]
pub(crate) struct ProgramCommand {
    /// Features to build with, `libtorch` for one.
    #[arg(long)]
    features: Option<String>,
    /// Which.
    name: String,
    /// What it is given.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn program(command: ProgramCommand) -> Result<ExitCode> {
    be(&cargo::build(&command.name, command.features.as_deref())?, command.arguments)
}

pub(crate) fn bench(command: ProgramCommand) -> Result<ExitCode> {
    if command.name != "kernels" {
        return program(command);
    }
    let mut bench = cargo::cargo(&["bench", "--workspace", "--profile", "dev", "--bench", "kernels", "--"]);
    bench.args(command.arguments);
    cargo::must(bench).map(|()| ExitCode::SUCCESS)
}

pub(crate) fn run(command: RunCommand) -> Result<ExitCode> {
    let arguments = std::iter::once("train".to_owned()).chain(command.arguments).collect();
    be_stoker(command.features.as_deref(), arguments)
}

pub(crate) fn stoker(command: StokerCommand) -> Result<ExitCode> {
    be_stoker(None, command.arguments)
}

fn be_stoker(features: Option<&str>, arguments: Vec<String>) -> Result<ExitCode> {
    be(&cargo::build("stoker", features)?, arguments)
}

fn be(program: &Path, arguments: Vec<String>) -> Result<ExitCode> {
    // Paths in the arguments are the caller's, so its directory is kept.
    let status = std::process::Command::new(program).args(arguments).status();
    let status = status.with_context(|| format!("{} could not be started", program.display()))?;
    // The exit codes of `stoker` are documented; they are passed on.
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
