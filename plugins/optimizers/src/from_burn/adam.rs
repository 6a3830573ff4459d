//! `burn:adamw` and `burn:adam`.

use super::{Config, boxed, penalty};
use crate::specs;
use burn::optim::{Adam, AdamConfig, AdamW, AdamWConfig};
use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{Optimizer, OptionSpec, OptionValue, Options, Result, StateSlot, inventory};

const COUNTS: &[&str] = &["momentum.time"];

/// In the order of Burn's: with the running maximum if there is one.
fn slots(amsgrad: bool) -> &'static [StateSlot] {
    const SLOTS: &[StateSlot] = &[
        StateSlot::f32("momentum.moment_1"),
        StateSlot::f32("momentum.moment_2"),
        StateSlot::f32("momentum.max_moment_2"),
    ];
    if amsgrad { SLOTS } else { SLOTS.split_at(2).0 }
}

impl Config for AdamWConfig {
    type Optimizer = AdamW;

    fn build_with(&self, weight_decay: f32) -> AdamW {
        self.clone().with_weight_decay(weight_decay).build()
    }
}

impl Config for AdamConfig {
    type Optimizer = Adam;

    fn build_with(&self, weight_decay: f32) -> Adam {
        self.clone().with_weight_decay(penalty(weight_decay)).build()
    }
}

const BETA_1: OptionSpec = specs::decay("beta_1", || OptionValue::Float(0.9), "decay of the first moment");
const BETA_2: OptionSpec = specs::decay("beta_2", || OptionValue::Float(0.999), "decay of the second moment");
const EPSILON: OptionSpec =
    specs::divisor("epsilon", || OptionValue::Float(1e-5), "added to the root of the second moment");
const AMSGRAD: OptionSpec = specs::flag("amsgrad", "divide by the largest second moment so far");

inventory::submit! {
    Plugin {
        name: "burn:adamw",
        description: "Burn's AdamW",
        options: &[
            BETA_1,
            BETA_2,
            EPSILON,
            specs::amount(
                "weight_decay",
                || OptionValue::Float(1e-4),
                "decoupled weight decay of parameters whose group sets none",
            ),
            specs::flag("cautious_weight_decay", "decay only where the step goes the same way"),
            AMSGRAD,
        ],
        build: Build::Optimizer(adamw),
    }
}

inventory::submit! {
    Plugin {
        name: "burn:adam",
        description: "Burn's Adam",
        options: &[BETA_1, BETA_2, EPSILON, specs::L2, AMSGRAD],
        build: Build::Optimizer(adam),
    }
}

fn adamw(options: &Options) -> Result<Arc<dyn Optimizer>> {
    let config = AdamWConfig::new()
        .with_beta_1(options.float("beta_1") as f32)
        .with_beta_2(options.float("beta_2") as f32)
        .with_epsilon(options.float("epsilon") as f32)
        .with_cautious_weight_decay(options.flag("cautious_weight_decay"))
        .with_amsgrad(options.flag("amsgrad"));
    boxed("burn:adamw", config, options, slots(options.flag("amsgrad")), COUNTS)
}

fn adam(options: &Options) -> Result<Arc<dyn Optimizer>> {
    let config = AdamConfig::new()
        .with_beta_1(options.float("beta_1") as f32)
        .with_beta_2(options.float("beta_2") as f32)
        .with_epsilon(options.float("epsilon") as f32)
        .with_amsgrad(options.flag("amsgrad"));
    boxed("burn:adam", config, options, slots(options.flag("amsgrad")), COUNTS)
}

#[cfg(test)]
mod tests {
    use super::super::testing::is_burns_own;
    use super::*;
    use burn::optim::decay::WeightDecayConfig;

    #[test]
    fn adamw_is_burns_own() {
        let moments = ["momentum.moment_1", "momentum.moment_2"];
        is_burns_own("burn:adamw", [], &AdamWConfig::new().build(), &moments, COUNTS);
        let options = [
            ("beta_1", OptionValue::Float(0.8)),
            ("beta_2", OptionValue::Float(0.95)),
            ("epsilon", OptionValue::Float(1e-3)),
            ("weight_decay", OptionValue::Float(0.3)),
            ("cautious_weight_decay", OptionValue::Bool(true)),
            ("amsgrad", OptionValue::Bool(true)),
        ];
        let config = AdamWConfig::new()
            .with_beta_1(0.8)
            .with_beta_2(0.95)
            .with_epsilon(1e-3)
            .with_weight_decay(0.3)
            .with_cautious_weight_decay(true)
            .with_amsgrad(true);
        let moments = ["momentum.moment_1", "momentum.moment_2", "momentum.max_moment_2"];
        is_burns_own("burn:adamw", options, &config.build(), &moments, COUNTS);
    }

    #[test]
    fn adam_is_burns_own() {
        let moments = ["momentum.moment_1", "momentum.moment_2"];
        is_burns_own("burn:adam", [], &AdamConfig::new().build(), &moments, COUNTS);
        let options = [
            ("beta_1", OptionValue::Float(0.8)),
            ("beta_2", OptionValue::Float(0.95)),
            ("epsilon", OptionValue::Float(1e-3)),
            ("weight_decay", OptionValue::Float(0.3)),
            ("amsgrad", OptionValue::Bool(true)),
        ];
        let config = AdamConfig::new()
            .with_beta_1(0.8)
            .with_beta_2(0.95)
            .with_epsilon(1e-3)
            .with_weight_decay(Some(WeightDecayConfig::new(0.3)))
            .with_amsgrad(true);
        let moments = ["momentum.moment_1", "momentum.moment_2", "momentum.max_moment_2"];
        is_burns_own("burn:adam", options, &config.build(), &moments, COUNTS);
    }
}
