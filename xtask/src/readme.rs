//! The README's commands are run, so that they stay true.
//!
//! Every line of a ```` ```sh ```` block that begins with `cargo` is a command. One whose comment says `# needs the
//! network` is only checked to be understood (`--help`), and so is one of files that are not there, `DIR/*.ending`.

use crate::cargo;
use anyhow::{Context, Result, bail};

/// How the tests are run in CI.
pub(crate) struct TestRun {
    /// With what takes minutes.
    pub(crate) full: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Line {
    words: Vec<String>,
    needs_network: bool,
}

pub(crate) fn run_commands(tests: &TestRun) -> Result<()> {
    let path = cargo::root().join("README.md");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = commands(&text)?;
    if !lines.iter().any(|line| line.words == ["cargo", "xtask", "test"]) {
        bail!("the README does not name the test command, `cargo xtask test`");
    }
    for line in lines {
        match line.words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["cargo", "xtask", "ci", ..] => {}
            ["cargo", "xtask", "test"] => tests.run()?,
            ["cargo", arguments @ ..] => {
                let files = arguments.iter().map(|word| expanded(word)).collect::<Result<Vec<_>>>()?;
                let command = if line.needs_network || files.iter().any(Vec::is_empty) {
                    cargo::cargo(&[arguments, &["--help"]].concat())
                } else {
                    cargo::cargo(&files.iter().flatten().map(String::as_str).collect::<Vec<_>>())
                };
                cargo::must(command)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn commands(text: &str) -> Result<Vec<Line>> {
    let mut commands = Vec::new();
    let mut in_shell = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_shell = !in_shell && line.trim() == "```sh";
            continue;
        }
        if !in_shell || !line.starts_with("cargo ") {
            continue;
        }
        let (command, comment) = line.split_once(" #").unwrap_or((line, ""));
        if command.contains(['\'', '"', '|', '>', '\\']) {
            bail!("this command of the README needs a shell, which it should not: {line}");
        }
        commands.push(Line {
            words: command.split_whitespace().map(str::to_owned).collect(),
            needs_network: comment.contains("needs the network"),
        });
    }
    Ok(commands)
}

/// What a shell would make of the word: the files of that ending, in order, if it has the form `DIR/*ENDING`.
fn expanded(word: &str) -> Result<Vec<String>> {
    let Some((directory, ending)) = word.split_once("/*") else { return Ok(vec![word.to_owned()]) };
    let path = cargo::root().join(directory);
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&path).with_context(|| path.display().to_string())? {
        let name = entry.with_context(|| path.display().to_string())?.file_name().to_string_lossy().into_owned();
        if name.ends_with(ending) {
            files.push(format!("{directory}/{name}"));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_commands_of_shell_blocks_only() {
        let text = "```sh\ngit clone x\ncargo xtask run --profile offload  # trains\ncargo xtask data cifar10 # needs the \
                    network\n```\ncargo not this\n```toml\ncargo = 1\n```\n";
        let found = commands(text).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].words, ["cargo", "xtask", "run", "--profile", "offload"]);
        assert!(!found[0].needs_network);
        assert!(found[1].needs_network);
    }

    #[test]
    fn files_are_found_as_a_shell_would() {
        assert_eq!(expanded("--stages").unwrap(), ["--stages"]);
        assert_eq!(
            expanded("configs/profiles/*offload.toml").unwrap(),
            ["configs/profiles/no-offload.toml", "configs/profiles/offload.toml"]
        );
        assert!(expanded("nowhere/*.toml").unwrap().is_empty());
        assert!(expanded("configs/*.nothing").unwrap().is_empty());
    }

    #[test]
    fn refuses_what_needs_a_shell() {
        assert!(commands("```sh\ncargo xtask run | head\n```").is_err());
    }
}
