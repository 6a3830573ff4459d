//! `burn:lion`.

use super::{Config, boxed};
use crate::specs;
use burn::optim::{Lion, LionConfig};
use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{Optimizer, OptionValue, Options, Result, StateSlot, inventory};

impl Config for LionConfig {
    type Optimizer = Lion;

    fn build_with(&self, weight_decay: f32) -> Lion {
        self.clone().with_weight_decay(weight_decay).build()
    }
}

inventory::submit! {
    Plugin {
        name: "burn:lion",
        description: "Burn's Lion",
        options: &[
            specs::decay("beta_1", || OptionValue::Float(0.9), "weight of the moment in the direction"),
            specs::decay("beta_2", || OptionValue::Float(0.99), "decay of the moment"),
            specs::amount(
                "weight_decay",
                || OptionValue::Float(0.0),
                "decoupled weight decay of parameters whose group sets none",
            ),
        ],
        build: Build::Optimizer(build),
    }
}

fn build(options: &Options) -> Result<Arc<dyn Optimizer>> {
    let config =
        LionConfig::new().with_beta_1(options.float("beta_1") as f32).with_beta_2(options.float("beta_2") as f32);
    boxed("burn:lion", config, options, const { &[StateSlot::f32("momentum")] }, &[])
}

#[cfg(test)]
mod tests {
    use super::super::testing::is_burns_own;
    use super::*;

    #[test]
    fn is_burns_own_lion() {
        is_burns_own("burn:lion", [], &LionConfig::new().build(), &["momentum"], &[]);
        let options = [
            ("beta_1", OptionValue::Float(0.8)),
            ("beta_2", OptionValue::Float(0.95)),
            ("weight_decay", OptionValue::Float(0.3)),
        ];
        let config = LionConfig::new().with_beta_1(0.8).with_beta_2(0.95).with_weight_decay(0.3);
        is_burns_own("burn:lion", options, &config.build(), &["momentum"], &[]);
    }
}
