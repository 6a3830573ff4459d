//! What wins over what, and what each source can say.

use super::{configs, environment, file, set};
use std::time::Duration;
use stoker_config::{
    Backend, Checkpointing, Compute, DataSource, Gradients, LearningRate, LearningRateSchedule, LossScale, Model,
    ModelName, Precision, RunningStatistics, Settings, Sources, Train, Warmup, profiles,
};
use stoker_core::OptionValue;
use stoker_core::registry::Kind;

#[test]
fn defaults_are_as_documented() {
    let (settings, provenance) = Settings::load(&Sources::default()).unwrap();
    assert_eq!((settings.run.seed, settings.run.ranks), (42, 1));
    assert_eq!(settings.run.timeout(), Duration::from_secs(60));
    assert_eq!((settings.model.name, settings.model.width_divisor), (ModelName::LeNet, 1));
    assert_eq!((settings.data.source, settings.data.dir.as_os_str().len()), (DataSource::Auto, 0));
    assert_eq!((settings.data.train_records, settings.data.valid_records), (0, 0));
    assert_eq!((settings.train.epochs, settings.train.batch_size, settings.train.max_steps), (1, 64, 0));
    assert_eq!(settings.learning_rate.schedule, LearningRateSchedule::Constant);
    assert_eq!((settings.learning_rate.base, settings.learning_rate.end), (1e-3, 0.0));
    assert_eq!((settings.learning_rate.gamma, settings.learning_rate.step_size), (1.0, 0));
    let LearningRate { pct_start, div_factor, final_div_factor, .. } = settings.learning_rate;
    assert_eq!((pct_start, div_factor, final_div_factor), (0.3, 25.0, 1e4));
    assert_eq!((settings.learning_rate.warmup, settings.learning_rate.warmup_steps), (Warmup::Linear, 0));
    let Train { accumulation, clip_norm, clip_value, .. } = settings.train;
    assert_eq!((accumulation, clip_norm, clip_value), (1, 0.0, 0.0));
    let Model { experts, top_k, capacity_factor, load_balance, running_statistics, .. } = settings.model;
    assert_eq!((experts, top_k, capacity_factor, load_balance), (4, 1, 1.25, 0.01));
    assert_eq!(running_statistics, RunningStatistics::BroadcastFromFirst);
    let precision = Precision {
        compute: Compute::F32,
        gradients: Gradients::F32,
        loss_scale: LossScale::Auto,
        static_scale: 1024.0,
        initial_scale_power: 16,
        scale_window: 1000,
        hysteresis: 2,
        consecutive_hysteresis: false,
        minimum_scale: 1.0,
        max_consecutive_skips: 50,
    };
    assert_eq!(settings.precision, precision);
    assert_eq!((settings.device.backend, settings.device.memory_limit), (Backend::Flex, 0));
    assert_eq!(settings.host.memory_limit, 0);
    assert_eq!((settings.zero.stage, settings.zero.persistence_threshold), (3, 0));
    assert!(settings.zero.reshard_after_forward && settings.schedule.overlap);
    assert_eq!((settings.schedule.pool_bytes, settings.schedule.prefetch_bytes), (256 << 20, 64 << 20));
    assert_eq!((settings.schedule.bucket_bytes, settings.schedule.copy_below), (64 << 20, 256 << 10));
    assert_eq!(settings.schedule.checkpointing, Checkpointing::None);
    assert_eq!(Kind::ALL.map(|kind| settings.choice(kind).name.as_str()), ["flat", "cpu-offload", "threads", "adamw"]);
    assert_eq!(settings.micro_batch(), 64);
    assert!(
        provenance.iter().all(|(key, layer)| {
            let wanted = if key.split('.').count() == 3 { "default of " } else { "default" };
            layer.to_string().starts_with(wanted)
        }),
        "{provenance:?}"
    );
}

#[test]
fn every_layer_hides_those_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    let default =
        write("default.toml", "run.ranks = 2\nrun.seed = 2\ntrain.epochs = 2\ntrain.max_steps = 2\nzero.stage = 0");
    let mine = write("profiles/mine.toml", "run.seed = 3\ntrain.epochs = 3\ntrain.max_steps = 3\nzero.stage = 1");
    let file = write("run.toml", "train.epochs = 4\ntrain.max_steps = 4\nzero.stage = 1");
    let sources = Sources {
        configs_dir: Some(dir.path().to_owned()),
        profile: Some("mine".to_owned()),
        file: Some(file.clone()),
        environment: vec![
            ("STOKER__TRAIN__MAX_STEPS".to_owned(), "5".to_owned()),
            ("STOKER__ZERO__STAGE".to_owned(), "1".to_owned()),
            ("STOKER_LOG".to_owned(), "debug".to_owned()),
        ],
        overrides: vec!["zero.stage=1".to_owned(), "zero.stage=2".to_owned()],
    };
    let (settings, provenance) = Settings::load(&sources).unwrap();
    assert_eq!((settings.train.batch_size, settings.run.ranks, settings.run.seed), (64, 2, 3));
    assert_eq!((settings.train.epochs, settings.train.max_steps, settings.zero.stage), (4, 5, 2));
    for (key, wanted) in [
        ("train.batch_size", "default".to_owned()),
        ("run.ranks", format!("file {}", default.display())),
        ("run.seed", format!("profile mine, {}", mine.display())),
        ("train.epochs", format!("file {}", file.display())),
        ("train.max_steps", "environment STOKER__TRAIN__MAX_STEPS".to_owned()),
        ("zero.stage", "--set".to_owned()),
        ("optimizer.adamw.eps", "default of optimizer adamw".to_owned()),
    ] {
        assert_eq!(provenance.of(key).unwrap().to_string(), wanted, "{key}");
    }
    assert_eq!(provenance.of("zero.stages"), None);
}

#[test]
fn shipped_profiles_load() {
    assert_eq!(profiles(None).unwrap(), ["gpu-only", "no-offload", "offload"]);
    for (name, ranks, stage, offload) in
        [("offload", 2, 3, "cpu-offload"), ("no-offload", 1, 0, "gpu-only"), ("gpu-only", 2, 3, "gpu-only")]
    {
        let built_in = Settings::profile(name).unwrap();
        assert_eq!((built_in.run.ranks, built_in.zero.stage, built_in.offload.name.as_str()), (ranks, stage, offload));
        assert_eq!((built_in.model.name, built_in.data.source), (ModelName::SeedNet, DataSource::Auto));
        let sources = Sources { configs_dir: Some(configs()), profile: Some(name.to_owned()), ..Sources::default() };
        assert_eq!(Settings::load(&sources).unwrap().0, built_in, "the file and what is built in");
    }
}

fn recipe(name: &str) -> Settings {
    let sources = Sources { file: Some(configs().join("recipes").join(name)), ..Sources::default() };
    Settings::load(&sources).unwrap().0
}

#[test]
fn shipped_recipes_load() {
    let settings = recipe("cifar10-lenet.toml");
    assert_eq!((settings.model.name, settings.data.source), (ModelName::LeNet, DataSource::Cifar10));
    assert_eq!(settings.learning_rate.schedule, LearningRateSchedule::Linear);
    assert_eq!(settings.micro_batch() * settings.run.ranks, settings.train.batch_size);

    let settings = recipe("bf16-large-batch.toml");
    assert_eq!((settings.precision.compute, settings.train.clip_norm), (Compute::Bf16, 1.0));
    assert_eq!(settings.precision.effective_loss_scale(), LossScale::None);
    assert_eq!(settings.learning_rate.schedule, LearningRateSchedule::Cosine);
    assert!(settings.learning_rate.warmup_steps > 0);
    assert_eq!(settings.groups.keys().collect::<Vec<_>>(), ["head"]);
    assert_eq!(settings.micro_batch() * settings.run.ranks * settings.train.accumulation, settings.train.batch_size);
}

#[test]
fn the_loss_is_scaled_where_f16_computes_or_somebody_says_so() {
    for (keys, wanted) in [
        ("compute=\"f16\"", LossScale::Dynamic),
        ("compute=\"bf16\"", LossScale::None),
        ("compute=\"f32\", loss_scale=\"dynamic\"", LossScale::Dynamic),
        ("compute=\"f16\", loss_scale=\"none\"", LossScale::None),
        ("compute=\"f16\", loss_scale=\"static\"", LossScale::Static),
    ] {
        let (settings, _) = set(&[&format!("precision={{{keys}}}")]).unwrap();
        assert_eq!(settings.precision.effective_loss_scale(), wanted, "{keys}");
    }
}

#[test]
fn a_batch_is_shared_by_ranks_and_micro_batches() {
    let (settings, _) = set(&["run.ranks=2", "train.accumulation=4", "train.batch_size=24"]).unwrap();
    assert_eq!(settings.micro_batch(), 3);
}

#[test]
fn a_directory_replaces_and_adds_profiles() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("profiles")).unwrap();
    std::fs::write(dir.path().join("profiles/offload.toml"), "[run]\nseed = 7").unwrap();
    std::fs::write(dir.path().join("profiles/tiny.toml"), "[run]\nseed = 8").unwrap();
    std::fs::write(dir.path().join("profiles/README.md"), "no profile").unwrap();
    assert_eq!(profiles(Some(dir.path())).unwrap(), ["gpu-only", "no-offload", "offload", "tiny"]);
    for (name, seed) in [("offload", 7), ("tiny", 8)] {
        let configs_dir = Some(dir.path().to_owned());
        let sources = Sources { configs_dir, profile: Some(name.to_owned()), ..Sources::default() };
        let (settings, _) = Settings::load(&sources).unwrap();
        assert_eq!((settings.run.seed, settings.run.ranks), (seed, 1));
    }
}

#[test]
fn a_file_is_toml_yaml_or_json() {
    for (name, text) in [
        ("a.toml", "[zero]\nstage = 1\n[schedule]\npool_bytes = \"1 KiB\"\n[optimizer.adamw]\nbetas = [0, 0.5]"),
        (
            "a.yaml",
            "zero:\n  stage: 1\nschedule:\n  pool_bytes: 1 KiB\noptimizer:\n  adamw:\n    betas: [0, 0.5]\nrun:\n",
        ),
        ("a.YML", "zero: {stage: 1}\nschedule: {pool_bytes: 1024}\noptimizer: {adamw: {betas: [0, 0.5]}}"),
        (
            "a.json",
            r#"{"zero": {"stage": 1.0}, "schedule": {"pool_bytes": 1024}, "optimizer": {"adamw": {"betas": [0, 0.5]}}, "run": {}}"#,
        ),
    ] {
        let (settings, _) = file(name, text).0.unwrap();
        assert_eq!((settings.zero.stage, settings.schedule.pool_bytes), (1, 1024), "{name}");
        let betas = OptionValue::List(vec![OptionValue::Integer(0), OptionValue::Float(0.5)]);
        assert_eq!(settings.optimizer.choice.options.get("betas"), Some(&betas), "{name}");
    }
}

#[test]
fn options_are_those_of_the_chosen_plugin() {
    let (settings, provenance) =
        set(&["optimizer.sgd.momentum=0.9", "optimizer.adamw={eps=1e-6}", "optimizer.name=sgd"]).unwrap();
    assert_eq!(settings.optimizer.choice.name, "sgd");
    let names: Vec<_> = settings.optimizer.choice.options.keys().collect();
    assert_eq!(names, ["momentum"]);
    assert_eq!(provenance.of("optimizer.adamw.eps"), None);
    let (settings, _) = set(&["optimizer.adamw={eps=1e-6}"]).unwrap();
    assert_eq!(settings.optimizer.choice.options.get("eps"), Some(&OptionValue::Float(1e-6)));
    assert_eq!(settings.optimizer.choice.options.len(), 3);
}

#[test]
fn the_environment_spells_names_its_way() {
    let (settings, provenance) = environment(&[
        ("STOKER__OPTIMIZER__ADAMW__EPS", "1e-3"),
        ("STOKER__OPTIMIZER__ADAMW__BETAS", "[0.8, 0.9]"),
        ("STOKER__OFFLOAD__CPU_OFFLOAD__PIN_MEMORY", "true"),
        ("STOKER__DEVICE__MEMORY_LIMIT", "64 MiB"),
    ])
    .unwrap();
    assert_eq!(settings.optimizer.choice.options.get("eps"), Some(&OptionValue::Float(1e-3)));
    assert_eq!(settings.offload.options.get("pin-memory"), Some(&OptionValue::Bool(true)));
    assert_eq!(settings.device.memory_limit, 64 << 20);
    let layer = provenance.of("offload.cpu-offload.pin-memory").unwrap();
    assert_eq!(layer.to_string(), "environment STOKER__OFFLOAD__CPU_OFFLOAD__PIN_MEMORY");
}

#[test]
fn what_is_typed_stays_text_where_text_is_wanted() {
    for (given, wanted) in
        [("2026", "2026"), ("\"a b\"", "a b"), ("~/data", "~/data"), ("1.50", "1.50"), ("a=b", "a=b")]
    {
        let (settings, _) = set(&[&format!("data.dir={given}")]).unwrap();
        assert_eq!(settings.data.dir.to_str(), Some(wanted));
    }
    let error = set(&["data={dir=2026}"]).unwrap_err().to_string();
    assert_eq!(error, "`data.dir` is 2026 (from --set); allowed: text");
}

#[test]
fn a_plugin_that_is_not_chosen_need_not_exist() {
    let (result, _) = file("a.toml", "optimizer.name = \"elsewhere\"");
    assert!(result.is_err());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    std::fs::write(&path, "optimizer.name = \"elsewhere\"").unwrap();
    let overrides = vec!["optimizer.name=sgd".to_owned()];
    let (settings, _) = Settings::load(&Sources { file: Some(path), overrides, ..Sources::default() }).unwrap();
    assert_eq!(settings.optimizer.choice.name, "sgd");
}
