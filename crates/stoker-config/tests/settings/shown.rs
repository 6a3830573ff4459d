//! What is shown can be loaded again.

use super::{file, set};
use stoker_config::{Settings, Sources};

#[test]
fn each_line_says_where_it_is_from() {
    let sources = Sources {
        profile: Some("offload".to_owned()),
        environment: vec![("STOKER__ZERO__STAGE".to_owned(), "2".to_owned())],
        overrides: vec!["optimizer.adamw.betas=[0.5, 0.75]".to_owned()],
        ..Sources::default()
    };
    let (settings, provenance) = Settings::load(&sources).unwrap();
    let shown = settings.show(&provenance);
    for wanted in [
        "[run]\nseed = 42               # from default\nranks = 2               # from profile offload\ntimeout_seconds = 60.0  # from default\n",
        "\n[zero]\nstage = 2                     # from environment STOKER__ZERO__STAGE\n",
        "\n[optimizer]\nname = \"adamw\"  # from default\nthreads = 0     # from default\n\n[optimizer.adamw]\nbetas = [0.5, 0.75]  # from --set\neps = 1e-8           # from default of optimizer adamw\n",
        "\n[offload.cpu-offload]\n",
    ] {
        assert!(shown.contains(wanted), "{wanted}\nis not in\n{shown}");
    }
    // Keys that no profile sets, whatever stands above and below them.
    for key in ["max_steps = 0", "prefetch_bytes = \"64 MiB\""] {
        assert!(shown.lines().any(|line| line.starts_with(key) && line.ends_with("# from default")), "{key}\n{shown}");
    }
    assert!(!shown.contains("gpu-only"));
}

#[test]
fn what_is_shown_loads_to_the_same() {
    for overrides in [
        &[][..],
        &["run.seed=9223372036854775807", "data.dir=a \"b\" \\c", "host.memory_limit=1500", "learning_rate.base=1"],
        &["offload.cpu-offload={room=\"2 KiB\", mode=\"lazy\", pin-memory=true}", "optimizer.adamw.eps=1e-300"],
        &["offload.name=gpu-only", "optimizer.name=sgd", "optimizer.sgd.momentum=1"],
    ] {
        let (settings, provenance) = set(overrides).unwrap();
        let (again, _) = file("shown.toml", &settings.show(&provenance)).0.unwrap();
        assert_eq!(again, settings);
        let json = settings.to_json(&provenance);
        let typed: Settings = serde_json::from_value(json["settings"].clone()).unwrap();
        assert_eq!(typed, settings);
        assert_eq!(json["from"]["zero.stage"], "default");
    }
}
