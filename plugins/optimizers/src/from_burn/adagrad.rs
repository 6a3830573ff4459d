//! `burn:adagrad`.

use super::{Config, boxed, penalty};
use crate::specs;
use burn::optim::{AdaGrad, AdaGradConfig};
use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{Optimizer, OptionValue, Options, Result, StateSlot, inventory};

const COUNTS: &[&str] = &["lr_decay.time"];

impl Config for AdaGradConfig {
    type Optimizer = AdaGrad;

    fn build_with(&self, weight_decay: f32) -> AdaGrad {
        self.clone().with_weight_decay(penalty(weight_decay)).build()
    }
}

inventory::submit! {
    Plugin {
        name: "burn:adagrad",
        description: "Burn's AdaGrad",
        options: &[
            specs::amount(
                "lr_decay",
                || OptionValue::Float(0.0),
                "update t has the learning rate divided by 1 + (t - 1) * lr_decay",
            ),
            specs::divisor("epsilon", || OptionValue::Float(1e-5), "added to the root of the sum of squares"),
            specs::L2,
        ],
        build: Build::Optimizer(build),
    }
}

fn build(options: &Options) -> Result<Arc<dyn Optimizer>> {
    let config =
        AdaGradConfig::new().with_lr_decay(options.float("lr_decay")).with_epsilon(options.float("epsilon") as f32);
    boxed("burn:adagrad", config, options, const { &[StateSlot::f32("lr_decay.sum")] }, COUNTS)
}

#[cfg(test)]
mod tests {
    use super::super::testing::is_burns_own;
    use super::*;
    use burn::optim::decay::WeightDecayConfig;

    #[test]
    fn is_burns_own_adagrad() {
        is_burns_own("burn:adagrad", [], &AdaGradConfig::new().build(), &["lr_decay.sum"], COUNTS);
        let options = [
            ("lr_decay", OptionValue::Float(0.1)),
            ("epsilon", OptionValue::Float(1e-3)),
            ("weight_decay", OptionValue::Float(0.3)),
        ];
        let config = AdaGradConfig::new()
            .with_lr_decay(0.1)
            .with_epsilon(1e-3)
            .with_weight_decay(Some(WeightDecayConfig::new(0.3)));
        is_burns_own("burn:adagrad", options, &config.build(), &["lr_decay.sum"], COUNTS);
    }
}
