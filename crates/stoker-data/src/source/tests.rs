use super::*;

fn options(kind: SourceKind, dir: &std::path::Path) -> SourceOptions {
    SourceOptions { kind, dir: dir.to_path_buf(), ..SourceOptions::default() }
}

#[test]
fn auto_without_cifar10_takes_the_builtin_set_and_says_so_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let sources = open(&options(SourceKind::Auto, dir.path())).unwrap();
    assert_eq!(sources.name, "builtin");
    assert_eq!((sources.train.len(), sources.valid.len()), (5_000, 1_000));
    let notice = sources.notice.clone().unwrap();
    assert_eq!(notice.lines().count(), 1);
    assert!(notice.contains("built-in data set") && notice.contains("`cargo xtask data cifar10`"), "{notice}");
    assert!(notice.contains(&dir.path().display().to_string()), "{notice}");
    assert!(format!("{sources:?}").contains("train: 5000"));
}

#[test]
fn builtin_on_purpose_has_no_notice_and_keeps_its_limits() {
    let dir = tempfile::tempdir().unwrap();
    let limited = SourceOptions { train_limit: 7_000, valid_limit: 30, ..options(SourceKind::Builtin, dir.path()) };
    let sources = open(&limited).unwrap();
    assert_eq!((sources.train.len(), sources.valid.len()), (7_000, 30));
    assert_eq!((sources.notice.as_deref(), sources.class_names.len()), (None, 10));
    let other = open(&SourceOptions { seed: 1, ..limited }).unwrap();
    assert!(other.train.get(0).unwrap() != sources.train.get(0).unwrap());
}

#[test]
fn cifar10_on_purpose_without_files_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = open(&options(SourceKind::Cifar10, dir.path())).unwrap_err();
    assert!(matches!(error, DataError::Missing { .. }), "{error}");
}

#[test]
fn auto_reports_a_damaged_cifar10_rather_than_passing_over_it() {
    let dir = tempfile::tempdir().unwrap();
    for number in 1..=5 {
        std::fs::write(dir.path().join(format!("data_batch_{number}.bin")), [0; 100]).unwrap();
    }
    std::fs::write(dir.path().join("test_batch.bin"), [0; 100]).unwrap();
    std::fs::write(dir.path().join("batches.meta.txt"), "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
    let error = open(&options(SourceKind::Auto, dir.path())).unwrap_err();
    assert!(matches!(error, DataError::Truncated { offset: 100, found: 0, .. }), "{error}");
}

#[test]
fn sources_are_named_as_in_the_configuration() {
    assert_eq!("auto".parse::<SourceKind>().unwrap(), SourceKind::Auto);
    assert_eq!("cifar10".parse::<SourceKind>().unwrap(), SourceKind::Cifar10);
    assert_eq!("builtin".parse::<SourceKind>().unwrap(), SourceKind::Builtin);
    let error = "imagenet".parse::<SourceKind>().unwrap_err();
    assert!(matches!(&error, DataError::UnknownSource { found } if found == "imagenet"));
    assert!(error.to_string().contains("wanted `auto`, `cifar10` or `builtin`"), "{error}");
}
