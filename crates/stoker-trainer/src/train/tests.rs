use super::*;
use stoker_cpu_offload as _;
use stoker_optimizers as _;
use stoker_partitioners as _;
use stoker_threads as _;

fn run(overrides: &[&str]) -> Summary {
    let tiny = ["data.source=builtin", "data.train_records=64", "data.valid_records=20", "train.batch_size=16"];
    let overrides = tiny.iter().chain(overrides).map(|&text| text.to_owned()).collect();
    let (settings, _) = Settings::load(&stoker_config::Sources { overrides, ..Default::default() }).unwrap();
    train(&settings, &TrainOptions { progress: Progress::Silent, ..TrainOptions::default() }).unwrap()
}

#[test]
fn epochs_are_counted_and_the_loss_falls() {
    let summary = run(&["train.epochs=12", "learning_rate.base=3e-3"]);
    assert_eq!(summary.steps, 48);
    let epochs: Vec<_> = summary.epochs.iter().map(|epoch| (epoch.epoch, epoch.steps)).collect();
    assert_eq!(epochs, (1..=12).map(|epoch| (epoch, 4)).collect::<Vec<_>>());
    let (first, last) = (summary.epochs[0].train_loss, summary.epochs[11].train_loss);
    assert!(last < first - 0.05, "{first} {last}");
    assert_eq!(summary.valid_loss, summary.epochs[11].valid_loss);
}

#[test]
fn a_run_does_not_depend_on_its_ranks() {
    let [one, two] = ["run.ranks=1", "run.ranks=2"].map(|ranks| run(&[ranks, "train.max_steps=6"]));
    assert_eq!((one.world, two.world), (1, 2));
    let near = |a: f64, b: f64| (a - b).abs() < 1e-4;
    assert!(near(one.first_loss, two.first_loss), "{} {}", one.first_loss, two.first_loss);
    assert!(near(one.train_loss, two.train_loss), "{} {}", one.train_loss, two.train_loss);
    assert!(near(one.valid_loss, two.valid_loss), "{} {}", one.valid_loss, two.valid_loss);
    assert_eq!(one.bytes_moved.between_ranks, 0);
    assert!(two.bytes_moved.between_ranks > 0);
}

#[test]
fn a_run_does_not_depend_on_its_accumulation() {
    let runs = ["train.accumulation=1", "train.accumulation=4"].map(|accumulation| {
        run(&[accumulation, "run.ranks=2", "train.max_steps=6", "train.epochs=2", "train.batch_size=16"])
    });
    let [whole, parts] = &runs;
    assert_eq!((whole.steps, parts.steps), (6, 6));
    assert_eq!(parts.epochs.iter().map(|epoch| epoch.steps).collect::<Vec<_>>(), [4, 2]);
    let near = |a: f64, b: f64| (a - b).abs() < 1e-4;
    assert!(near(whole.first_loss, parts.first_loss), "{} {}", whole.first_loss, parts.first_loss);
    assert!(near(whole.train_loss, parts.train_loss), "{} {}", whole.train_loss, parts.train_loss);
    assert!(near(whole.valid_loss, parts.valid_loss), "{} {}", whole.valid_loss, parts.valid_loss);
}

#[test]
fn narrow_types_learn_as_f32_does() {
    let keys = ["train.epochs=6", "train.accumulation=2", "run.ranks=2", "learning_rate.base=3e-3"];
    let losses = ["f32", "bf16", "f16"].map(|compute| {
        let summary = run(&[&keys[..], &[&format!("precision.compute={compute}")]].concat());
        if compute == "f16" {
            // The scale begins where a few steps overflow, and comes down until they do not.
            assert!(
                summary.skipped_steps <= 4 && summary.loss_scale.is_some_and(|scale| scale >= 8192.0),
                "{summary:?}"
            );
        } else {
            assert_eq!((summary.skipped_steps, summary.loss_scale), (0, None));
        }
        (summary.first_loss, summary.train_loss)
    });
    for (first, mean) in losses {
        // f16 and bf16 round to 11 and 8 bits.
        assert!((first - losses[0].0).abs() < 0.01 && (mean - losses[0].1).abs() < 0.05, "{losses:?}");
    }
}

#[test]
fn losses_that_are_not_finite_are_told() {
    let summary = run(&["learning_rate.base=1e30", "train.max_steps=4"]);
    assert_eq!(summary.steps, 4);
    assert!(summary.first_loss.is_finite() && summary.train_loss.is_finite());
    assert!(summary.not_finite_losses > 0 && summary.not_finite_losses < 4, "{summary:?}");
    assert!(summary.skipped_steps > 0, "{summary:?}");
    assert!(summary.to_string().contains("skipped (a gradient was not finite)"));
}

#[test]
fn the_directory_of_a_file_is_looked_for() {
    assert!(check_directory_of(Path::new("here.json")).is_ok());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(check_directory_of(&file).is_ok());
    let error = check_directory_of(dir.path()).unwrap_err();
    assert!(error.chain().contains("no regular file is there"), "{error:?}");
    let error = check_directory_of(&file.join("below")).unwrap_err();
    assert!(error.chain().contains("is no directory") || error.chain().contains("Not a directory"), "{error:?}");
}
