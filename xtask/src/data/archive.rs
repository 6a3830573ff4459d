//! Unpacks the seven files of CIFAR-10's binary version from the official archive.
//!
//! Files are created by the names expected here, never by those in the archive, so nothing can be written elsewhere.
//! An archive that tries is refused as a whole all the same: it is not the one that was asked for.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek};
use std::path::{Component, Path};

use flate2::read::GzDecoder;
use tar::{Archive, Entry, EntryType};

use super::DataError;

const NAMES_FILE: &str = "batches.meta.txt";
/// The files that make an installation.
const FILES: [&str; 7] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
    NAMES_FILE,
];
/// What the archive has besides; found in a directory unpacked by hand.
const README_FILE: &str = "readme.html";
/// More than any list of ten names needs.
const NAMES_LIMIT: u64 = 64 * 1024;

/// Whether `name` may stand in a directory of CIFAR-10.
pub(super) fn is_known(name: &OsStr) -> bool {
    name == README_FILE || FILES.iter().any(|file| name == *file)
}

/// Whether `dir` has all files, each as long as it should be.
pub(super) fn is_installed(dir: &Path, batch_bytes: u64) -> bool {
    FILES.iter().all(|name| {
        fs::metadata(dir.join(name)).is_ok_and(|file| file.is_file() && fits(name, file.len(), batch_bytes))
    })
}

fn fits(name: &str, length: u64, batch_bytes: u64) -> bool {
    if name == NAMES_FILE { (1..=NAMES_LIMIT).contains(&length) } else { length == batch_bytes }
}

/// Unpacks the archive `part`, the open file at `path`, into the empty directory `target`, and onto the disk.
pub(super) fn unpack(path: &Path, part: &mut File, target: &Path, batch_bytes: u64) -> Result<(), DataError> {
    part.rewind().map_err(DataError::io("read", path))?;
    let mut archive = Archive::new(GzDecoder::new(BufReader::new(part)));
    let mut unpacked = Vec::new();
    for entry in archive.entries().map_err(DataError::io("unpack", path))? {
        let entry = entry.map_err(DataError::io("unpack", path))?;
        if let Some(name) = expected(path, &entry, batch_bytes)? {
            write(path, entry, &target.join(name))?;
            unpacked.push(name);
        }
    }
    match FILES.into_iter().find(|name| !unpacked.contains(name)) {
        Some(name) => Err(DataError::MissingEntry { name }),
        None => Ok(()),
    }
}

/// Which of the seven files `entry` is; none for directories and for files that are not needed.
fn expected<R: Read>(path: &Path, entry: &Entry<'_, R>, batch_bytes: u64) -> Result<Option<&'static str>, DataError> {
    let entry_path = entry.path().map_err(DataError::io("unpack", path))?;
    let shown = || entry_path.display().to_string();
    // `.` may lead a path; anything but plain names otherwise leads out of the target.
    if !entry_path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(DataError::UnsafePath { entry: shown() });
    }
    match entry.header().entry_type() {
        EntryType::Directory | EntryType::XGlobalHeader => return Ok(None),
        EntryType::Regular => {}
        _ => return Err(DataError::NotAFile { entry: shown() }),
    }
    let Some(name) = FILES.into_iter().find(|name| entry_path.file_name() == Some(OsStr::new(name))) else {
        return Ok(None);
    };
    if !fits(name, entry.size(), batch_bytes) {
        let wanted = if name == NAMES_FILE { format!("1 to {NAMES_LIMIT}") } else { batch_bytes.to_string() };
        return Err(DataError::EntrySize { entry: shown(), found: entry.size(), wanted });
    }
    Ok(Some(name))
}

/// Writes `entry` to the new file `file`.
fn write<R: Read>(path: &Path, mut entry: Entry<'_, R>, file: &Path) -> Result<(), DataError> {
    let mut out = File::create_new(file).map_err(DataError::io("create", file))?;
    let written = io::copy(&mut entry, &mut out).map_err(DataError::io("unpack", path))?;
    if written != entry.size() {
        let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "it ends within a file");
        return Err(DataError::io("unpack", path)(cut));
    }
    Ok(())
}
