//! `cargo xtask test`: all tests, with nextest where it is installed.

use crate::cargo;
use anyhow::Result;

/// Runs the tests.
#[derive(Debug, clap::Args)]
pub(crate) struct TestCommand {
    /// Also what takes minutes: the real CIFAR-10 (where it is installed), the recipes.
    #[arg(long)]
    full: bool,
    /// Features to build with, `libtorch` for one.
    #[arg(long)]
    features: Option<String>,
}

impl TestCommand {
    pub(crate) fn new(full: bool) -> Self {
        Self { full, features: None }
    }
}

pub(crate) fn run(command: TestCommand) -> Result<()> {
    let features: Vec<&str> = command.features.iter().flat_map(|features| ["--features", features.as_str()]).collect();
    let nextest = cargo::has_nextest();
    let mut tests = if nextest {
        cargo::cargo(&["nextest", "run", "--workspace", "--no-fail-fast"])
    } else {
        eprintln!("cargo-nextest is not installed; `cargo test` runs the same tests");
        cargo::cargo(&["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"])
    };
    tests.args(&features);
    if command.full {
        // What takes minutes is marked `ignored`.
        tests.args(if nextest { ["--run-ignored", "all"] } else { ["--", "--include-ignored"] });
    }
    cargo::must(tests)?;
    let mut examples_in_docs = cargo::cargo(&["test", "--workspace", "--doc"]);
    examples_in_docs.args(&features);
    cargo::must(examples_in_docs)
}
