//! The repository's own commands, run as `cargo xtask`.

#![forbid(unsafe_code)]

mod data;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The repository's own commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Get the data sets that models are trained on.
    #[command(subcommand)]
    Data(data::DataCommand),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Data(command) => data::run(command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The causes on the same line, and no backtrace: these errors are for the user.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
