//! `cargo xtask data`: brings data sets onto this machine.
//!
//! The archive is downloaded to a `.part` file beside the target, checked, unpacked beside the target, and moved into
//! place by a rename: at any moment the target is either whole or not there. A run that is cut off, by a lost
//! connection or by Ctrl-C, leaves the `.part` file, and the next run goes on from it.

mod archive;
mod download;
mod error;
mod install;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressDrawTarget};

pub(crate) use error::DataError;

/// The official archive.
const CIFAR10_URL: &str = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz";
/// Its MD5, from the page that offers it.
const CIFAR10_MD5: &str = "c32a1d4ab5d03f1284b67883e8d87530";
/// Bytes of a record: a label and a picture of 3 x 32 x 32.
pub(crate) const CIFAR10_RECORD_BYTES: u64 = 3_073;
/// Bytes of one batch file.
const CIFAR10_BATCH_BYTES: u64 = 10_000 * CIFAR10_RECORD_BYTES;
/// What the archive is downloaded to, beside the target.
const PART_NAME: &str = "cifar-10-binary.tar.gz.part";
/// How long the network may be silent.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(30);

/// The data sets there are.
#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Download CIFAR-10 (170 MB) and unpack it; does nothing if it is there.
    Cifar10 {
        /// Where to install it [default: $STOKER_DATA_DIR or ~/.cache/stoker/cifar-10-batches-bin].
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Where to get the archive; a mirror must serve the very same file.
        #[arg(long, default_value = CIFAR10_URL)]
        url: String,
    },
}

/// Carries out `cargo xtask data ...`.
pub(crate) fn run(command: DataCommand) -> anyhow::Result<()> {
    let DataCommand::Cifar10 { dir, url } = command;
    let defaults = Cifar10Options::default();
    let options = Cifar10Options { url, dir: dir.unwrap_or_else(|| defaults.dir.clone()), ..defaults };
    match cifar10(&options)? {
        Outcome::AlreadyInstalled => println!("CIFAR-10 is in {} already", options.dir.display()),
        Outcome::Installed => println!("CIFAR-10 is now in {}", options.dir.display()),
    }
    Ok(())
}

/// What to download and where to.
#[derive(Debug, Clone)]
pub(crate) struct Cifar10Options {
    /// Where the archive is.
    pub(crate) url: String,
    /// Its MD5, in lower-case hexadecimal.
    pub(crate) md5: String,
    /// Where the data set is installed; its parent takes the download.
    pub(crate) dir: PathBuf,
    /// How long each batch file must be.
    pub(crate) batch_bytes: u64,
    /// How long to wait for the network at any one time.
    pub(crate) timeout: Duration,
    /// Whether to draw a progress bar (on a terminal).
    pub(crate) progress: bool,
}

impl Default for Cifar10Options {
    fn default() -> Self {
        Self {
            url: CIFAR10_URL.to_owned(),
            md5: CIFAR10_MD5.to_owned(),
            dir: default_dir(),
            batch_bytes: CIFAR10_BATCH_BYTES,
            timeout: NETWORK_TIMEOUT,
            progress: true,
        }
    }
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There was nothing to do.
    AlreadyInstalled,
    /// The data set was installed.
    Installed,
}

/// The same place as `stoker_data::default_dir`, which this crate is too light to depend on.
pub(crate) fn default_dir() -> PathBuf {
    match std::env::var_os("STOKER_DATA_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => std::env::home_dir().unwrap_or_default().join(".cache/stoker/cifar-10-batches-bin"),
    }
}

/// Downloads, checks and installs CIFAR-10; does nothing if it is installed.
///
/// # Errors
///
/// When the network, the archive or the file system is not as needed. Nothing is installed then. What was downloaded is
/// kept for the next run, unless it is known to be wrong.
pub(crate) fn cifar10(options: &Cifar10Options) -> Result<Outcome, DataError> {
    // A link to a directory on another disk is followed: the download belongs on that disk.
    let dir = fs::canonicalize(&options.dir).unwrap_or_else(|_| options.dir.clone());
    if archive::is_installed(&dir, options.batch_bytes) {
        return Ok(Outcome::AlreadyInstalled);
    }
    let place = install::Place::new(&dir)?;
    place.check_replaceable()?;
    let parent = place.parent();
    fs::create_dir_all(parent).map_err(DataError::io("create", parent))?;
    let path = parent.join(PART_NAME);
    let mut part = open_part(&path)?;
    // Another run may have finished between the look above and the lock.
    if archive::is_installed(&dir, options.batch_bytes) {
        return Ok(Outcome::AlreadyInstalled);
    }

    let bar = if options.progress {
        ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
    } else {
        ProgressBar::hidden()
    };
    download::download(&options.url, &path, &mut part, options.timeout, &bar)?;
    bar.finish_and_clear();
    let found = download::md5(&path, &mut part)?;
    if found != options.md5 {
        fs::remove_file(&path).map_err(DataError::io("delete", &path))?;
        return Err(DataError::Checksum { url: options.url.clone(), part: path, found, wanted: options.md5.clone() });
    }
    let staging = place.fresh_staging()?;
    archive::unpack(&path, &mut part, staging, options.batch_bytes)?;
    place.install()?;
    fs::remove_file(&path).map_err(DataError::io("delete", &path))?;
    Ok(Outcome::Installed)
}

/// Opens the `.part` file, new or left by an earlier run, for this run alone.
fn open_part(path: &Path) -> Result<File, DataError> {
    let mut open = File::options();
    let part = open.read(true).append(true).create(true).open(path).map_err(DataError::io("open", path))?;
    match part.try_lock() {
        Ok(()) => Ok(part),
        Err(fs::TryLockError::WouldBlock) => Err(DataError::Busy { part: path.to_path_buf() }),
        Err(fs::TryLockError::Error(source)) => Err(DataError::io("lock", path)(source)),
    }
}

#[cfg(test)]
mod tests;
