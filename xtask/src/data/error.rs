//! What can go wrong while getting a data set: what was found, what was wanted, what to do.

use std::io;
use std::path::{Path, PathBuf};

/// A data set could not be installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    #[error(
        "`{}` has no parent directory to download to, wanted a directory below another; pass another --dir",
        dir.display()
    )]
    NoParent { dir: PathBuf },
    #[error(
        "`{}` holds `{entry}`, wanted an empty directory or one of CIFAR-10's files alone, since it is replaced as a \
         whole; pass another --dir or move `{entry}` away",
        dir.display()
    )]
    NotOurs { dir: PathBuf, entry: String },
    #[error("cannot {action} `{}`; check its permissions and the space on the disk", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "`{}` is in use, wanted it for this run alone: another `cargo xtask data` is at work; let it finish",
        part.display()
    )]
    Busy { part: PathBuf },
    #[error(
        "{url}: wanted the whole archive, found {have} bytes of it; check the network and run the command again: it \
         goes on from `{}`",
        part.display()
    )]
    Request { url: String, part: PathBuf, have: u64, source: Box<ureq::Error> },
    #[error(
        "{url}: the connection ended after {have} bytes, wanted {wanted}, and asking {requests} times did not help; \
         run the command again: it goes on from `{}`",
        part.display()
    )]
    Cut { url: String, part: PathBuf, have: u64, wanted: u64, requests: u32 },
    #[error("{url}: found HTTP status {found}, wanted 200 or 206; check the address or pass another --url")]
    Status { url: String, found: u16 },
    #[error(
        "{url}: found the range `{found}` in the answer, wanted one from byte {wanted} on; delete `{}` to start anew, \
         or pass another --url",
        part.display()
    )]
    Range { url: String, part: PathBuf, found: String, wanted: u64 },
    #[error(
        "{url}: found more than {limit} bytes, wanted an archive of about 170 MB; this is something else: delete `{}` \
         and pass another --url",
        part.display()
    )]
    TooLarge { url: String, part: PathBuf, limit: u64 },
    #[error(
        "{url}: found MD5 {found}, wanted {wanted}; `{}` was wrong and has been deleted: run the command again, or \
         pass another --url",
        part.display()
    )]
    Checksum { url: String, part: PathBuf, found: String, wanted: String },
    #[error(
        "the archive has an entry `{entry}`, wanted none that leads out of the target; do not use it, pass \
         another --url"
    )]
    UnsafePath { entry: String },
    #[error("the archive's `{entry}` is not a plain file, wanted one; do not use it, pass another --url")]
    NotAFile { entry: String },
    #[error(
        "the archive's `{entry}` is {found} bytes long, wanted {wanted}; it is not the binary version of \
         CIFAR-10: pass another --url"
    )]
    EntrySize { entry: String, found: u64, wanted: String },
    #[error(
        "the archive has no `{name}`, wanted all seven files of the binary version of CIFAR-10; pass another --url"
    )]
    MissingEntry { name: &'static str },
}

impl DataError {
    /// Wraps what the operating system said about doing `action` to `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}
