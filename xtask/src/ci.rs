//! `cargo xtask ci`: what must be green before a change lands, cheapest first.

use crate::{cargo, libtorch, readme, test};
use anyhow::Result;
use std::path::Path;

/// Checks everything.
#[derive(Debug, clap::Args)]
pub(crate) struct CiCommand {
    /// Leave out what takes minutes.
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(command: CiCommand) -> Result<()> {
    cargo::must(cargo::cargo(&["fmt", "--all", "--check"]))?;
    cargo::must(cargo::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    let mut docs = cargo::cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    cargo::must(docs)?;
    // The commands of the README; its test command is one of them.
    let tests = readme::TestRun { full: !command.quick };
    readme::run_commands(&tests)?;
    if command.quick {
        return Ok(());
    }
    match libtorch::prepare(libtorch::TORCH) {
        Ok(directory) => test_libtorch(&directory),
        // It comes from the network, which a machine may not have; the feature is an extra.
        Err(reason) => {
            eprintln!("feature `libtorch` is left out, since libtorch cannot be prepared here: {reason:#}");
            Ok(())
        }
    }
}

/// The tests of feature `libtorch`, on the CPU.
fn test_libtorch(directory: &Path) -> Result<()> {
    let features = ["--features", "stoker-tests/libtorch"];
    let mut tests = cargo::cargo(&["nextest", "run", "--workspace", "--no-fail-fast", "--lib", "--test", "whole"]);
    tests.args(features).args(["-E", LIBTORCH_TESTS]).env("STOKER_TEST_BACKEND", "libtorch");
    tests.env("CARGO_TARGET_DIR", libtorch::target_directory()?).envs(libtorch::environment(directory));
    cargo::must(tests)
}

/// What depends on the backend, without what takes minutes.
const LIBTORCH_TESTS: &str = "package(stoker-libtorch) or test(/^(bridge|building|convolution|exactness|nn|oddities|precision|relu|resident|steps|sync_batch_norm)::/)";

impl readme::TestRun {
    /// The README's test command, in this process.
    pub(crate) fn run(&self) -> Result<()> {
        test::run(test::TestCommand::new(self.full))
    }
}
