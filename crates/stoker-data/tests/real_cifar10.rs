//! The reader on the real files. They are not part of the repository: `STOKER_CIFAR10_DIR` says where they are, and
//! without it there is nothing to check.

use std::path::PathBuf;

use stoker_data::{CLASSES, ImageItem, SourceKind, SourceOptions, installed, open};

#[test]
fn the_real_files_are_read_whole() {
    let Some(dir) = std::env::var_os("STOKER_CIFAR10_DIR").map(PathBuf::from) else {
        println!("skipped: set STOKER_CIFAR10_DIR to the directory of CIFAR-10's binary files to run this test");
        return;
    };
    assert!(installed(&dir), "STOKER_CIFAR10_DIR={} lacks some of the seven files", dir.display());
    let sources = open(&SourceOptions { kind: SourceKind::Auto, dir, ..SourceOptions::default() }).unwrap();
    assert_eq!((sources.name, sources.notice.as_deref()), ("cifar10", None));
    assert_eq!(sources.class_names[..3], ["airplane", "automobile", "bird"]);

    for (data, of_each) in [(&sources.train, 5_000), (&sources.valid, 1_000)] {
        let mut labels = [0usize; CLASSES];
        let mut sum = 0u64;
        for index in 0..data.len() {
            let ImageItem { pixels, label } = data.get(index).unwrap();
            labels[usize::from(label)] += 1;
            sum += pixels.iter().map(|pixel| u64::from(*pixel)).sum::<u64>();
        }
        assert_eq!(labels, [of_each; CLASSES], "CIFAR-10 has equally many pictures of each class");
        // The known mean of CIFAR-10, over its colours, is 0.473.
        let mean = sum as f64 / (data.len() * 3_072) as f64 / 255.0;
        assert!((mean - 0.473).abs() < 0.01, "mean {mean}");
    }
}
