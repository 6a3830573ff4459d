//! Keys that somebody set for this run and that do nothing in it.

use crate::{DataSource, Layer, LearningRateSchedule, LossScale, ModelName, Provenance, Settings};

/// A key that only matters where another one has certain values.
struct Dependent {
    keys: &'static [&'static str],
    /// The key that decides, and its value.
    on: fn(&Settings) -> (&'static str, String),
    matters: fn(&Settings) -> bool,
}

const DEPENDENT: &[Dependent] = &[
    Dependent {
        keys: &["learning_rate.end"],
        on: schedule,
        matters: |s| matches!(s.learning_rate.schedule, LearningRateSchedule::Linear | LearningRateSchedule::Cosine),
    },
    Dependent {
        keys: &["learning_rate.gamma"],
        on: schedule,
        matters: |s| matches!(s.learning_rate.schedule, LearningRateSchedule::Exponential | LearningRateSchedule::Step),
    },
    Dependent {
        keys: &["learning_rate.step_size"],
        on: schedule,
        matters: |s| s.learning_rate.schedule == LearningRateSchedule::Step,
    },
    Dependent {
        keys: &["learning_rate.pct_start", "learning_rate.div_factor", "learning_rate.final_div_factor"],
        on: schedule,
        matters: |s| s.learning_rate.schedule == LearningRateSchedule::OneCycle,
    },
    Dependent {
        keys: &["learning_rate.warmup"],
        on: |s| ("learning_rate.warmup_steps", s.learning_rate.warmup_steps.to_string()),
        matters: |s| s.learning_rate.warmup_steps > 0,
    },
    Dependent { keys: &["model.width_divisor"], on: model, matters: |s| s.model.name == ModelName::SeedNet },
    Dependent {
        keys: &["model.experts", "model.top_k", "model.capacity_factor", "model.load_balance"],
        on: model,
        matters: |s| s.model.name == ModelName::MoeLeNet,
    },
    Dependent {
        keys: &["precision.static_scale"],
        on: loss_scale,
        matters: |s| s.precision.effective_loss_scale() == LossScale::Static,
    },
    Dependent {
        keys: &[
            "precision.initial_scale_power",
            "precision.scale_window",
            "precision.hysteresis",
            "precision.consecutive_hysteresis",
            "precision.minimum_scale",
        ],
        on: loss_scale,
        matters: |s| s.precision.effective_loss_scale() == LossScale::Dynamic,
    },
    Dependent {
        keys: &["data.dir"],
        on: |s| ("data.source", s.data.source.to_string()),
        matters: |s| s.data.source != DataSource::Builtin,
    },
    Dependent {
        keys: &[
            "zero.reshard_after_forward",
            "zero.persistence_threshold",
            "schedule.pool_bytes",
            "schedule.prefetch_bytes",
        ],
        on: |s| ("zero.stage", s.zero.stage.to_string()),
        matters: |s| s.zero.stage == 3,
    },
    Dependent { keys: IN_BACKWARD, on: |s| ("zero.stage", s.zero.stage.to_string()), matters: |s| s.zero.stage >= 2 },
    Dependent {
        keys: IN_BACKWARD,
        on: |s| ("train.clip_norm", s.train.clip_norm.to_string()),
        matters: |s| s.train.clip_norm == 0.0,
    },
    Dependent { keys: IN_BACKWARD, on: loss_scale, matters: |s| s.precision.effective_loss_scale() == LossScale::None },
    Dependent { keys: IN_BACKWARD, on: |s| ("run.ranks", s.run.ranks.to_string()), matters: |s| s.run.ranks == 1 },
    Dependent {
        keys: IN_BACKWARD,
        on: |s| ("train.accumulation", s.train.accumulation.to_string()),
        matters: |s| s.train.accumulation == 1,
    },
];

const IN_BACKWARD: &[&str] = &["schedule.update_in_backward"];

fn schedule(settings: &Settings) -> (&'static str, String) {
    ("learning_rate.schedule", settings.learning_rate.schedule.to_string())
}

fn model(settings: &Settings) -> (&'static str, String) {
    ("model.name", settings.model.name.to_string())
}

fn loss_scale(settings: &Settings) -> (&'static str, String) {
    ("precision.loss_scale", settings.precision.effective_loss_scale().to_string())
}

impl Settings {
    /// A sentence for each key that the environment or the command line set and that has no effect in these settings.
    ///
    /// Files and profiles may set what is of use only with another override; what is typed for one run is meant.
    pub fn inert(&self, provenance: &Provenance) -> Vec<String> {
        let idle = DEPENDENT.iter().filter(|dependent| !(dependent.matters)(self));
        idle.flat_map(|dependent| dependent.keys.iter().map(|key| (*key, (dependent.on)(self))))
            .filter_map(|(key, (on, value))| match provenance.of(key)? {
                layer @ (Layer::Environment(_) | Layer::Set) => {
                    Some(format!("`{key}` (from {layer}) has no effect: `{on}` is {value}"))
                }
                _ => None,
            })
            .collect()
    }
}
