//! The runs that the README shows, whole: minutes each, so they are part of `cargo xtask test --full` only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code reports by panicking")]

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;

fn train(arguments: &[&str]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("summary.json");
    let mut stoker = Command::cargo_bin("stoker").unwrap();
    stoker.arg("train").args(arguments).arg("--json").arg(&json).assert().success();
    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
}

fn number(summary: &Value, key: &str) -> f64 {
    summary[key].as_f64().unwrap_or_else(|| panic!("`{key}` is not a number in {summary}"))
}

#[test]
#[ignore = "a minute"]
fn the_main_job_learns_the_built_in_data() {
    let summary = train(&["--profile", "offload", "--set", "data.source=builtin"]);
    assert_eq!((&summary["world"], &summary["stage"]), (&2.into(), &3.into()));
    assert_eq!(summary["data_source"], "builtin");
    assert!(number(&summary, "train_loss") < 0.5 * number(&summary, "first_loss"), "{summary}");
    assert!(number(&summary, "valid_accuracy") > 0.6, "{summary}");
}

#[test]
#[ignore = "a minute"]
fn the_recipe_of_a_large_batch_learns_the_built_in_data() {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/recipes/bf16-large-batch.toml");
    let summary = train(&["--config", recipe.to_str().unwrap()]);
    assert_eq!((&summary["steps"], &summary["skipped_steps"]), (&114.into(), &0.into()));
    assert!(number(&summary, "valid_accuracy") > 0.8, "{summary}");
}

#[test]
#[ignore = "minutes, and the real CIFAR-10"]
fn the_recipe_learns_cifar10() {
    let Ok(directory) = std::env::var("STOKER_CIFAR10_DIR") else {
        println!("skipped: STOKER_CIFAR10_DIR does not say where CIFAR-10 is");
        return;
    };
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/recipes/cifar10-lenet.toml");
    let summary = train(&["--config", recipe.to_str().unwrap(), "--set", &format!("data.dir={directory}")]);
    assert_eq!(summary["data_source"], "cifar10");
    assert!(summary["epochs"].as_array().unwrap().len() <= 10, "{summary}");
    assert!(number(&summary, "valid_accuracy") >= 0.62, "{summary}");
}
