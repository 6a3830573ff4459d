//! Keys without an effect are told, if they were typed for this run.

use super::{environment, file, set};
use stoker_config::{Settings, Sources};

#[test]
fn what_is_typed_and_does_nothing_is_told() {
    let (settings, provenance) = set(&[
        "learning_rate.gamma=0.5",
        "model.experts=8",
        "zero.stage=2",
        "schedule.pool_bytes=0",
        "precision={compute=\"f16\", static_scale=8, hysteresis=1}",
    ])
    .unwrap();
    assert_eq!(
        settings.inert(&provenance),
        [
            "`learning_rate.gamma` (from --set) has no effect: `learning_rate.schedule` is constant",
            "`model.experts` (from --set) has no effect: `model.name` is lenet",
            "`precision.static_scale` (from --set) has no effect: `precision.loss_scale` is dynamic",
            "`schedule.pool_bytes` (from --set) has no effect: `zero.stage` is 2",
        ]
    );
    let (settings, provenance) = environment(&[("STOKER__LEARNING_RATE__WARMUP", "logarithmic")]).unwrap();
    let wanted = "`learning_rate.warmup` (from environment STOKER__LEARNING_RATE__WARMUP) has no effect: \
                  `learning_rate.warmup_steps` is 0";
    assert_eq!(settings.inert(&provenance), [wanted]);
}

#[test]
fn what_does_something_or_was_not_typed_is_not_told() {
    let typed = ["schedule=step", "gamma=0.5", "step_size=2", "warmup_steps=1", "warmup=logarithmic"];
    let overrides = typed.map(|key| format!("learning_rate.{key}")).to_vec();
    let (settings, provenance) = Settings::load(&Sources { overrides, ..Sources::default() }).unwrap();
    assert_eq!(settings.inert(&provenance), [""; 0]);
    let (settings, provenance) = file("a.toml", "learning_rate.end = 1e-4").0.unwrap();
    assert_eq!(settings.inert(&provenance), [""; 0]);
}

#[test]
fn every_key_that_may_do_nothing_exists() {
    // With every choice that makes keys idle, all of them are told: a name with a slip in it would be missing.
    let keys = [
        "learning_rate.end=0",
        "learning_rate.gamma=1",
        "learning_rate.step_size=0",
        "learning_rate.pct_start=0.3",
        "learning_rate.div_factor=25",
        "learning_rate.final_div_factor=1e4",
        "learning_rate.warmup=linear",
        "model.width_divisor=1",
        "model.experts=4",
        "model.top_k=1",
        "model.capacity_factor=1",
        "model.load_balance=0",
        "precision.static_scale=1",
        "precision.initial_scale_power=16",
        "precision.scale_window=1",
        "precision.hysteresis=1",
        "precision.consecutive_hysteresis=true",
        "precision.minimum_scale=1",
        "data.dir=x",
        "zero.reshard_after_forward=true",
        "zero.persistence_threshold=0",
        "schedule.pool_bytes=1",
        "schedule.prefetch_bytes=0",
    ];
    let idle = [&keys[..], &["data.source=builtin", "zero.stage=1"]].concat();
    let (settings, provenance) = set(&idle).unwrap();
    assert_eq!(settings.inert(&provenance).len(), keys.len());
}
