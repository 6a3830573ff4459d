//! `burn:adan`.

use super::{Config, boxed};
use crate::specs;
use burn::optim::{Adan, AdanConfig};
use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{Optimizer, OptionValue, Options, Result, StateSlot, inventory};

const SLOTS: &[StateSlot] = &[
    StateSlot::f32("momentum.exp_avg"),
    StateSlot::f32("momentum.exp_avg_sq"),
    StateSlot::f32("momentum.exp_avg_diff"),
    StateSlot::f32("momentum.neg_pre_grad"),
];
const COUNTS: &[&str] = &["momentum.time"];

impl Config for AdanConfig {
    type Optimizer = Adan;

    fn build_with(&self, weight_decay: f32) -> Adan {
        self.clone().with_weight_decay(weight_decay).build()
    }
}

inventory::submit! {
    Plugin {
        name: "burn:adan",
        description: "Burn's Adan",
        options: &[
            specs::decay("beta_1", || OptionValue::Float(0.98), "decay of the first moment"),
            specs::decay("beta_2", || OptionValue::Float(0.92), "decay of the moment of gradients' differences"),
            specs::decay("beta_3", || OptionValue::Float(0.99), "decay of the second moment"),
            specs::divisor("epsilon", || OptionValue::Float(1e-8), "added to the root of the second moment"),
            specs::amount("weight_decay", || OptionValue::Float(0.0), "weight decay of parameters whose group sets none"),
            specs::flag("no_prox", "decay before the step instead of after it"),
        ],
        build: Build::Optimizer(build),
    }
}

fn build(options: &Options) -> Result<Arc<dyn Optimizer>> {
    let config = AdanConfig::new()
        .with_beta_1(options.float("beta_1") as f32)
        .with_beta_2(options.float("beta_2") as f32)
        .with_beta_3(options.float("beta_3") as f32)
        .with_epsilon(options.float("epsilon") as f32)
        .with_no_prox(options.flag("no_prox"));
    boxed("burn:adan", config, options, SLOTS, COUNTS)
}

#[cfg(test)]
mod tests {
    use super::super::testing::is_burns_own;
    use super::*;

    #[test]
    fn is_burns_own_adan() {
        let names = ["momentum.exp_avg", "momentum.exp_avg_sq", "momentum.exp_avg_diff", "momentum.neg_pre_grad"];
        is_burns_own("burn:adan", [], &AdanConfig::new().build(), &names, COUNTS);
        let options = [
            ("beta_1", OptionValue::Float(0.9)),
            ("beta_2", OptionValue::Float(0.8)),
            ("beta_3", OptionValue::Float(0.95)),
            ("epsilon", OptionValue::Float(1e-3)),
            ("weight_decay", OptionValue::Float(0.3)),
            ("no_prox", OptionValue::Bool(true)),
        ];
        let config = AdanConfig::new()
            .with_beta_1(0.9)
            .with_beta_2(0.8)
            .with_beta_3(0.95)
            .with_epsilon(1e-3)
            .with_weight_decay(0.3)
            .with_no_prox(true);
        is_burns_own("burn:adan", options, &config.build(), &names, COUNTS);
        let options = [("weight_decay", OptionValue::Float(0.3))];
        let config = AdanConfig::new().with_weight_decay(0.3);
        is_burns_own("burn:adan", options, &config.build(), &names, COUNTS);
    }
}
