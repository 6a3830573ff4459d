//! Which crate may know which: read from cargo's own metadata.

use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::BTreeSet;

const PLUGINS: [&str; 5] =
    ["stoker-cpu-offload", "stoker-gpu-only", "stoker-optimizers", "stoker-partitioners", "stoker-threads"];

/// What a crate of the workspace may depend on, of the workspace.
fn allowed(name: &str) -> Option<Vec<&'static str>> {
    Some(match name {
        "stoker-core" | "stoker-data" | "stoker-libtorch" | "xtask" => vec![],
        "stoker-config" | "stoker-cuda" | "stoker-kernels" | "stoker-testkit" => vec!["stoker-core"],
        "stoker-engine" => vec!["stoker-core", "stoker-kernels"],
        "stoker-burn" => vec!["stoker-core", "stoker-cuda", "stoker-engine", "stoker-libtorch"],
        "stoker-trainer" => vec!["stoker-core", "stoker-engine", "stoker-burn", "stoker-config", "stoker-data"],
        plugin if PLUGINS.contains(&plugin) => vec!["stoker-core", "stoker-kernels"],
        // What a user's program knows.
        "own-model" | "own-offload-target" | "torch-parity" => vec!["stoker"],
        // The facade and the tests compose everything.
        "stoker" | "stoker-tests" => return None,
        other => panic!("crate `{other}` is new: say in xtask/src/arrows.rs what it may depend on"),
    })
}

/// Crates outside the workspace that only these may depend on.
const FOREIGN: [(&str, &[&str]); 6] = [
    (
        "burn",
        &["stoker-burn", "stoker-optimizers", "stoker-trainer", "stoker", "stoker-tests", "own-model", "torch-parity"],
    ),
    ("burn-flex", &["stoker-burn"]),
    ("burn-tch", &["stoker-burn"]),
    ("cudarc", &["stoker-cuda"]),
    ("tch", &["stoker-burn", "stoker-libtorch"]),
    ("torch-sys", &["stoker-libtorch"]),
];

#[test]
fn no_crate_knows_what_it_may_not() {
    let metadata = MetadataCommand::new().manifest_path(crate::cargo::root().join("Cargo.toml")).no_deps().exec();
    let metadata = metadata.unwrap();
    let ours: BTreeSet<_> = metadata.packages.iter().map(|package| package.name.to_string()).collect();
    assert!(ours.len() > 10, "the workspace was not read");
    let mut broken = Vec::new();
    for package in &metadata.packages {
        let allowed = allowed(package.name.as_str());
        for dependency in package.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal) {
            let name = dependency.name.as_str();
            let inside = ours.contains(name) && allowed.as_ref().is_some_and(|allowed| !allowed.contains(&name));
            let outside = FOREIGN.iter().any(|(foreign, by)| *foreign == name && !by.contains(&package.name.as_str()));
            if inside || outside {
                broken.push(format!("{} -> {name}", package.name));
            }
        }
    }
    assert!(broken.is_empty(), "forbidden arrows: {broken:?}");
}
