//! The installation against a server that plays every trick.

mod server;

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use md5::{Digest, Md5};
use tempfile::TempDir;

use super::*;
use server::{Reply, Server};

/// Bytes of a batch file in these tests.
const BATCH_BYTES: u64 = 4_000;
const FOLDER: &str = "cifar-10-batches-bin";

/// Bytes that do not compress, so that the archive is long enough to be cut.
fn noise(seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..BATCH_BYTES).map(|_| next()).collect()
}

/// The entries of a good archive, as the official one has them.
fn good_entries() -> Vec<(String, Vec<u8>)> {
    let mut entries = vec![("readme.html".to_owned(), b"<html>".to_vec())];
    entries.push(("batches.meta.txt".to_owned(), b"airplane\n".to_vec()));
    entries.extend((1..=5).map(|number| (format!("data_batch_{number}.bin"), noise(number))));
    entries.push(("test_batch.bin".to_owned(), noise(6)));
    entries.into_iter().map(|(name, bytes)| (format!("{FOLDER}/{name}"), bytes)).collect()
}

/// Packs `entries` without looking at their names.
fn pack(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        // `set_path` refuses the very names that must be refused when unpacking.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append(&header, bytes.as_slice()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

/// A directory to install into, a server of `archive`, and what is asked of the downloader.
struct Scene {
    root: TempDir,
    server: Server,
    options: Cifar10Options,
}

impl Scene {
    fn new(archive: Vec<u8>, script: &[Reply]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let md5 = Md5::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
        let server = Server::start(archive, script.to_vec());
        let options = Cifar10Options {
            url: server.url(),
            md5,
            dir: root.path().join("cache").join(FOLDER),
            batch_bytes: BATCH_BYTES,
            timeout: Duration::from_secs(30),
            progress: false,
        };
        Self { root, server, options }
    }

    fn run(&self) -> Result<Outcome, DataError> {
        cifar10(&self.options)
    }

    fn part(&self) -> PathBuf {
        self.root.path().join("cache").join(PART_NAME)
    }

    /// Names in the parent of the target, which must not gather leftovers.
    fn beside(&self) -> Vec<String> {
        let names = fs::read_dir(self.root.path().join("cache")).unwrap();
        let mut names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    fn check_installed(&self) {
        assert_eq!(self.beside(), [FOLDER]);
        for number in 1..=5 {
            let file = self.options.dir.join(format!("data_batch_{number}.bin"));
            assert!(fs::read(&file).unwrap() == noise(number), "{}", file.display());
        }
        assert_eq!(fs::read(self.options.dir.join("batches.meta.txt")).unwrap(), b"airplane\n");
        assert!(!self.options.dir.join("readme.html").exists());
    }
}

fn good_archive() -> Vec<u8> {
    pack(&good_entries())
}

#[test]
fn a_fresh_download_is_installed_once() {
    let scene = Scene::new(good_archive(), &[Reply::Good]);
    assert_eq!(scene.run().unwrap(), Outcome::Installed);
    scene.check_installed();
    assert_eq!(scene.run().unwrap(), Outcome::AlreadyInstalled);
    assert_eq!(scene.server.finish(), [None]);
}

#[test]
fn a_cut_connection_is_followed_by_a_request_for_the_rest() {
    let scene = Scene::new(good_archive(), &[Reply::CutAfter(5_000), Reply::CutAfter(1_000), Reply::Good]);
    assert_eq!(scene.run().unwrap(), Outcome::Installed);
    scene.check_installed();
    assert_eq!(scene.server.finish(), [None, Some(5_000), Some(6_000)]);
}

#[test]
fn a_later_run_goes_on_from_what_an_earlier_one_left() {
    let scene = Scene::new(good_archive(), &[Reply::CutAfter(5_000), Reply::CutAfter(0), Reply::Good]);
    let error = scene.run().unwrap_err();
    assert!(error.to_string().contains("run the command again: it goes on from"), "{error}");
    assert_eq!(fs::metadata(scene.part()).unwrap().len(), 5_000);
    assert!(!scene.options.dir.exists());
    assert_eq!(scene.run().unwrap(), Outcome::Installed);
    scene.check_installed();
    assert_eq!(scene.server.finish(), [None, Some(5_000), Some(5_000)]);
}

#[test]
fn a_part_that_is_complete_is_only_checked() {
    let archive = good_archive();
    let length = archive.len();
    let scene = Scene::new(archive.clone(), &[Reply::Good]);
    fs::create_dir_all(scene.part().parent().unwrap()).unwrap();
    fs::write(scene.part(), archive).unwrap();
    assert_eq!(scene.run().unwrap(), Outcome::Installed);
    scene.check_installed();
    assert_eq!(scene.server.finish(), [Some(length)]);
}

#[test]
fn a_server_without_ranges_is_asked_for_everything_anew() {
    let scene = Scene::new(good_archive(), &[Reply::CutAfter(5_000), Reply::Everything]);
    assert_eq!(scene.run().unwrap(), Outcome::Installed);
    scene.check_installed();
    assert_eq!(scene.server.finish(), [None, Some(5_000)]);
}

#[test]
fn a_server_without_ranges_that_gets_no_further_is_given_up_on() {
    let script = [Reply::CutAfter(5_000), Reply::EverythingCutAfter(4_000)];
    let scene = Scene::new(good_archive(), &script);
    assert!(scene.run().is_err());
    assert_eq!(scene.server.finish().len(), 2);
}

#[test]
fn a_server_that_falls_silent_is_left_and_asked_for_the_rest() {
    let mut scene = Scene::new(good_archive(), &[Reply::SilentAfter(5_000), Reply::Good]);
    scene.options.timeout = Duration::from_secs(2);
    assert_eq!(scene.run().unwrap(), Outcome::Installed);
    scene.check_installed();
    assert_eq!(scene.server.finish(), [None, Some(5_000)]);
}

#[test]
fn a_server_that_never_answers_times_out() {
    let mut scene = Scene::new(good_archive(), &[Reply::Silent]);
    scene.options.timeout = Duration::from_millis(200);
    let error = scene.run().unwrap_err();
    assert!(
        matches!(&error, DataError::Request { have: 0, source, .. } if matches!(**source, ureq::Error::Timeout(_)))
    );
    assert_eq!(scene.server.finish(), [None]);
}

#[test]
fn a_wrong_checksum_deletes_the_part_and_says_so() {
    let mut scene = Scene::new(good_archive(), &[Reply::Good]);
    scene.options.md5 = "0".repeat(32);
    let error = scene.run().unwrap_err();
    assert!(matches!(error, DataError::Checksum { .. }), "{error}");
    assert!(error.to_string().contains("has been deleted"), "{error}");
    assert!(scene.beside().is_empty());
    assert_eq!(scene.server.finish(), [None]);
}

#[test]
fn a_status_other_than_expected_is_named() {
    let scene = Scene::new(good_archive(), &[Reply::Status(404)]);
    let error = scene.run().unwrap_err();
    assert!(matches!(error, DataError::Status { found: 404, .. }), "{error}");
    assert_eq!(scene.server.finish(), [None]);
}

#[test]
fn a_range_other_than_asked_for_is_not_appended() {
    let scene = Scene::new(good_archive(), &[Reply::CutAfter(5_000), Reply::WrongRange]);
    let error = scene.run().unwrap_err();
    assert!(
        matches!(&error, DataError::Range { wanted: 5_000, found, .. } if found.starts_with("bytes 0-")),
        "{error}"
    );
    assert_eq!(fs::metadata(scene.part()).unwrap().len(), 5_000);
    scene.server.finish();
}

/// Runs the downloader on an archive of `entries`, which it must refuse and leave nothing of.
fn refused(entries: &[(String, Vec<u8>)]) -> DataError {
    let scene = Scene::new(pack(entries), &[Reply::Good]);
    let error = scene.run().unwrap_err();
    assert!(!scene.options.dir.exists());
    assert!(!scene.root.path().join("evil").exists() && !scene.root.path().join("cache/evil").exists());
    scene.server.finish();
    error
}

#[test]
fn an_archive_without_one_of_the_files_is_refused() {
    let mut entries = good_entries();
    entries.retain(|(name, _)| !name.ends_with("data_batch_4.bin"));
    let error = refused(&entries);
    assert!(matches!(error, DataError::MissingEntry { name: "data_batch_4.bin" }), "{error}");
}

#[test]
fn an_entry_that_leads_out_of_the_target_is_refused() {
    for path in ["../evil", "/tmp/evil", "cifar-10-batches-bin/../../evil", "../data_batch_1.bin"] {
        let mut entries = good_entries();
        entries.insert(0, (path.to_owned(), noise(1)));
        let error = refused(&entries);
        assert!(matches!(&error, DataError::UnsafePath { entry } if entry == path), "{error}");
    }
}

#[test]
fn a_file_of_another_length_is_refused() {
    let mut entries = good_entries();
    entries[3].1.push(0);
    let error = refused(&entries);
    assert!(matches!(error, DataError::EntrySize { found: 4_001, .. }), "{error}");
}

#[test]
fn a_link_in_the_place_of_a_file_is_refused() {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    tar.append_link(&mut header, "c/data_batch_1.bin", "/etc/hostname").unwrap();
    let scene = Scene::new(tar.into_inner().unwrap().finish().unwrap(), &[Reply::Good]);
    let error = scene.run().unwrap_err();
    assert!(matches!(error, DataError::NotAFile { .. }), "{error}");
    scene.server.finish();
}

#[test]
fn something_that_is_no_archive_is_refused() {
    let scene = Scene::new(b"<html>not found</html>".to_vec(), &[Reply::Good]);
    let error = scene.run().unwrap_err();
    assert!(matches!(error, DataError::Io { action: "unpack", .. }), "{error}");
    scene.server.finish();
}

#[test]
fn a_damaged_installation_is_replaced() {
    let scene = Scene::new(good_archive(), &[Reply::Good]);
    fs::create_dir_all(&scene.options.dir).unwrap();
    fs::write(scene.options.dir.join("data_batch_1.bin"), b"short").unwrap();
    let leftover = scene.root.path().join("cache").join(format!(".{FOLDER}.unpacking"));
    fs::create_dir(&leftover).unwrap();
    fs::write(leftover.join("data_batch_1.bin"), b"left by a run that was cut off").unwrap();
    assert_eq!(scene.run().unwrap(), Outcome::Installed);
    scene.check_installed();
    scene.server.finish();
}

#[test]
fn a_directory_with_anything_else_in_it_is_left_alone() {
    let scene = Scene::new(good_archive(), &[]);
    fs::create_dir_all(&scene.options.dir).unwrap();
    fs::write(scene.options.dir.join("thesis.tex"), b"precious").unwrap();
    let error = scene.run().unwrap_err();
    assert!(matches!(&error, DataError::NotOurs { entry, .. } if entry == "thesis.tex"), "{error}");
    assert_eq!(fs::read(scene.options.dir.join("thesis.tex")).unwrap(), b"precious");
    assert!(scene.server.finish().is_empty());
}

#[test]
fn a_second_run_at_the_same_time_is_refused() {
    let scene = Scene::new(good_archive(), &[]);
    fs::create_dir_all(scene.part().parent().unwrap()).unwrap();
    let mut other = open_part(&scene.part()).unwrap();
    other.write_all(b"so far").unwrap();
    let error = scene.run().unwrap_err();
    assert!(matches!(error, DataError::Busy { .. }), "{error}");
    assert_eq!(fs::read(scene.part()).unwrap(), b"so far");
    assert!(scene.server.finish().is_empty());
}

#[test]
fn a_directory_without_a_parent_is_refused() {
    let options = Cifar10Options { dir: PathBuf::from("/"), ..Cifar10Options::default() };
    let error = cifar10(&options).unwrap_err();
    assert!(matches!(error, DataError::NoParent { .. }), "{error}");
}
