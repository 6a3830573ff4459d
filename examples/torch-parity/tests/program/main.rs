//! The program, run as a user runs it: on a trajectory computed by hand, on PyTorch's, and on damaged ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod broken;
mod file;
mod golden;
mod hand;

use assert_cmd::Command;
use std::path::Path;

/// What the program ended with, and wrote.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs it on a file, with nothing of the caller's environment that would change a run.
pub(crate) fn parity(file: &Path, options: &[&str]) -> Ended {
    let mut command = Command::cargo_bin("torch-parity").unwrap();
    let output = command.env_clear().arg(file).args(options).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}
