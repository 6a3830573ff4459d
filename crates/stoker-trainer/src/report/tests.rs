use super::*;
use stoker_core::{Place, Role};

fn fitted() -> Fitted {
    let epoch =
        EpochReport { epoch: 1, steps: 4, train_loss: 2.0, valid_loss: 1.5, valid_accuracy: 0.625, seconds: 2.0 };
    Fitted {
        steps: 4,
        skipped_steps: 0,
        not_finite_losses: 0,
        loss_scale: None,
        first_loss: 2.5,
        train_loss: 2.0,
        epochs: vec![epoch],
        images: 128,
        training: Duration::from_secs(2),
    }
}

fn rank(slab: u64, total: u64) -> RankReport {
    let peak = |role, bytes| Peak { place: Place::Device, role, bytes };
    RankReport {
        fitted: fitted(),
        parameters: 62_006,
        peaks: vec![peak(None, total), peak(Some(Role::Slab), slab)],
        moved: Moved { to_device: 1024, from_device: 512, between_ranks: 256 },
    }
}

fn summary() -> Summary {
    let sources = stoker_config::Sources { overrides: vec!["run.ranks=2".into()], ..Default::default() };
    let (settings, _) = Settings::load(&sources).unwrap();
    Summary::new(&settings, "builtin", &[rank(2048, 4096), rank(1024, 3072)], Duration::from_secs(3)).unwrap()
}

#[test]
fn peaks_are_summed_and_the_largest_kept() {
    let summary = summary();
    assert_eq!(summary.peak_bytes["device"]["total"], 7168);
    assert_eq!(summary.peak_bytes["device"]["slab"], 3072);
    assert_eq!(summary.peak_bytes_of_a_rank["device"]["total"], 4096);
    assert_eq!(summary.bytes_moved, Moved { to_device: 2048, from_device: 1024, between_ranks: 512 });
    assert_eq!(summary.images_per_second, 64.0);
}

#[test]
fn people_get_aligned_lines() {
    let mut summary = summary();
    summary.skipped_steps = 1;
    let expected = "\
model           lenet, 62,006 parameters
run             2 ranks, ZeRO stage 3, shards in cpu-offload, data builtin
steps           4 in 3.0 s, 1 skipped (a gradient was not finite), 64.0 images/s
training loss   2.500 at first, 2.000 at last
validation      loss 1.500, accuracy 62.5 %
peak memory                           all ranks  largest rank
  device                                7.0 KiB       4.0 KiB
    slab                                3.0 KiB       2.0 KiB
bytes moved     2.0 KiB to devices, 1.0 KiB from devices, 512 B between ranks
";
    assert_eq!(summary.to_string(), expected);
    summary.loss_scale = Some(32768.0);
    assert_eq!(summary.to_string().lines().nth(4), Some("loss scale      32768 at last"));
}

#[test]
fn programs_get_a_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("summary.json");
    std::fs::write(&path, "old").unwrap();
    let mut summary = summary();
    summary.train_loss = f64::NAN;
    summary.write_json(&path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(json["world"], 2);
    assert_eq!(json["valid_accuracy"], 0.625);
    assert_eq!(json["peak_bytes"]["device"]["slab"], 3072);
    assert_eq!(json["bytes_moved"]["between_ranks"], 512);
    assert_eq!(json["epochs"][0]["epoch"], 1);
    assert!(json["train_loss"].is_null());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o400, 0o400);
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error() {
    let error = summary().write_json(Path::new("/nowhere/at/all.json")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write /nowhere/at/all.json; check that its directory exists, is writable and has room"
    );
    assert!(error.chain().ends_with("No such file or directory (os error 2)"), "{}", error.chain());
}
