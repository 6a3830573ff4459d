use super::*;
use std::fs;

/// A batch file of 10,000 records, the labels counting up.
fn batch() -> Vec<u8> {
    let mut bytes = vec![0; BATCH_BYTES];
    for (record, slot) in bytes.as_chunks_mut::<RECORD_BYTES>().0.iter_mut().enumerate() {
        slot[0] = (record % CLASSES) as u8;
        slot[1] = (record % 251) as u8;
        slot[RECORD_BYTES - 1] = (record % 241) as u8;
    }
    bytes
}

/// A directory with the seven files; the training files share one.
fn install() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(VALID_FILES[0]), batch()).unwrap();
    for name in TRAIN_FILES {
        fs::hard_link(dir.path().join(VALID_FILES[0]), dir.path().join(name)).unwrap();
    }
    fs::write(dir.path().join(NAMES_FILE), "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n").unwrap();
    dir
}

/// What reading one batch file with these bytes ends in.
fn read(bytes: &[u8]) -> Result<Vec<u8>, DataError> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("test_batch.bin");
    fs::write(&file, bytes).unwrap();
    let mut read = Vec::new();
    append_batch(&file, &mut read).map(|()| read)
}

#[test]
fn both_parts_are_read_in_the_order_of_their_files() {
    let dir = install();
    assert!(installed(dir.path()));
    let train = Cifar10::open(dir.path(), Split::Train).unwrap();
    let valid = Cifar10::open(dir.path(), Split::Valid).unwrap();
    assert_eq!((train.len(), valid.len()), (50_000, 10_000));
    let item = train.get(41_234).unwrap();
    let within = 1_234;
    assert_eq!(usize::from(item.label), within % CLASSES);
    assert_eq!(usize::from(item.pixels[0]), within % 251);
    assert_eq!(usize::from(item.pixels[PIXELS - 1]), within % 241);
    assert_eq!(format!("{valid:?}"), "Cifar10 { records: 10000 }");

    assert_eq!(valid.clone().limited(7).len(), 7);
    assert_eq!(valid.clone().limited(0).len(), 10_000);
    assert_eq!(valid.clone().limited(usize::MAX).len(), 10_000);
    assert!(valid.get(3).unwrap() == train.clone().limited(10).get(3).unwrap());
}

#[test]
fn a_missing_file_is_named_with_the_command_that_gets_it() {
    let dir = install();
    fs::remove_file(dir.path().join("data_batch_3.bin")).unwrap();
    assert!(!installed(dir.path()));
    let error = Cifar10::open(dir.path(), Split::Train).unwrap_err();
    assert!(matches!(&error, DataError::Missing { file } if file.ends_with("data_batch_3.bin")), "{error}");
    assert!(error.to_string().contains("`cargo xtask data cifar10`"), "{error}");
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("test_batch.bin")).unwrap();
    let error = Cifar10::open(dir.path(), Split::Valid).unwrap_err();
    assert!(matches!(error, DataError::Read { offset: 0, .. }), "{error}");
    assert!(std::error::Error::source(&error).is_some(), "{error}");
}

#[test]
fn a_truncated_file_says_where_it_ends() {
    let error = read(&batch()[..BATCH_BYTES - 1]).unwrap_err();
    assert!(matches!(error, DataError::Truncated { offset: 30_729_999, found: 9_999, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("byte 30729999, which is 9999 whole records, wanted 10000 records (30730000"), "{text}");
    assert!(matches!(read(&[]).unwrap_err(), DataError::Truncated { offset: 0, found: 0, .. }));
}

#[test]
fn an_overlong_file_says_where_the_surplus_begins() {
    let mut bytes = batch();
    bytes.extend([0; 3]);
    let error = read(&bytes).unwrap_err();
    assert!(matches!(error, DataError::Overlong { offset: 30_730_000, found: 30_730_003, .. }), "{error}");
}

#[test]
fn a_label_above_nine_is_found_where_it_lies() {
    let mut bytes = batch();
    bytes[5 * RECORD_BYTES] = 10;
    let error = read(&bytes).unwrap_err();
    assert!(matches!(error, DataError::Label { offset: 15_365, record: 5, found: 10, .. }), "{error}");
    assert!(error.to_string().contains("wanted 0..=9"), "{error}");
}

#[test]
fn class_names_are_ten_or_an_error() {
    let dir = install();
    assert_eq!(class_names(dir.path()).unwrap().concat(), "abcdefghij");
    fs::write(dir.path().join(NAMES_FILE), "a\nb\n").unwrap();
    let error = class_names(dir.path()).unwrap_err();
    assert!(matches!(error, DataError::ClassNames { found: 2, offset: 4, .. }), "{error}");
    fs::remove_file(dir.path().join(NAMES_FILE)).unwrap();
    assert!(matches!(class_names(dir.path()).unwrap_err(), DataError::Missing { .. }));
}

#[test]
#[should_panic(expected = "out of bounds")]
fn an_index_past_the_end_panics_as_burn_specifies() {
    let _ = Cifar10 { bytes: vec![0; RECORD_BYTES] }.get(1);
}
