//! The program `stoker`: trains the shipped models, shows configurations and lists plugins.
#![forbid(unsafe_code)]

mod cli;
mod plugins;

use clap::Parser;
use cli::{Arguments, Command, ConfigCommand, Layers};
use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use stoker::{Error, Progress, Result, Settings, TrainOptions, exit};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    // A wrong command line is told by clap, which exits with the code of a wrong configuration.
    let arguments = Arguments::parse();
    log_to_stderr();
    quiet_ranks();
    match run(arguments.command) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // If nobody reads it, the exit code still says it.
            let _ = writeln!(std::io::stderr().lock(), "error: {}", error.chain());
            ExitCode::from(error.exit_code())
        }
    }
}

/// Gives the exit code.
fn run(command: Command) -> Result<u8> {
    match command {
        Command::Train { layers, init, save, json } => {
            let settings = load(layers)?;
            if let Some(path) = &json {
                stoker::check_directory_of(path)?;
            }
            let summary = stoker::train(&settings, &TrainOptions { init, save, progress: Progress::Auto })?;
            if let Some(path) = &json {
                summary.write_json(path)?;
            }
            print(&summary.to_string())?;
        }
        Command::Plan { layers, json } => {
            let settings = load(layers)?;
            let report = stoker::plan(&settings)?;
            if let Some(path) = &json {
                report.write_json(path)?;
            }
            print(&report.to_string())?;
            if !report.fits {
                return Ok(exit::DOES_NOT_FIT);
            }
        }
        Command::Config { command: ConfigCommand::Show { layers, json } } => {
            let (settings, provenance) = Settings::load(&layers.sources())?;
            if json {
                print(&format!("{:#}\n", settings.to_json(&provenance)))?;
            } else {
                print(&settings.show(&provenance))?;
            }
        }
        Command::Plugins => print(&plugins::table())?,
    }
    Ok(exit::DONE)
}

/// The settings of a run, with notices of those that have no effect.
fn load(layers: Layers) -> Result<Settings> {
    let (settings, provenance) = Settings::load(&layers.sources())?;
    for notice in settings.inert(&provenance) {
        // If nobody reads it, the run is the same.
        let _ = writeln!(std::io::stderr().lock(), "notice: {notice}");
    }
    Ok(settings)
}

/// Writes the result of a command. A reader that went away has what it wanted.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Write { path: "standard output".into(), source: error })
        }
        _ => Ok(()),
    }
}

/// What `RUST_LOG` asks for, warnings if it says nothing. Standard output is for results.
fn log_to_stderr() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// A panic on a rank's thread, or on that of its updates, becomes the error of the run, which is told once, at the end;
/// where it came from is in the log. Other panics are faults of this program and told as usual.
fn quiet_ranks() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        if thread.name().is_some_and(|name| name.starts_with("rank-") || name.starts_with("update-")) {
            tracing::info!(thread = thread.name(), "{panic}");
        } else {
            usual(panic);
        }
    }));
}
