//! Results as JSON files.

use crate::train::{check_directory_of, directory_of};
use crate::{Error, Result};
use serde::Serialize;
use std::io::Write as _;
use std::path::Path;

/// Writes `value` to a file as one JSON object. The file is complete or, on an error, what it was before.
///
/// # Errors
/// [`Error::Write`].
pub(crate) fn write_json(value: &impl Serialize, path: &Path) -> Result<()> {
    check_directory_of(path)?;
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let mut builder = tempfile::Builder::new();
    // It is made for its owner alone otherwise; with this the process's umask decides, as for any file.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(directory_of(path)).map_err(failed)?;
    let text = serde_json::to_string_pretty(value).map_err(|error| failed(error.into()))?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.write_all(b"\n").map_err(failed)?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
