//! A directory that is put in place by renaming it is on the disk before: after a crash it is whole or not there.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Writes all files and directories under `dir`, and itself, to the disk. Links are not followed.
pub(crate) fn sync_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_tree(&entry.path())?;
        } else if kind.is_file() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    File::open(dir)?.sync_all()
}

/// Writes to the disk that something was renamed to `path`.
pub(crate) fn sync_rename(path: &Path) -> io::Result<()> {
    // A name alone has an empty parent.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_written_and_moved_with_its_links() {
        let place = tempfile::tempdir().unwrap();
        let (part, done) = (place.path().join("part"), place.path().join("done"));
        fs::create_dir_all(part.join("a/b")).unwrap();
        fs::write(part.join("a/b/file"), "whole").unwrap();
        std::os::unix::fs::symlink("nowhere", part.join("a/link")).unwrap();
        sync_tree(&part).unwrap();
        fs::rename(&part, &done).unwrap();
        sync_rename(&done).unwrap();
        sync_rename(Path::new("a name alone")).unwrap();
        assert_eq!(fs::read_to_string(done.join("a/b/file")).unwrap(), "whole");
        assert!(!part.exists() && done.join("a/link").is_symlink());
        assert_eq!(sync_tree(&part).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(sync_rename(&part.join("of a lost directory")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
