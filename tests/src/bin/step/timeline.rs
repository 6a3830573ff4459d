//! A timeline of some steps, for Perfetto (`https://ui.perfetto.dev`): the engine's spans by thread, and the copies of a
//! GPU at the times at which the device made them.

use serde_json::{Value, json};
use std::path::Path;
use tracing::level_filters::LevelFilter;
use tracing_chrome::ChromeLayerBuilder;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Spans of the device, and the row that each sort has.
const ROWS: [(&str, &str, u64); 2] =
    [("copy in", "device: copies to it", 1_000_001), ("copy out", "device: copies from it", 1_000_002)];

/// Writes what `work` does to `path`. Only once: the listener stays until the program ends.
pub(crate) fn record(path: &Path, work: impl FnOnce()) {
    let (chrome, guard) = ChromeLayerBuilder::new().file(path).include_args(true).include_locations(false).build();
    // This program's and the engine's spans; stoker-cuda adds to the engine's.
    let ours = Targets::new().with_target("step", LevelFilter::TRACE).with_target("stoker", LevelFilter::TRACE);
    let listener = tracing_subscriber::registry().with(chrome.with_filter(ours));
    tracing::subscriber::set_global_default(listener).unwrap();
    work();
    drop(guard);
    let entries: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    std::fs::write(path, serde_json::to_vec(&with_rows_of_the_device(entries)).unwrap()).unwrap();
}

/// Moves spans that say when the device did it to rows of their own, at that time ([Note: Spans of the device] in
/// stoker-cuda's `clock.rs`).
fn with_rows_of_the_device(entries: Vec<Value>) -> Vec<Value> {
    let mut placed: Vec<Value> = Vec::with_capacity(entries.len());
    for mut entry in entries {
        // Named by their unit too, which is what one looks for.
        entry["cat"] = entry["name"].clone();
        if let (Some(name), Some(unit)) = (entry["name"].as_str(), entry["args"]["unit"].as_str()) {
            entry["name"] = format!("{name} {unit}").into();
        }
        let ago = |what: &str| entry["args"][what].as_str().and_then(|text| text.parse::<f64>().ok());
        let (Some(began), Some(ended)) = (ago("began_us_ago"), ago("ended_us_ago")) else {
            placed.push(entry);
            continue;
        };
        let row = ROWS.iter().find(|(name, ..)| entry["cat"] == *name);
        // The beginning says all; the end is at the same moment.
        if let (Some((_, _, row)), true, Some(told)) = (row, entry["ph"] == "B", entry["ts"].as_f64()) {
            entry["ph"] = "X".into();
            entry["ts"] = (told - began).into();
            entry["dur"] = (began - ended).into();
            entry["tid"] = (*row).into();
            placed.push(entry);
        }
    }
    for (_, title, row) in ROWS {
        if placed.iter().any(|entry| entry["tid"] == row) {
            placed.push(json!({"ph": "M", "pid": 1, "tid": row, "name": "thread_name", "args": {"name": title}}));
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::field::Empty;
    use tracing::trace_span;

    #[test]
    fn what_the_device_did_is_at_its_own_time() {
        let path = std::env::temp_dir().join(format!("stoker-timeline-{}.json", std::process::id()));
        record(&path, || {
            let copy = trace_span!("copy out", unit = %"fc1", began_us_ago = Empty, ended_us_ago = Empty);
            copy.in_scope(|| {});
            // As `Clock::tell` does. An hour ago is before the timeline, so no clock decides what follows.
            copy.record("began_us_ago", 3_600_001_000.0);
            copy.record("ended_us_ago", 3_600_000_000.0);
            copy.in_scope(|| {});
        });
        let entries: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let on_device: Vec<_> = entries.iter().filter(|entry| entry["tid"] == 1_000_002).collect();
        let [copy, name] = on_device[..] else { panic!("not a copy and a name: {on_device:?}") };
        assert_eq!((copy["ph"].as_str(), copy["dur"].as_f64()), (Some("X"), Some(1000.0)));
        assert_eq!(copy["name"], "copy out fc1");
        assert_eq!((&copy["args"]["unit"], &name["args"]["name"]), (&json!("fc1"), &json!("device: copies from it")));
        let of_thread: Vec<_> = entries.iter().filter(|entry| entry["cat"] == "copy out" && *entry != copy).collect();
        let [begin, end] = of_thread[..] else { panic!("not one span of the thread: {of_thread:?}") };
        assert_eq!((begin["ph"].as_str(), end["ph"].as_str()), (Some("B"), Some("E")));
        assert!(copy["ts"].as_f64() < Some(0.0) && begin["ts"].as_f64() > Some(0.0));
    }
}
