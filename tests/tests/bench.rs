//! `cargo xtask bench step` as CI can have it: on the CPU, small. Its figures add up, and its timeline has every unit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code reports by panicking")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Runs the bench with a timeline; gives its JSON and the timeline.
fn run(arguments: &[&str], directory: &Path) -> (Value, Vec<Value>) {
    let path = directory.join("timeline.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_step"));
    command.args(arguments).args(["steps=2", "triad=0.1", "batch=4"]).arg(format!("timeline={}", path.display()));
    // One backend of the figures that follow; the built-in pictures.
    let output = command.env_remove("STOKER_TEST_BACKEND").env_remove("CIFAR_BIN").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let figures = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    (figures, serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap())
}

/// Units by the names of the spans that they have, with the number of each.
fn spans(timeline: &[Value]) -> BTreeMap<&str, BTreeMap<&str, usize>> {
    let mut spans: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for entry in timeline.iter().filter(|entry| entry["ph"] == "B") {
        let unit = entry["args"]["unit"].as_str().unwrap_or_default();
        *spans.entry(entry["cat"].as_str().unwrap()).or_default().entry(unit).or_default() += 1;
    }
    spans
}

/// The names of the threads on which spans of this name are.
fn threads<'a>(timeline: &'a [Value], name: &str) -> BTreeSet<&'a str> {
    let named = |tid: &Value| {
        let name = timeline.iter().find(|entry| entry["name"] == "thread_name" && entry["tid"] == *tid).unwrap();
        name["args"]["name"].as_str().unwrap()
    };
    timeline.iter().filter(|entry| entry["cat"] == name).map(|entry| named(&entry["tid"])).collect()
}

#[test]
fn the_figures_add_up_and_the_timeline_has_every_unit() {
    let directory = tempfile::tempdir().unwrap();
    let runs = [(&["lenet", "dtype=f32"][..], 5, 4.0), (&["seednet", "divisor=64", "dtype=bf16"], 8, 2.0)];
    for (arguments, units, size) in runs {
        let (figures, timeline) = run(arguments, directory.path());
        let of =
            |path: &str| figures.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {figures}"));
        // AdamW: parameters and two moments read and written; the gradient read, in f32, or in bf16, where the rounded
        // parameters are written.
        let parameters = of("/parameters");
        let close = |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-9, "{found} and {wanted}");
        close(of("/rates/update/gigabytes_a_step") * 1e9, 28.0 * parameters);
        close(of("/rates/update/ratio"), of("/rates/update/gigabytes_a_second") / of("/rates/update/measured"));
        assert!(of("/rates/from_device/gigabytes_a_step") * 1e9 >= size * parameters);
        assert!(of("/rates/update_alone/ratio") > 0.0 && of("/update_alone") > 0.0);
        // With the gradient clipped, the update follows the backward.
        close(
            of("/limits/backward, then the update"),
            of("/backward_alone") + 28.0 * parameters / 1e9 / of("/rates/update/measured"),
        );
        let limits = figures["limits"].as_object().unwrap().values().map(|limit| limit.as_f64().unwrap());
        close(of("/floor"), limits.fold(0.0, f64::max));
        close(of("/floor_reached"), of("/floor") / of("/step"));
        assert!(of("/memory_gib/resident/after") > 0.0 && of("/peaks/host in all") > 0.0);

        let spans = spans(&timeline);
        // Four steps, each of which updates every unit once, and has it gathered anew for that, now or ahead.
        for name in ["step", "forward", "backward", "decision"] {
            assert_eq!(spans[name], BTreeMap::from([("", 4)]), "{name}");
        }
        assert_eq!(spans["update"].len(), units, "{:?}", spans["update"]);
        assert!(spans["update"].values().all(|&count| count == 4), "{:?}", spans["update"]);
        let units: BTreeSet<_> = spans["update"].keys().collect();
        let gathered: BTreeSet<_> =
            ["gather", "fetch"].iter().filter_map(|name| spans.get(name)).flat_map(BTreeMap::keys).collect();
        assert_eq!(gathered, units);
        for name in ["copy in", "copy out", "reduce"] {
            assert_eq!(spans[name].keys().collect::<BTreeSet<_>>(), units, "{name}");
        }
        assert_eq!(threads(&timeline, "update"), BTreeSet::from(["update-0"]));
        assert_eq!(threads(&timeline, "copy in"), BTreeSet::from(["rank-0"]));
    }
}
