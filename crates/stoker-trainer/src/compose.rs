//! What a configuration says, in the terms of the layers below.

use crate::{Error, Rank, Result};
use std::sync::Arc;
use stoker_burn::{DeviceSettings, ParameterGroup, ParameterRules};
use stoker_config::{Backend, Checkpointing, Compute, Gradients, Group, RunningStatistics, Settings};
use stoker_core::registry::{self, TargetContext};
use stoker_core::{Communicator, DType};
use stoker_engine::{Clipping, DynamicLossScale, LossScale, Plugins, Stage};

/// A rank with the plugins and the settings of the configuration.
pub(crate) fn rank_of(settings: &Settings, rank: usize, communicator: Arc<dyn Communicator>) -> Result<Rank> {
    let device = device(settings);
    let memory = match device.backend {
        stoker_burn::Backend::LibTorchCuda => device.memory(rank)?,
        stoker_burn::Backend::Flex | stoker_burn::Backend::LibTorch => None,
    };
    let host_memory_is_given = settings.host.memory_limit > 0;
    let context = TargetContext { rank, device: memory, host_memory_is_given };
    let plugins = Plugins {
        partitioner: registry::partitioner(&settings.partitioner.name, &settings.partitioner.options)?,
        target: registry::offload_target(&settings.offload.name, &settings.offload.options, &context)?,
        optimizer: registry::optimizer(&settings.optimizer.choice.name, &settings.optimizer.choice.options)?,
        communicator,
    };
    let burn = stoker_burn::Rank::new(engine(settings)?, device, plugins, settings.run.seed)?
        .with_parameter_rules(rules(settings))
        .with_running_statistics(match settings.model.running_statistics {
            RunningStatistics::BroadcastFromFirst => stoker_burn::RunningStatistics::BroadcastFromFirst,
            RunningStatistics::Local => stoker_burn::RunningStatistics::Local,
        });
    Ok(Rank::new(burn, settings.clone()))
}

fn device(Settings { device, schedule, precision, .. }: &Settings) -> DeviceSettings {
    DeviceSettings {
        backend: match device.backend {
            Backend::Flex => stoker_burn::Backend::Flex,
            Backend::LibTorch => stoker_burn::Backend::LibTorch,
            Backend::LibTorchCuda => stoker_burn::Backend::LibTorchCuda,
        },
        checkpointing: match schedule.checkpointing {
            Checkpointing::None => stoker_burn::Checkpointing::None,
            Checkpointing::Balanced => stoker_burn::Checkpointing::Balanced,
        },
        copy_below: schedule.copy_below,
        compute: match precision.compute {
            Compute::F32 => DType::F32,
            Compute::Bf16 => DType::BF16,
            Compute::F16 => DType::F16,
        },
    }
}

fn rules(Settings { parameters, groups, .. }: &Settings) -> ParameterRules {
    let group = |(name, group): (&String, &Group)| {
        let Group { patterns, learning_rate_scale, weight_decay, frozen } = group.clone();
        ParameterGroup { name: name.clone(), patterns, learning_rate_scale, weight_decay, frozen }
    };
    ParameterRules { groups: groups.iter().map(group).collect(), decay_vectors: parameters.decay_vectors }
}

fn engine(settings: &Settings) -> Result<stoker_engine::Settings> {
    let Settings { run, train, precision, device, host, zero, schedule, .. } = settings;
    let stage = Stage::from_number(zero.stage).ok_or_else(|| Error::Setting {
        key: "zero.stage",
        found: zero.stage.to_string(),
        wanted: "0, 1, 2 or 3".to_owned(),
    })?;
    let limit = |bytes: u64| (bytes > 0).then_some(bytes);
    Ok(stoker_engine::Settings {
        stage,
        overlap: schedule.overlap,
        update_in_backward: schedule.update_in_backward,
        pool_bytes: schedule.pool_bytes,
        prefetch_bytes: schedule.prefetch_bytes,
        bucket_bytes: schedule.bucket_bytes,
        persistence_threshold: zero.persistence_threshold,
        reshard_after_forward: zero.reshard_after_forward,
        // A rank has a device of its own, but all ranks of this process have one host. Without a limit the offload
        // target asks the machine.
        device_memory_limit: limit(device.memory_limit),
        host_memory_limit: limit(host.memory_limit).map(|bytes| bytes / run.ranks.max(1) as u64),
        gradients: match precision.gradients {
            Gradients::F32 => Some(DType::F32),
            Gradients::Compute => None,
        },
        loss_scale: match precision.effective_loss_scale() {
            stoker_config::LossScale::Static => LossScale::Static(precision.static_scale),
            stoker_config::LossScale::Dynamic => LossScale::Dynamic(DynamicLossScale {
                initial_power: precision.initial_scale_power,
                window: precision.scale_window,
                hysteresis: precision.hysteresis,
                consecutive_hysteresis: precision.consecutive_hysteresis,
                minimum: precision.minimum_scale,
            }),
            stoker_config::LossScale::Auto | stoker_config::LossScale::None => LossScale::None,
        },
        update_threads: settings.update_threads(),
        max_consecutive_skips: precision.max_consecutive_skips,
        // The configuration allows one of them only.
        clipping: match (train.clip_norm, train.clip_value) {
            (norm, _) if norm > 0.0 => Clipping::Norm(norm),
            (_, value) if value > 0.0 => Clipping::Value(value),
            _ => Clipping::None,
        },
        timeout: run.timeout(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoker_cpu_offload as _;
    use stoker_optimizers as _;
    use stoker_partitioners as _;
    use stoker_threads as _;

    fn settings(overrides: &[&str]) -> Settings {
        let overrides = overrides.iter().map(|&text| text.to_owned()).collect();
        Settings::load(&stoker_config::Sources { overrides, ..Default::default() }).unwrap().0
    }

    #[test]
    fn settings_of_a_rank_reach_the_engine() {
        let settings = settings(&[
            "run.ranks=2",
            "host.memory_limit=4 MiB",
            "device.memory_limit=1 MiB",
            "zero.stage=2",
            "schedule.bucket_bytes=8",
        ]);
        let engine = engine(&settings).unwrap();
        assert_eq!(engine.stage, Stage::Two);
        assert_eq!((engine.device_memory_limit, engine.host_memory_limit), (Some(1 << 20), Some(2 << 20)));
        assert_eq!(engine.bucket_bytes, 8);
        let mut wrong = settings;
        wrong.zero.stage = 7;
        let error = super::engine(&wrong).unwrap_err().to_string();
        assert_eq!(error, "zero.stage is 7; allowed: 0, 1, 2 or 3");
    }

    #[test]
    fn precision_reaches_the_engine_and_the_device() {
        let plain = settings(&[]);
        let of_plain = engine(&plain).unwrap();
        assert_eq!((of_plain.gradients, of_plain.loss_scale), (Some(DType::F32), LossScale::None));
        assert_eq!((of_plain.max_consecutive_skips, device(&plain).compute), (50, DType::F32));

        let half = settings(&["precision={compute=\"f16\", gradients=\"compute\", max_consecutive_skips=7}"]);
        let of_half = engine(&half).unwrap();
        assert_eq!(of_half.gradients, None);
        // The engine's defaults are those of the configuration.
        assert_eq!(of_half.loss_scale, LossScale::Dynamic(DynamicLossScale::default()));
        assert_eq!((of_half.max_consecutive_skips, device(&half).compute), (7, DType::F16));

        let scale = |keys: &str| {
            let settings = settings(&[&format!("precision={{{keys}}}")]);
            (engine(&settings).unwrap().loss_scale, device(&settings).compute)
        };
        assert_eq!(scale("compute=\"bf16\""), (LossScale::None, DType::BF16));
        assert_eq!(scale("compute=\"f16\", loss_scale=\"none\""), (LossScale::None, DType::F16));
        assert_eq!(scale("loss_scale=\"static\", static_scale=8"), (LossScale::Static(8.0), DType::F32));
        let keys = "loss_scale=\"dynamic\", initial_scale_power=4, scale_window=5, hysteresis=6, \
                    consecutive_hysteresis=true, minimum_scale=0.5";
        let wanted =
            DynamicLossScale { initial_power: 4, window: 5, hysteresis: 6, consecutive_hysteresis: true, minimum: 0.5 };
        assert_eq!(scale(keys), (LossScale::Dynamic(wanted), DType::F32));
    }

    #[test]
    fn a_gradient_is_clipped_one_way() {
        let clipping = |keys: &[&str]| engine(&settings(keys)).unwrap().clipping;
        assert_eq!(clipping(&[]), Clipping::None);
        assert_eq!(clipping(&["train.clip_norm=0.5"]), Clipping::Norm(0.5));
        assert_eq!(clipping(&["train.clip_value=2"]), Clipping::Value(2.0));
    }

    #[test]
    fn groups_are_rules() {
        assert_eq!(rules(&settings(&[])), ParameterRules::default());
        let settings = settings(&[
            "parameters.decay_vectors=false",
            "groups.b={match=[\"*.bias\", \"x\"], weight_decay=0.5}",
            "groups.a={match=\"fc1.*\", learning_rate_scale=0.25, frozen=true}",
        ]);
        let group = |name: &str, patterns: &[&str], learning_rate_scale, weight_decay, frozen| ParameterGroup {
            name: name.to_owned(),
            patterns: patterns.iter().map(|&pattern| pattern.to_owned()).collect(),
            learning_rate_scale,
            weight_decay,
            frozen,
        };
        let groups =
            vec![group("a", &["fc1.*"], 0.25, None, true), group("b", &["*.bias", "x"], 1.0, Some(0.5), false)];
        assert_eq!(rules(&settings), ParameterRules { groups, decay_vectors: false });
    }
}
