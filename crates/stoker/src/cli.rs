//! The command line.

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use stoker::Sources;

/// ZeRO for Burn: trains models larger than the device, sharded over ranks and offloaded.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 other errors, 2 wrong configuration or usage, 3 the model does not \
                          fit, 4 a rank was lost or late, 5 data or weights are missing or damaged, 6 too many \
                          steps in a row were skipped.
RUST_LOG=info (or debug) logs to standard error.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Trains a model and prints a summary.
    #[command(after_help = EXIT_CODES)]
    Train {
        #[command(flatten)]
        layers: Layers,
        /// Begin with the weights in this safetensors file.
        #[arg(long, value_name = "FILE")]
        init: Option<PathBuf>,
        /// Write the weights to this safetensors file at the end.
        #[arg(long, value_name = "FILE")]
        save: Option<PathBuf>,
        /// Write the summary to this file as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Prints what a run would need of each memory and what there is, without training: exit code 3 if it does not fit.
    #[command(after_help = EXIT_CODES)]
    Plan {
        #[command(flatten)]
        layers: Layers,
        /// Write it to this file as one JSON object.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Deals with configurations.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Lists the plugins in this program, with their options.
    Plugins,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Prints the settings in force, and where each comes from.
    Show {
        #[command(flatten)]
        layers: Layers,
        /// As JSON instead of TOML.
        #[arg(long)]
        json: bool,
    },
}

/// Layers of the configuration, over the defaults and below each other in this order; the environment
/// (`STOKER__SECTION__KEY`) stands between `--config` and `--set`.
#[derive(Debug, Args)]
pub(crate) struct Layers {
    /// A profile: `offload`, `no-offload`, `gpu-only`, or one of --configs-dir.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// A file in TOML, YAML or JSON.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One setting, such as zero.stage=2; can be given again.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Number of ranks: short for --set run.ranks=N.
    #[arg(long, value_name = "N")]
    ranks: Option<usize>,
    /// A directory with default.toml and profiles/*.toml, over those built in.
    #[arg(long, value_name = "DIR")]
    configs_dir: Option<PathBuf>,
}

impl Layers {
    pub(crate) fn sources(self) -> Sources {
        let mut overrides = self.overrides;
        overrides.extend(self.ranks.map(|ranks| format!("run.ranks={ranks}")));
        Sources {
            configs_dir: self.configs_dir,
            profile: self.profile,
            file: self.config,
            overrides,
            ..Sources::from_env()
        }
    }
}
