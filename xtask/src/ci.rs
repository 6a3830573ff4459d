//! `cargo xtask ci`: what must be green before a change lands, cheapest first.

use crate::{cargo, readme, test};
use anyhow::Result;

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
    readme::run_commands(&tests)
}

impl readme::TestRun {
    /// The README's test command, in this process.
    pub(crate) fn run(&self) -> Result<()> {
        test::run(test::TestCommand::new(self.full))
    }
}
