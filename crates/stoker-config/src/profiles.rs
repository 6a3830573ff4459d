//! Named configurations: those built in, and those of a directory.

use crate::{Error, Layer, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stoker_core::error::nearest;

/// `configs/default.toml`.
pub(crate) const DEFAULT: &str = include_str!("../../../configs/default.toml");

const BUILT_IN: [(&str, &str); 3] = [
    ("gpu-only", include_str!("../../../configs/profiles/gpu-only.toml")),
    ("no-offload", include_str!("../../../configs/profiles/no-offload.toml")),
    ("offload", include_str!("../../../configs/profiles/offload.toml")),
];

/// Names of the profiles: those built in, and `profiles/*.toml` in `configs_dir`.
///
/// # Errors
/// [`Error::Read`].
pub fn profiles(configs_dir: Option<&Path>) -> Result<Vec<String>> {
    let mut names: Vec<_> = BUILT_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
    names.extend(files(configs_dir)?.into_keys());
    names.sort();
    names.dedup();
    Ok(names)
}

/// Text of a profile, and its layer. A file in `configs_dir` replaces a built-in profile of its name.
pub(crate) fn profile(name: &str, configs_dir: Option<&Path>) -> Result<(String, Layer)> {
    // Found by listing, never by joining: a name with `..` in it cannot leave the directory.
    if let Some(path) = files(configs_dir)?.remove(name) {
        let text = read(&path)?;
        return Ok((text, Layer::Profile { name: name.to_owned(), file: Some(path) }));
    }
    if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
        return Ok(((*text).to_owned(), Layer::Profile { name: name.to_owned(), file: None }));
    }
    let known = profiles(configs_dir)?;
    let nearest = nearest(name, known.iter().map(String::as_str));
    Err(Error::UnknownProfile { name: name.to_owned(), known, nearest })
}

/// Text of a file.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|reason| Error::Read { path: path.to_owned(), reason })
}

/// Profiles in `configs_dir`, by name. The directory must exist if it is given; it need not have profiles.
fn files(configs_dir: Option<&Path>) -> Result<BTreeMap<String, PathBuf>> {
    let Some(configs_dir) = configs_dir else {
        return Ok(BTreeMap::new());
    };
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |reason| Error::Read { path, reason }
    };
    std::fs::read_dir(configs_dir).map_err(failed(configs_dir))?;
    let dir = configs_dir.join("profiles");
    if !dir.is_dir() {
        return Ok(BTreeMap::new());
    }
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(&dir).map_err(failed(&dir))? {
        let path = entry.map_err(failed(&dir))?.path();
        if path.extension().is_some_and(|extension| extension == "toml")
            && let Some(name) = path.file_stem().and_then(|stem| stem.to_str())
        {
            found.insert(name.to_owned(), path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_profile_is_built_in() {
        let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
        let shipped: Vec<_> = files(Some(&configs)).unwrap().into_keys().collect();
        assert_eq!(shipped, BUILT_IN.map(|(name, _)| name));
    }
}
