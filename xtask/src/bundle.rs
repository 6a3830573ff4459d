//! `cargo xtask bundle`: one directory to carry to a machine that has GPUs and PyTorch, and no Rust.
//!
//! The programs are those of the one profile that there is, `dev` with optimised dependencies: it is the release as well,
//! and Burn is not built again for it. They are stripped and packed with gzip, since together they are 70 MiB without;
//! `run.sh` unpacks each when it is first run, and finds libtorch in PyTorch's own `torch/lib`.

use crate::{cargo, data, durable, libtorch};
use anyhow::Result;
use flate2::{Compression, write::GzEncoder};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Makes a bundle.
#[derive(Debug, clap::Args)]
pub(crate) struct BundleCommand {
    /// Where; a bundle that is there is replaced [default: `bundle` in cargo's target directory].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const PROGRAMS: [&str; 5] = ["stoker", "torch-parity", "step", "convolutions", "optimizer"];
/// The file by which a bundle is known, so that nothing else is ever replaced.
const MARKER: &str = "stoker-bundle.txt";
/// The first so many records of CIFAR-10: 20 batches of 128.
const RECORDS: u64 = 2_560;
/// Bytes of a bundle that can be carried.
const LIMIT: u64 = 40 << 20;
const RUN: &str = include_str!("bundle/run.sh");

/// A bundle could not be made; the one that was there, if any, is as it was.
#[derive(Debug, thiserror::Error)]
enum BundleError {
    #[error(
        "`{}` is there and has no `{MARKER}`, wanted a bundle or nothing, since it is replaced as a whole; pass another \
         --out or move it away",
        dir.display()
    )]
    NotABundle { dir: PathBuf },
    #[error(
        "`{}` has {found} bytes, wanted at least {wanted}; get the data set with `cargo xtask data cifar10`",
        file.display()
    )]
    Records { file: PathBuf, found: u64, wanted: u64 },
    #[error("`strip` ended with {}, wanted `{}` stripped; see what it says above", cargo::ended(*status), program.display())]
    Strip { program: PathBuf, status: ExitStatus },
    #[error("`strip` could not be started, wanted it to make the programs small; install GNU binutils")]
    NoStrip { source: io::Error },
    #[error("the bundle has {found} bytes, wanted at most {limit}; leave a program out of it (`PROGRAMS` in {})", file!())]
    TooLarge { found: u64, limit: u64 },
    #[error("cannot {action} `{}`; check its permissions and the space on the disk", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl BundleError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}

pub(crate) fn run(command: BundleCommand) -> Result<()> {
    let out = match command.out {
        Some(out) => out,
        None => cargo::target_directory()?.join("bundle"),
    };
    // What can be wrong is found before minutes of building.
    let out = replaceable(&out)?;
    let records = records(&data::default_dir().join("data_batch_1.bin"))?;
    let directory = libtorch::prepare(libtorch::TORCH)?;
    let mut build = cargo::cargo(&["build", "--workspace", "--bins", "--features"]);
    build.arg("stoker-tests/libtorch,stoker/libtorch,torch-parity/libtorch");
    let target = libtorch::target_directory()?;
    build.env("CARGO_TARGET_DIR", &target).envs(libtorch::environment(&directory));
    cargo::must(build)?;
    let bytes = publish(&out, LIMIT, |part| fill(part, &target.join("debug"), &records))?;
    // Exact enough: the limit is far below 2^52.
    println!("{}: {:.1} MiB", out.display(), bytes as f64 / f64::from(1 << 20));
    Ok(())
}

/// The bundle's records of CIFAR-10.
fn records(file: &Path) -> Result<Vec<u8>, BundleError> {
    let wanted = RECORDS * data::CIFAR10_RECORD_BYTES;
    let mut records = Vec::new();
    let read = File::open(file).and_then(|opened| opened.take(wanted).read_to_end(&mut records));
    match read {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BundleError::io("read", file)(error)),
        _ if (records.len() as u64) < wanted => {
            Err(BundleError::Records { file: file.to_path_buf(), found: records.len() as u64, wanted })
        }
        _ => Ok(records),
    }
}

/// Where a bundle at `out` really is; refuses a place that has something else.
fn replaceable(out: &Path) -> Result<PathBuf, BundleError> {
    // A link to a directory on another disk is followed.
    let dir = match fs::canonicalize(out) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::path::absolute(out).map_err(BundleError::io("find", out))?
        }
        found => found.map_err(BundleError::io("find", out))?,
    };
    if fs::symlink_metadata(&dir).is_ok() && !dir.join(MARKER).is_file() {
        return Err(BundleError::NotABundle { dir });
    }
    Ok(dir)
}

/// Makes the bundle beside its place, and renames it when it is whole and no larger than `limit`. Returns its bytes.
fn publish(out: &Path, limit: u64, fill: impl FnOnce(&Path) -> Result<(), BundleError>) -> Result<u64, BundleError> {
    let dir = replaceable(out)?;
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let beside = |what: &str| dir.with_file_name(format!(".{name}.{what}-{}", std::process::id()));
    let (part, replaced) = (beside("part"), beside("replaced"));
    fs::create_dir_all(&part).map_err(BundleError::io("create", &part))?;
    let made = fill(&part).and_then(|()| bytes(&part)).and_then(|found| {
        if found > limit {
            return Err(BundleError::TooLarge { found, limit });
        }
        durable::sync_tree(&part).map_err(BundleError::io("write", &part))?;
        // Something else may have come there meanwhile.
        replaceable(&dir)?;
        match fs::rename(&dir, &replaced) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => moved.map_err(BundleError::io("move aside", &dir))?,
        }
        if let Err(error) = fs::rename(&part, &dir) {
            let _ = fs::rename(&replaced, &dir);
            return Err(BundleError::io("put in place", &dir)(error));
        }
        durable::sync_rename(&dir).map_err(BundleError::io("write", &dir))?;
        Ok(found)
    });
    // One of them is there at most; that it is left over harms nothing.
    let _ = fs::remove_dir_all(&part);
    if made.is_ok() {
        let _ = fs::remove_dir_all(&replaced);
    }
    made
}

/// All that a bundle consists of.
fn fill(part: &Path, built: &Path, records: &[u8]) -> Result<(), BundleError> {
    let programs = part.join("programs");
    fs::create_dir(&programs).map_err(BundleError::io("create", &programs))?;
    for name in PROGRAMS {
        let stripped = programs.join(name);
        strip(&built.join(name), &stripped)?;
        pack(&stripped)?;
    }
    copy_tree(&cargo::root().join("configs"), &part.join("configs"))?;
    write(&part.join("cifar.bin"), records)?;
    write_run(part)?;
    write(&part.join(MARKER), format!("stoker's programs, built with PyTorch {}\n", libtorch::TORCH).as_bytes())
}

fn write_run(part: &Path) -> Result<(), BundleError> {
    let run = part.join("run.sh");
    write(&run, RUN.replace("@TORCH@", libtorch::TORCH).as_bytes())?;
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).map_err(BundleError::io("make executable", &run))
}

fn write(file: &Path, content: &[u8]) -> Result<(), BundleError> {
    fs::write(file, content).map_err(BundleError::io("write", file))
}

fn strip(program: &Path, stripped: &Path) -> Result<(), BundleError> {
    let status = Command::new("strip").arg("-o").arg(stripped).arg(program).status();
    let status = status.map_err(|source| BundleError::NoStrip { source })?;
    if status.success() { Ok(()) } else { Err(BundleError::Strip { program: program.to_path_buf(), status }) }
}

/// Leaves `FILE.gz` of a file.
fn pack(file: &Path) -> Result<(), BundleError> {
    let packed = file.with_added_extension("gz");
    let mut from = File::open(file).map_err(BundleError::io("read", file))?;
    let to = File::create(&packed).map_err(BundleError::io("create", &packed))?;
    let mut to = GzEncoder::new(to, Compression::best());
    io::copy(&mut from, &mut to).and_then(|_| to.finish()).map_err(BundleError::io("write", &packed))?;
    fs::remove_file(file).map_err(BundleError::io("remove", file))
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), BundleError> {
    fs::create_dir(to).map_err(BundleError::io("create", to))?;
    for path in list(from)? {
        let copy = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_tree(&path, &copy)?;
        } else {
            fs::copy(&path, &copy).map_err(BundleError::io("copy", &path))?;
        }
    }
    Ok(())
}

/// Bytes of all files in a directory.
fn bytes(dir: &Path) -> Result<u64, BundleError> {
    let mut sum = 0;
    for path in list(dir)? {
        sum += if path.is_dir() {
            bytes(&path)?
        } else {
            fs::metadata(&path).map_err(BundleError::io("look at", &path))?.len()
        };
    }
    Ok(sum)
}

fn list(dir: &Path) -> Result<Vec<PathBuf>, BundleError> {
    let entries = fs::read_dir(dir).map_err(BundleError::io("list", dir))?;
    entries.map(|entry| Ok(entry.map_err(BundleError::io("list", dir))?.path())).collect()
}

#[cfg(test)]
mod tests;
