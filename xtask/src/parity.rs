//! `cargo xtask parity`: reference trajectories, in every combination of ranks, stages and targets.

use crate::cargo;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Trains as PyTorch did, in every combination, and fails if any lands outside its file's tolerances.
#[derive(Debug, clap::Args)]
pub(crate) struct ParityCommand {
    /// Trajectories, such as ../shared/golden/*.safetensors.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Numbers of ranks.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3])]
    ranks: Vec<usize>,
    /// Stages of ZeRO.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 2, 3])]
    stages: Vec<u8>,
    /// Offload targets.
    #[arg(long, value_delimiter = ',', default_values_t = ["cpu-offload".to_owned()])]
    offload: Vec<String>,
    /// Burn's backend, `flex`, `libtorch` or `libtorch-cuda`: these are built in.
    #[arg(long, default_value = "flex")]
    backend: String,
}

/// What `torch-parity` ends with if a file was met, but not within its tolerances.
const OVER: i32 = 1;

pub(crate) fn run(command: &ParityCommand) -> Result<()> {
    let program = cargo::build("torch-parity", command.backend.starts_with("libtorch").then_some("libtorch"))?;
    let combinations = command.combinations();
    let mut over = Vec::new();
    for options in &combinations {
        // Its lines are the result of this command, too. Paths are the caller's, so its directory is kept.
        let status = Command::new(&program).arg("--brief").args(options).args(&command.files).status();
        let status = status.with_context(|| format!("{} could not be started", program.display()))?;
        match status.code() {
            Some(0) => {}
            Some(OVER) => over.push(options.join(" ")),
            _ => bail!("{} ended with {}", shown(&program, options), cargo::ended(status)),
        }
    }
    if !over.is_empty() {
        bail!(
            "over a file's tolerances with {} of {} combinations: {}",
            over.len(),
            combinations.len(),
            over.join("; ")
        );
    }
    Ok(())
}

impl ParityCommand {
    /// Options of the program for each run.
    fn combinations(&self) -> Vec<Vec<String>> {
        let mut combinations = Vec::new();
        for offload in &self.offload {
            for stage in &self.stages {
                for ranks in &self.ranks {
                    let (stage, ranks) = (stage.to_string(), ranks.to_string());
                    let options =
                        ["--offload", offload, "--stage", &stage, "--ranks", &ranks, "--backend", &self.backend];
                    combinations.push(options.map(str::to_owned).to_vec());
                }
            }
        }
        combinations
    }
}

fn shown(program: &Path, options: &[String]) -> String {
    let name = program.file_stem().unwrap_or_default().to_string_lossy();
    format!("`{name} {}`", options.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        command: ParityCommand,
    }

    fn combinations(arguments: &[&str]) -> Vec<String> {
        let cli = Cli::parse_from(std::iter::once("parity").chain(arguments.iter().copied()));
        cli.command.combinations().into_iter().map(|options| options.join(" ")).collect()
    }

    #[test]
    fn every_stage_meets_every_number_of_ranks() {
        let all = combinations(&["a.safetensors", "b.safetensors"]);
        assert_eq!(all.len(), 12);
        assert_eq!(all[0], "--offload cpu-offload --stage 0 --ranks 1 --backend flex");
        assert_eq!(all[11], "--offload cpu-offload --stage 3 --ranks 3 --backend flex");
        let some =
            ["a", "--ranks", "4,6", "--stages", "2", "--offload", "gpu-only,cpu-offload", "--backend", "libtorch"];
        assert_eq!(
            combinations(&some),
            [
                "--offload gpu-only --stage 2 --ranks 4 --backend libtorch",
                "--offload gpu-only --stage 2 --ranks 6 --backend libtorch",
                "--offload cpu-offload --stage 2 --ranks 4 --backend libtorch",
                "--offload cpu-offload --stage 2 --ranks 6 --backend libtorch",
            ]
        );
    }
}
