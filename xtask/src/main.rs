//! The repository's own commands, run as `cargo xtask`.

#![forbid(unsafe_code)]

#[cfg(test)]
mod arrows;
mod bundle;
mod cargo;
mod ci;
mod data;
mod durable;
mod libtorch;
mod parity;
mod readme;
mod run;
mod test;

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
    /// Build `stoker` and train: every option of `stoker train` is passed on.
    Run(run::RunCommand),
    /// Build `stoker` and run any of its commands: `cargo xtask stoker config show --profile offload`.
    Stoker(run::StokerCommand),
    /// Build and run one of the examples: `own-model`, `own-offload-target`, `torch-parity`.
    Example(run::ProgramCommand),
    /// Measure: `overhead`, what the engine costs where it is not needed; `optimizer`, updates beside what memory allows;
    /// `kernels`, each kernel on one thread, in a cache and in memory; `convolutions`, Burn's and ours; `step`, a training
    /// step and its parts.
    Bench(run::ProgramCommand),
    /// Hold training to PyTorch's numbers: every file, stage and number of ranks.
    Parity(parity::ParityCommand),
    /// Prepare libtorch for feature `libtorch`, and print the environment to build with.
    #[command(name = "libtorch")]
    LibTorch(libtorch::LibTorchCommand),
    /// Make one directory with the programs, for a machine that has PyTorch: built for LibTorch, with data and `run.sh`.
    Bundle(bundle::BundleCommand),
    /// Run the tests.
    Test(test::TestCommand),
    /// Everything that must be green before a change lands: format, lints, tests, the commands of the README.
    Ci(ci::CiCommand),
    /// Get the data sets that models are trained on.
    #[command(subcommand)]
    Data(data::DataCommand),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(command) => run::run(command),
        Command::Stoker(command) => run::stoker(command),
        Command::Example(command) => run::program(command),
        Command::Bench(command) => run::bench(command),
        Command::Parity(command) => parity::run(&command).map(|()| ExitCode::SUCCESS),
        Command::LibTorch(command) => libtorch::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Bundle(command) => bundle::run(command).map(|()| ExitCode::SUCCESS),
        Command::Test(command) => test::run(command).map(|()| ExitCode::SUCCESS),
        Command::Ci(command) => ci::run(command).map(|()| ExitCode::SUCCESS),
        Command::Data(command) => data::run(command).map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            // The causes on the same line, and no backtrace: these errors are for the user.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
