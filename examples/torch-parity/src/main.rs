//! A training loop of one's own under the engine, held to PyTorch's numbers.
//!
//! `cargo xtask parity ../shared/golden/*.safetensors`
//!
//! Each file holds a short run of PyTorch: weights, batches, hyper-parameters, and the losses, gradient norms and weights
//! that came of them. This program makes the same network out of units, trains it from the same weights on the same
//! batches, and says how far it landed from the file, beside what the file tolerates. On the way it shows
//!
//! | file | idea |
//! |---|---|
//! | `arguments` | settings from a profile, with options of the program's own over it |
//! | `training` | a loop over `accumulate` and `update` of the [rank below](stoker::Rank::inner): accumulation, clipping, warm-up |
//! | `networks` | models of units |
//! | `names` | weights of PyTorch in Burn's layout, in and out |
//! | `spec`, `trajectory`, `tensors` | what a file says, and holds, checked |
//! | `comparison`, `table` | how far apart two runs are, and how it is shown |
//! | `error` | what can go wrong, and the exit code of each |
#![forbid(unsafe_code)]

mod arguments;
mod comparison;
mod error;
mod names;
mod networks;
mod spec;
mod table;
mod tensors;
mod training;
mod trajectory;

use arguments::Arguments;
use clap::Parser;
use error::{Error, Result, exit};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use stoker::core::error::chain;
use trajectory::Trajectory;

fn main() -> ExitCode {
    // A wrong command line is told by clap, which exits with the code of a wrong usage.
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(exit::OVER),
        Err(error) => {
            // If nobody reads it, the exit code still says it.
            let _ = writeln!(std::io::stderr().lock(), "error: {}", chain(&error));
            ExitCode::from(error.exit_code())
        }
    }
}

/// Whether every file was met within its tolerances.
fn run(arguments: &Arguments) -> Result<bool> {
    let settings = arguments.settings()?;
    // All files are checked before the first one costs time.
    let trajectories = arguments.files.iter().map(|file| Trajectory::read(file)).collect::<Result<Vec<_>>>()?;
    for trajectory in &trajectories {
        trajectory.check_ranks(settings.run.ranks)?;
    }
    let mut all_within = true;
    for trajectory in &trajectories {
        let trained = training::train(trajectory, &settings)?;
        let deviations = comparison::compare(trajectory, &trained);
        all_within &= deviations.iter().all(comparison::Deviation::is_within);
        let show = if arguments.brief { table::line } else { table::table };
        print(&show(trajectory, &settings, &deviations))?;
    }
    Ok(all_within)
}

/// A reader that went away has what it wanted.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::Print(error)),
        _ => Ok(()),
    }
}
