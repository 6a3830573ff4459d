//! `burn:sgd`.

use super::{Config, boxed, penalty};
use crate::specs;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{Sgd, SgdConfig};
use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{Error, Optimizer, OptionValue, Options, Result, StateSlot, inventory};

impl Config for SgdConfig {
    type Optimizer = Sgd;

    fn build_with(&self, weight_decay: f32) -> Sgd {
        self.clone().with_weight_decay(penalty(weight_decay)).build()
    }
}

inventory::submit! {
    Plugin {
        name: "burn:sgd",
        description: "Burn's Sgd",
        options: &[
            specs::fraction("momentum", || OptionValue::Float(0.0), "decay of the velocity; 0 keeps none"),
            specs::fraction(
                "dampening",
                || OptionValue::Float(0.1),
                "how much less of the gradient enters the velocity, from the second update on",
            ),
            specs::flag("nesterov", "step ahead by the velocity; wants momentum"),
            specs::L2,
        ],
        build: Build::Optimizer(build),
    }
}

fn build(options: &Options) -> Result<Arc<dyn Optimizer>> {
    let (momentum, nesterov) = (options.float("momentum"), options.flag("nesterov"));
    if momentum == 0.0 {
        if nesterov {
            return Err(Error::BadOption {
                kind: "optimizer",
                plugin: "burn:sgd".to_owned(),
                option: "nesterov".to_owned(),
                found: "true".to_owned(),
                wanted: "false, unless momentum is above 0".to_owned(),
            });
        }
        return boxed("burn:sgd", SgdConfig::new(), options, &[], &[]);
    }
    let momentum = MomentumConfig::new()
        .with_momentum(momentum)
        .with_dampening(options.float("dampening"))
        .with_nesterov(nesterov);
    let config = SgdConfig::new().with_momentum(Some(momentum));
    boxed("burn:sgd", config, options, const { &[StateSlot::f32("momentum.velocity")] }, &[])
}

#[cfg(test)]
mod tests {
    use super::super::testing::is_burns_own;
    use super::*;
    use crate::testing::{given, refusal};
    use burn::optim::decay::WeightDecayConfig;

    #[test]
    fn is_burns_own_sgd() {
        is_burns_own("burn:sgd", [], &SgdConfig::new().build(), &[], &[]);
        let options = [("momentum", OptionValue::Float(0.9))];
        let config = SgdConfig::new().with_momentum(Some(MomentumConfig::new()));
        is_burns_own("burn:sgd", options, &config.build(), &["momentum.velocity"], &[]);
        let options = [
            ("momentum", OptionValue::Float(0.5)),
            ("dampening", OptionValue::Float(0.25)),
            ("nesterov", OptionValue::Bool(true)),
            ("weight_decay", OptionValue::Float(0.3)),
        ];
        let momentum = MomentumConfig::new().with_momentum(0.5).with_dampening(0.25).with_nesterov(true);
        let config =
            SgdConfig::new().with_momentum(Some(momentum)).with_weight_decay(Some(WeightDecayConfig::new(0.3)));
        is_burns_own("burn:sgd", options, &config.build(), &["momentum.velocity"], &[]);
    }

    #[test]
    fn nesterov_wants_momentum() {
        let refused = refusal("burn:sgd", &given([("nesterov", OptionValue::Bool(true))]));
        assert_eq!(
            refused,
            "option `nesterov` of optimizer `burn:sgd` is true; allowed: false, unless momentum is above 0"
        );
    }
}
