//! `burn:rmsprop`.

use super::{Config, boxed, penalty};
use crate::specs;
use burn::optim::{RmsProp, RmsPropConfig};
use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{Optimizer, OptionValue, Options, Result, StateSlot, inventory};

const SQUARE_AVG: StateSlot = StateSlot::f32("square_avg.square_avg");
const GRAD_AVG: StateSlot = StateSlot::f32("centered.grad_avg");
// What the gradient is divided by the root of. Burn makes it anew in each step, and has it in its state all the same.
const AVG: StateSlot = StateSlot::f32("centered.avg");
const BUF: StateSlot = StateSlot::f32("momentum.buf");

/// In the order of Burn's.
fn slots(centered: bool, momentum: bool) -> &'static [StateSlot] {
    match (centered, momentum) {
        (false, false) => &[SQUARE_AVG, AVG],
        (false, true) => &[SQUARE_AVG, AVG, BUF],
        (true, false) => &[SQUARE_AVG, GRAD_AVG, AVG],
        (true, true) => &[SQUARE_AVG, GRAD_AVG, AVG, BUF],
    }
}

impl Config for RmsPropConfig {
    type Optimizer = RmsProp;

    fn build_with(&self, weight_decay: f32) -> RmsProp {
        self.clone().with_weight_decay(penalty(weight_decay)).build()
    }
}

inventory::submit! {
    Plugin {
        name: "burn:rmsprop",
        description: "Burn's RmsProp",
        options: &[
            specs::decay("alpha", || OptionValue::Float(0.99), "decay of the second moment"),
            specs::fraction("momentum", || OptionValue::Float(0.9), "decay of the momentum buffer; 0 keeps none"),
            specs::divisor("epsilon", || OptionValue::Float(1e-5), "added to the root of the second moment"),
            specs::flag("centered", "divide by the root of the variance instead"),
            specs::L2,
        ],
        build: Build::Optimizer(build),
    }
}

fn build(options: &Options) -> Result<Arc<dyn Optimizer>> {
    let momentum = options.float("momentum") as f32;
    let config = RmsPropConfig::new()
        .with_alpha(options.float("alpha") as f32)
        .with_momentum(momentum)
        .with_epsilon(options.float("epsilon") as f32)
        .with_centered(options.flag("centered"));
    boxed("burn:rmsprop", config, options, slots(options.flag("centered"), momentum > 0.0), &[])
}

#[cfg(test)]
mod tests {
    use super::super::testing::is_burns_own;
    use super::*;
    use burn::optim::decay::WeightDecayConfig;

    #[test]
    fn is_burns_own_rmsprop() {
        let names = ["square_avg.square_avg", "centered.avg", "momentum.buf"];
        is_burns_own("burn:rmsprop", [], &RmsPropConfig::new().build(), &names, &[]);
        let options = [
            ("alpha", OptionValue::Float(0.9)),
            ("momentum", OptionValue::Float(0.5)),
            ("epsilon", OptionValue::Float(1e-3)),
            ("centered", OptionValue::Bool(true)),
            ("weight_decay", OptionValue::Float(0.3)),
        ];
        let config = RmsPropConfig::new()
            .with_alpha(0.9)
            .with_momentum(0.5)
            .with_epsilon(1e-3)
            .with_centered(true)
            .with_weight_decay(Some(WeightDecayConfig::new(0.3)));
        let names = ["square_avg.square_avg", "centered.grad_avg", "centered.avg", "momentum.buf"];
        is_burns_own("burn:rmsprop", options, &config.build(), &names, &[]);
    }

    #[test]
    fn is_burns_own_rmsprop_without_momentum() {
        for centered in [false, true] {
            let options = [("momentum", OptionValue::Integer(0)), ("centered", OptionValue::Bool(centered))];
            let config = RmsPropConfig::new().with_momentum(0.0).with_centered(centered);
            let names = ["square_avg.square_avg", "centered.grad_avg", "centered.avg"];
            let names: Vec<_> = names.into_iter().filter(|name| centered || *name != "centered.grad_avg").collect();
            is_burns_own("burn:rmsprop", options, &config.build(), &names, &[]);
        }
    }
}
