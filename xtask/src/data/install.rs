//! Puts an unpacked directory into its place in one step.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::DataError;
use super::archive::is_known;
use crate::durable;

/// A target directory and the two beside it that are used on the way.
pub(super) struct Place {
    dir: PathBuf,
    parent: PathBuf,
    staging: PathBuf,
    replaced: PathBuf,
}

impl Place {
    pub(super) fn new(dir: &Path) -> Result<Self, DataError> {
        let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
            return Err(DataError::NoParent { dir: dir.to_path_buf() });
        };
        // The parent of a bare name is the working directory.
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let beside = |what: &str| {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            hidden.push(what);
            parent.join(hidden)
        };
        Ok(Self {
            dir: dir.to_path_buf(),
            parent: parent.to_path_buf(),
            staging: beside(".unpacking"),
            replaced: beside(".replaced"),
        })
    }

    pub(super) fn parent(&self) -> &Path {
        &self.parent
    }

    /// Refuses a target that holds anything else: it is replaced as a whole, and what it held is gone.
    pub(super) fn check_replaceable(&self) -> Result<(), DataError> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(DataError::io("list", &self.dir))?,
        };
        for entry in entries {
            let name = entry.map_err(DataError::io("list", &self.dir))?.file_name();
            if !is_known(&name) {
                let entry = name.to_string_lossy().into_owned();
                return Err(DataError::NotOurs { dir: self.dir.clone(), entry });
            }
        }
        Ok(())
    }

    /// An empty directory to unpack into. One left by a run that was cut off is removed first.
    pub(super) fn fresh_staging(&self) -> Result<&Path, DataError> {
        remove_if_there(&self.staging)?;
        fs::create_dir(&self.staging).map_err(DataError::io("create", &self.staging))?;
        Ok(&self.staging)
    }

    /// Moves what was unpacked into place. A damaged installation is moved aside first and then removed.
    pub(super) fn install(&self) -> Result<(), DataError> {
        durable::sync_tree(&self.staging).map_err(DataError::io("write", &self.staging))?;
        remove_if_there(&self.replaced)?;
        match fs::rename(&self.dir, &self.replaced) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => moved.map_err(DataError::io("move aside", &self.dir))?,
        }
        fs::rename(&self.staging, &self.dir).map_err(DataError::io("install", &self.dir))?;
        durable::sync_rename(&self.dir).map_err(DataError::io("write", &self.parent))?;
        remove_if_there(&self.replaced)
    }
}

fn remove_if_there(dir: &Path) -> Result<(), DataError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(DataError::io("remove", dir)),
    }
}
