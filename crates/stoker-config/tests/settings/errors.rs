//! Every mistake, and what is said about it.

use super::{environment, file, message, set};
use std::path::PathBuf;
use stoker_config::{Error, Plugins, Registered, Settings, Sources};
use stoker_core::OptionSpec;
use stoker_core::registry::Kind;

#[test]
fn unknown_profile() {
    let error = Settings::profile("ofload").unwrap_err();
    assert!(matches!(error, Error::UnknownProfile { .. }));
    assert_eq!(
        error.to_string(),
        "no profile is called `ofload` (did you mean `offload`?); profiles: gpu-only, no-offload, offload"
    );
    let error = Settings::profile("../profiles/offload").unwrap_err().to_string();
    assert!(error.starts_with("no profile is called"), "{error}");
}

#[test]
fn unknown_key_in_every_layer() {
    let wanted = |layer: &str| {
        format!(
            "unknown key `zero.stag` (from {layer}) (did you mean `zero.stage`?); `zero` has: stage, reshard_after_forward, persistence_threshold"
        )
    };
    assert_eq!(message(set(&["zero.stag=1"])), wanted("--set"));
    assert_eq!(message(environment(&[("STOKER__ZERO__STAG", "1")])), wanted("environment STOKER__ZERO__STAG"));
    for (name, text) in
        [("a.toml", "[zero]\nstag = 1"), ("a.yaml", "zero:\n  stag: 1"), ("a.json", r#"{"zero": {"stag": null}}"#)]
    {
        let (result, path) = file(name, text);
        assert_eq!(message(result), wanted(&format!("file {path}")));
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("profiles")).unwrap();
    let profile = dir.path().join("profiles/mine.toml");
    std::fs::write(&profile, "[zero]\nstag = 1").unwrap();
    let mut sources =
        Sources { configs_dir: Some(dir.path().to_owned()), profile: Some("mine".into()), ..Sources::default() };
    assert_eq!(message(Settings::load(&sources)), wanted(&format!("profile mine, {}", profile.display())));
    // A layer that is hidden by another is checked all the same.
    sources.overrides = vec!["zero.stage=1".into()];
    assert_eq!(message(Settings::load(&sources)), wanted(&format!("profile mine, {}", profile.display())));
}

#[test]
fn unknown_keys_of_every_shape() {
    for (given, wanted) in [
        (
            "zer.stage=1",
            "unknown key `zer.stage` (from --set) (did you mean `zero.stage`?); sections: run, model, data, train, learning_rate, parameters, groups, precision, device, host, zero, schedule, partitioner, offload, communicator, optimizer",
        ),
        (
            "train.seed=1",
            "unknown key `train.seed` (from --set) (did you mean `run.seed`?); `train` has: epochs, batch_size, accumulation, max_steps, clip_norm, clip_value",
        ),
        ("zebra={}", "unknown key `zebra` (from --set); sections: run, model, "),
        ("run.zebra={}", "unknown key `run.zebra` (from --set); `run` has: seed, ranks, timeout_seconds"),
        ("zero.stage.deep=1", "unknown key `zero.stage.deep` (from --set) (did you mean `zero.stage`?); sections: "),
        ("=1", "unknown key `` (from --set); sections: "),
        (
            "optimizer.nam=sgd",
            "unknown key `optimizer.nam` (from --set) (did you mean `optimizer.name`?); `optimizer` has: name",
        ),
        (
            "optimizer.eps=1",
            "unknown key `optimizer.eps` (from --set) (did you mean `optimizer.adamw.eps`?); `optimizer` has: name",
        ),
        (
            "optimizer.adamw.epss=1",
            "unknown key `optimizer.adamw.epss` (from --set) (did you mean `optimizer.adamw.eps`?); `optimizer.adamw` has: eps, betas, weight_decay",
        ),
        (
            "optimizer.sgd.eps=1",
            "unknown key `optimizer.sgd.eps` (from --set) (did you mean `optimizer.adamw.eps`?); `optimizer.sgd` has: momentum",
        ),
        (
            "optimizer.adamw.eps.deep=1",
            "unknown key `optimizer.adamw.eps.deep` (from --set) (did you mean `optimizer.adamw.eps`?); sections: ",
        ),
    ] {
        let error = message(set(&[given]));
        assert!(error.starts_with(wanted), "{given}: {error}");
    }
    let (result, path) = file("a.yaml", "zero.stage: 1");
    let error = message(result);
    let wanted = format!("unknown key `\"zero.stage\"` (from file {path}) (did you mean `zero.stage`?); sections: ");
    assert!(error.starts_with(&wanted), "{error}");
    let error = message(environment(&[("STOKER__OFFLOAD__CPU_OFFLOAD__PIN_MEMRY", "true")]));
    assert_eq!(
        error,
        "unknown key `offload.cpu-offload.pin_memry` (from environment STOKER__OFFLOAD__CPU_OFFLOAD__PIN_MEMRY) (did you mean `offload.cpu-offload.pin-memory`?); `offload.cpu-offload` has: pin-memory, mode, room"
    );
}

#[test]
fn bad_value() {
    let bytes = "an amount of memory such as 4096, \"64 MiB\" or \"2 GB\"";
    for (given, wanted) in [
        ("zero.stage=4", "`zero.stage` is 4 (from --set); allowed: a whole number from 0 to 3"),
        ("zero.stage=two", "`zero.stage` is \"two\" (from --set); allowed: a whole number from 0 to 3"),
        ("zero.stage={}", "`zero.stage` is a table (from --set); allowed: a whole number from 0 to 3"),
        ("run.seed=-1", "`run.seed` is -1 (from --set); allowed: a whole number from 0 on"),
        (
            "run.seed=[[1], {}]",
            "`run.seed` is a list with a table in it (from --set); allowed: a whole number from 0 on",
        ),
        (
            "run.timeout_seconds=0",
            "`run.timeout_seconds` is 0 (from --set); allowed: a number above 0, at most 1000000000",
        ),
        ("learning_rate.gamma=1.5", "`learning_rate.gamma` is 1.5 (from --set); allowed: a number above 0, at most 1"),
        ("precision.compute=f64", "`precision.compute` is \"f64\" (from --set); allowed: f32, bf16, f16"),
        (
            "precision.hysteresis=0",
            "`precision.hysteresis` is 0 (from --set); allowed: a whole number from 1 to 4294967295",
        ),
        ("learning_rate.base=inf", "`learning_rate.base` is inf (from --set); allowed: a number from 0 on"),
        ("model.name=resnet", "`model.name` is \"resnet\" (from --set); allowed: lenet, seednet, moe-lenet"),
        ("schedule.overlap=1", "`schedule.overlap` is 1 (from --set); allowed: true or false"),
        ("host.memory_limit=much", &format!("`host.memory_limit` is \"much\" (from --set); allowed: {bytes}")),
        (
            "schedule.bucket_bytes=0",
            &format!("`schedule.bucket_bytes` is 0 (from --set); allowed: {bytes}, at least 4 bytes"),
        ),
        (
            "zero=3",
            "`zero` is 3 (from --set); allowed: a section with keys: stage, reshard_after_forward, persistence_threshold",
        ),
        (
            "optimizer.adamw=1",
            "`optimizer.adamw` is 1 (from --set); allowed: a table with options of optimizer adamw: eps, betas, weight_decay",
        ),
        (
            "offload.gpu-only=1",
            "`offload.gpu-only` is 1 (from --set); allowed: a table with options of offload target gpu-only: it has none",
        ),
        ("optimizer.adamw.eps=-1", "`optimizer.adamw.eps` is -1 (from --set); allowed: a number from 0 to 1"),
        ("optimizer.adamw.eps={}", "`optimizer.adamw.eps` is a table (from --set); allowed: a number from 0 to 1"),
        (
            "optimizer.adamw.betas=[0.9]",
            "`optimizer.adamw.betas` is [0.9] (from --set); allowed: two numbers, each from 0 to below 1",
        ),
        (
            "offload.cpu-offload.mode=later",
            "`offload.cpu-offload.mode` is \"later\" (from --set); allowed: eager, lazy",
        ),
    ] {
        assert_eq!(message(set(&[given])), wanted, "{given}");
    }
    let (result, path) = file("a.json", r#"{"run": {"seed": 18446744073709551615}}"#);
    assert_eq!(
        message(result),
        format!("`run.seed` is 18446744073709551615 (from file {path}); allowed: a whole number from 0 on")
    );
    let (result, path) = file("a.json", r#"{"data": {"dir": null}}"#);
    assert_eq!(message(result), format!("`data.dir` is nothing (from file {path}); allowed: text"));
}

#[test]
fn plugin() {
    for (given, wanted) in [
        (
            "optimizer.name=adamx",
            "`optimizer.name` (from --set): no optimizer is called `adamx` (did you mean `adamw`?); registered: adamw, sgd. Link its crate (`use that_crate as _;`) or choose one of these",
        ),
        (
            "offload.cpu-ofload.mode=lazy",
            "`offload.cpu-ofload` (from --set): no offload target is called `cpu-ofload` (did you mean `cpu-offload`?); registered: cpu-offload, gpu-only. Link its crate (`use that_crate as _;`) or choose one of these",
        ),
        (
            "optimizer.lion={}",
            "`optimizer.lion` (from --set): no optimizer is called `lion`; registered: adamw, sgd. Link its crate (`use that_crate as _;`) or choose one of these",
        ),
    ] {
        let error = set(&[given]).unwrap_err();
        assert!(matches!(error, Error::Plugin { .. }));
        assert_eq!(error.to_string(), wanted);
    }
}

/// As registered, but two crates have brought an AdamW.
struct Twice;

impl Plugins for Twice {
    fn names(&self, kind: Kind) -> Vec<&'static str> {
        Registered.names(kind)
    }

    fn options(&self, kind: Kind, name: &str) -> stoker_core::Result<&'static [OptionSpec]> {
        if name == "adamw" {
            let descriptions = vec!["one".to_owned(), "two".to_owned()];
            return Err(stoker_core::Error::DuplicatePlugin {
                kind: kind.name(),
                name: name.to_owned(),
                count: 2,
                descriptions,
            });
        }
        Registered.options(kind, name)
    }
}

#[test]
fn plugin_that_is_registered_twice() {
    let said = "2 plugins are registered as optimizer `adamw`: one, two. Link only one of the crates, or rename one";
    let mut sources = Sources::default();
    assert_eq!(message(Settings::load_with(&sources, &Twice)), format!("`optimizer.name` (from default): {said}"));
    sources.overrides = vec!["optimizer.adamw.eps=1".to_owned()];
    assert_eq!(message(Settings::load_with(&sources, &Twice)), format!("`optimizer.adamw` (from --set): {said}"));
}

#[test]
fn conflict() {
    for (given, wanted) in [
        (
            &["run.ranks=4", "train.batch_size=10"][..],
            "`train.batch_size` is 10 (from --set) but `run.ranks` is 4 (from --set): every rank takes an equal part of the batch, so it must be a multiple of the ranks, such as 12",
        ),
        (
            &["run.ranks=2", "train.accumulation=4", "train.batch_size=20"],
            "`train.batch_size` is 20 (from --set) but `train.accumulation` is 4 (from --set): the batch is cut into so many micro-batches, of which every rank (run.ranks is 2) takes an equal part, so it must be a multiple of 8, such as 24",
        ),
        (
            &["train.accumulation=4294967295", "run.ranks=64"],
            "`train.batch_size` is 64 (from default) but `train.accumulation` is 4294967295 (from --set): the batch is cut into so many micro-batches, of which every rank (run.ranks is 64) takes an equal part, so it must be a multiple of 274877906880, such as 274877906880",
        ),
        (
            &["train.clip_norm=1", "train.clip_value=0.5"],
            "`train.clip_norm` is 1 (from --set) but `train.clip_value` is 0.5 (from --set): a gradient is clipped by its norm or by its values; set one of them to 0",
        ),
        (
            &["learning_rate={schedule=\"cosine\", end=0.1}"],
            "`learning_rate.end` is 0.1 (from --set) but `learning_rate.base` is 0.001 (from default): a cosine schedule decays, so the end must not be above the base",
        ),
        (
            &["learning_rate.schedule=step", "learning_rate.gamma=0.1"],
            "`learning_rate.step_size` is 0 (from default) but `learning_rate.schedule` is step (from --set): say after how many steps the rate falls, such as 1000",
        ),
        (
            &["learning_rate.schedule=exponential"],
            "`learning_rate.gamma` is 1 (from default) but `learning_rate.schedule` is exponential (from --set): times 1 the rate never falls; say by which factor it does, such as 0.999 for \"exponential\" (every step) or 0.1 for \"step\" (every learning_rate.step_size steps)",
        ),
        (
            &["precision={compute=\"f16\", minimum_scale=32, initial_scale_power=4}"],
            "`precision.minimum_scale` is 32 (from --set) but `precision.initial_scale_power` is 4 (from --set): the scale begins at 2 to that power, 16, and must not begin below its minimum",
        ),
        (
            &["model={name=\"moe-lenet\", experts=1, top_k=2}"],
            "`model.top_k` is 2 (from --set) but `model.experts` is 1 (from --set): a picture cannot go to more experts than there are",
        ),
        (
            &["data.train_records=63"],
            "`data.train_records` is 63 (from --set) but `train.batch_size` is 64 (from default): that is not one batch; use more records (0 for all) or a smaller batch",
        ),
        (
            &["learning_rate={schedule=\"linear\", end=0.1}"],
            "`learning_rate.end` is 0.1 (from --set) but `learning_rate.base` is 0.001 (from default): a linear schedule decays, so the end must not be above the base",
        ),
    ] {
        let error = set(given).unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }));
        assert_eq!(error.to_string(), wanted);
    }
    // Each is allowed where the other key does not forbid it.
    set(&["schedule.pool_bytes=0"]).unwrap();
    set(&["learning_rate.end=0.1"]).unwrap();
    set(&["precision.minimum_scale=32", "precision.initial_scale_power=4"]).unwrap();
    set(&["model.experts=1", "model.top_k=2"]).unwrap();
    set(&["run.ranks=2", "train.accumulation=4", "train.batch_size=24"]).unwrap();
}

#[test]
fn bad_override() {
    let error = set(&["zero.stage"]).unwrap_err();
    assert!(matches!(error, Error::BadOverride { .. }));
    assert_eq!(
        error.to_string(),
        "--set zero.stage: no `=` in it; write --set section.key=value, such as --set zero.stage=2"
    );
}

#[test]
fn read() {
    let missing = Some(PathBuf::from("/nowhere/a.toml"));
    for (sources, path) in [
        (Sources { file: missing.clone(), ..Sources::default() }, "/nowhere/a.toml"),
        (
            Sources { configs_dir: Some("/nowhere".into()), profile: Some("offload".into()), ..Sources::default() },
            "/nowhere",
        ),
    ] {
        let error = Settings::load(&sources).unwrap_err();
        assert!(matches!(error, Error::Read { .. }));
        assert_eq!(error.to_string(), format!("cannot read {path}: No such file or directory (os error 2)"));
    }
}

#[test]
fn unknown_format() {
    let (result, path) = file("a.ini", "");
    let error = result.unwrap_err();
    assert!(matches!(error, Error::UnknownFormat { .. }));
    assert_eq!(
        error.to_string(),
        format!("{path} ends in none of .toml, .yaml, .yml and .json, so its format is not known; rename it")
    );
}

#[test]
fn parse() {
    for (name, text, format) in [
        ("a.toml", "[zero\nstage = 1", "TOML"),
        ("a.yaml", "zero: [", "YAML"),
        ("a.json", "[]", "JSON"),
        ("b.yaml", "3", "YAML"),
    ] {
        let (result, path) = file(name, text);
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Parse { .. }));
        let error = error.to_string();
        assert!(error.starts_with(&format!("file {path} is not valid {format}: ")), "{error}");
    }
    let (result, _) = file("a.toml", "[zero]\nstage = 1\nstage = 2");
    let error = message(result);
    assert!(error.contains("line 3") && error.contains("duplicate key"), "{error}");
}
