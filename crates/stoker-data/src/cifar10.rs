//! CIFAR-10 in its standard binary form: files of 10,000 records, each a label byte and a picture.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use burn_dataset::{Dataset, DatasetError};

use crate::error::DataError;
use crate::image::{CLASSES, ImageItem, PIXELS, Split};

/// Bytes of one record: the label and the picture.
pub const RECORD_BYTES: usize = 1 + PIXELS;
/// Records of one batch file.
pub const RECORDS_PER_BATCH: usize = 10_000;
/// Bytes of one batch file.
pub const BATCH_BYTES: usize = RECORD_BYTES * RECORDS_PER_BATCH;

const TRAIN_FILES: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
const VALID_FILES: [&str; 1] = ["test_batch.bin"];
const NAMES_FILE: &str = "batches.meta.txt";
/// More than any list of ten names needs; a file of pictures in its place is not read to its end.
const NAMES_LIMIT: u64 = 64 * 1024;

/// One part of CIFAR-10, held in memory as bytes.
#[derive(Clone)]
pub struct Cifar10 {
    bytes: Vec<u8>,
}

impl Cifar10 {
    /// Reads `split` from the files in `dir`: 50,000 records to train on or 10,000 to validate with.
    ///
    /// # Errors
    ///
    /// When a file is missing, cannot be read, is not exactly 10,000 records long or has a label above 9.
    pub fn open(dir: &Path, split: Split) -> Result<Self, DataError> {
        let files: &[&str] = match split {
            Split::Train => &TRAIN_FILES,
            Split::Valid => &VALID_FILES,
        };
        let mut bytes = Vec::with_capacity(files.len() * BATCH_BYTES);
        for name in files {
            append_batch(&dir.join(name), &mut bytes)?;
        }
        Ok(Self { bytes })
    }

    /// Keeps the first `limit` records, or all when `limit` is 0 or more than there are.
    pub fn limited(mut self, limit: usize) -> Self {
        if limit != 0 {
            self.bytes.truncate(limit.saturating_mul(RECORD_BYTES));
            self.bytes.shrink_to_fit();
        }
        self
    }

    fn records(&self) -> &[[u8; RECORD_BYTES]] {
        self.bytes.as_chunks().0
    }
}

impl std::fmt::Debug for Cifar10 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cifar10").field("records", &self.records().len()).finish()
    }
}

impl Dataset<ImageItem> for Cifar10 {
    fn get(&self, index: usize) -> Result<ImageItem, DatasetError> {
        // `Dataset::get` is specified to panic out of bounds, as a slice does.
        let [label, pixels @ ..] = &self.records()[index];
        Ok(ImageItem { pixels: *pixels, label: *label })
    }

    fn len(&self) -> usize {
        self.records().len()
    }
}

/// Reads one batch file to the end of `bytes`.
fn append_batch(path: &Path, bytes: &mut Vec<u8>) -> Result<(), DataError> {
    let start = bytes.len();
    // One byte past the end is enough to tell a file that goes on, whatever its size.
    append_file(path, BATCH_BYTES as u64 + 1, bytes)?;
    let found = bytes.len() - start;
    let file = path.to_path_buf();
    if found < BATCH_BYTES {
        return Err(DataError::Truncated { file, offset: found as u64, found: found / RECORD_BYTES });
    }
    if found > BATCH_BYTES {
        // The length only informs the message; the byte read past the end is what counts.
        let found = std::fs::metadata(path).map_or(found as u64, |metadata| metadata.len());
        return Err(DataError::Overlong { file, offset: BATCH_BYTES as u64, found });
    }
    let batch = bytes.get(start..).unwrap_or_default();
    for (record, [label, ..]) in batch.as_chunks::<RECORD_BYTES>().0.iter().enumerate() {
        if usize::from(*label) >= CLASSES {
            let offset = (record * RECORD_BYTES) as u64;
            return Err(DataError::Label { file, offset, record, found: *label });
        }
    }
    Ok(())
}

/// Reads at most `limit` bytes of a file to the end of `bytes`.
fn append_file(path: &Path, limit: u64, bytes: &mut Vec<u8>) -> Result<(), DataError> {
    let start = bytes.len();
    File::open(path).and_then(|file| file.take(limit).read_to_end(bytes)).map(drop).map_err(|source| {
        let (file, offset) = (path.to_path_buf(), (bytes.len() - start) as u64);
        match source.kind() {
            ErrorKind::NotFound => DataError::Missing { file },
            _ => DataError::Read { file, offset, source },
        }
    })
}

/// The names of the ten classes, by label, from `batches.meta.txt` in `dir`.
///
/// # Errors
///
/// When the file is missing, cannot be read or does not hold ten names.
pub fn class_names(dir: &Path) -> Result<Vec<String>, DataError> {
    let file = dir.join(NAMES_FILE);
    let mut bytes = Vec::new();
    append_file(&file, NAMES_LIMIT, &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The official file ends in an empty line.
    let names: Vec<String> = text.lines().map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect();
    if names.len() != CLASSES {
        return Err(DataError::ClassNames { file, offset: bytes.len() as u64, found: names.len() });
    }
    Ok(names)
}

/// Whether `dir` has all seven files of CIFAR-10.
///
/// Only their presence is looked at: a damaged installation must be reported when it is opened, not passed over.
pub fn installed(dir: &Path) -> bool {
    TRAIN_FILES.iter().chain(&VALID_FILES).chain([&NAMES_FILE]).all(|name| dir.join(name).is_file())
}

/// Where `cargo xtask data cifar10` puts the files: `$STOKER_DATA_DIR`, or `~/.cache/stoker/cifar-10-batches-bin`.
///
/// Relative to the working directory when there is no home directory.
pub fn default_dir() -> PathBuf {
    match std::env::var_os("STOKER_DATA_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => std::env::home_dir().unwrap_or_default().join(".cache/stoker/cifar-10-batches-bin"),
    }
}

#[cfg(test)]
mod tests;
