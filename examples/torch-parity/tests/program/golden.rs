//! PyTorch's own trajectories, where they are.

use crate::file::File;
use crate::parity;
use std::path::{Path, PathBuf};

/// Beside the checkout, as the data sets are.
fn lenet() -> Option<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/lenet_adamw.safetensors");
    if !file.exists() {
        eprintln!("{} is not there: this test shows nothing", file.display());
        return None;
    }
    Some(file)
}

#[test]
fn lenet_is_met_by_two_ranks_at_stage_3() {
    let Some(file) = lenet() else { return };
    let ended = parity(&file, &["--stage", "3", "--ranks", "2"]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.stdout.matches(" ok ").count(), 3, "{}", ended.stdout);
}

/// Everything that is read is compared: a change by ten times the tolerance is over.
#[test]
fn a_tampered_lenet_is_not() {
    let Some(file) = lenet() else { return };
    let whole = File::read(&file);
    let directory = tempfile::tempdir().unwrap();
    let over = |change: &dyn Fn(&mut File), told: &str| {
        let mut file = whole.clone();
        change(&mut file);
        let ended = parity(&file.write(directory.path()), &["--stage", "3", "--ranks", "2"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (1, ""), "{told}: {}", ended.stdout);
        let mut over = ended.stdout.lines().filter(|line| line.contains("OVER"));
        let line = over.next().unwrap_or_default();
        assert!(line.contains(told) && over.next().is_none(), "{told}: {}", ended.stdout);
    };
    over(&|file| file.change("loss", |values| values[4] += 1e-4), "OVER step 4");
    over(&|file| file.change("grad_norm", |values| values[1] *= 1.0003), "OVER step 1");
    let moved = move |file: &mut File| {
        let first = file.tensors["init.fc2.weight"].values();
        file.change("final.fc2.weight", |values| {
            values.iter_mut().zip(first).for_each(|(last, first)| *last += 0.002 * (*last - first));
        });
    };
    over(&moved, "OVER fc2.weight");
    over(&|file| file.change("final.fc3.bias", |values| values[9] = f32::NAN), "displacement");
    over(&|file| file.change("loss", |values| values[5] = f32::NAN), "OVER step 5");
}
