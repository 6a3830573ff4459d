//! `adamw` and `adam`: Adam with decoupled weight decay and with an L2 penalty, as PyTorch's.

use crate::{segments, specs};
use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{
    DType, DeviceRule, Granularity, Optimizer, OptionSpec, OptionValue, Options, Result, ShardUpdate, StateSlot,
    StepContext, inventory,
};
use stoker_kernels::{Decay, Level, adam};

/// The update rule is described in [`stoker_kernels::adam`](mod@stoker_kernels::adam).
#[derive(Debug, Clone, PartialEq)]
pub struct Adam {
    /// How weights decay: what tells `adamw` from `adam`.
    pub decay: Decay,
    /// Decays of the first and the second moment.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay of segments that have none of their own.
    pub weight_decay: f64,
    /// Type of the moments: f32 or bf16.
    pub moments: DType,
}

impl Adam {
    /// `adam` with PyTorch's defaults.
    pub const ADAM: Self =
        Self { decay: Decay::L2, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0, moments: DType::F32 };
    /// `adamw` with PyTorch's defaults.
    pub const ADAMW: Self =
        Self { decay: Decay::Decoupled, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.01, moments: DType::F32 };
}

impl Optimizer for Adam {
    fn state_slots(&self) -> &'static [StateSlot] {
        match self.moments {
            DType::BF16 => const { &slots(DType::BF16) },
            _ => const { &slots(DType::F32) },
        }
    }

    fn granularity(&self) -> Granularity {
        Granularity::Element
    }

    fn update(&self, shard: ShardUpdate<'_>, context: &StepContext) -> Result<()> {
        segments::for_each(shard, self.state_slots(), |segment, shard| {
            let rule = adam::Adam {
                decay: self.decay,
                learning_rate: segment.learning_rate,
                beta1: self.betas.0,
                beta2: self.betas.1,
                eps: self.eps,
                weight_decay: segment.weight_decay.unwrap_or(self.weight_decay),
                update: segment.update,
                gradient: segments::gradient(context),
            };
            adam::adam(Level::best(), &rule, shard);
        })
    }

    fn device_rule(&self) -> Option<DeviceRule> {
        let Self { decay, betas, eps, weight_decay, moments } = *self;
        let decoupled = decay == Decay::Decoupled;
        (moments == DType::F32).then_some(DeviceRule::Adam { decoupled, betas, eps, weight_decay })
    }
}

const fn slots(dtype: DType) -> [StateSlot; 2] {
    [StateSlot { name: "exp_avg", dtype }, StateSlot { name: "exp_avg_sq", dtype }]
}

const BETAS: OptionSpec = specs::decays(
    "betas",
    || OptionValue::List(vec![OptionValue::Float(0.9), OptionValue::Float(0.999)]),
    "decay of the first and of the second moment",
);
const EPS: OptionSpec =
    specs::divisor("eps", || OptionValue::Float(1e-8), "added to the root of the bias-corrected second moment");

inventory::submit! {
    Plugin {
        name: "adamw",
        description: "Adam with decoupled weight decay, in one pass over the shard",
        options: &[
            BETAS,
            EPS,
            specs::amount(
                "weight_decay",
                || OptionValue::Float(0.01),
                "decoupled weight decay of parameters whose group sets none",
            ),
            specs::MOMENTS,
        ],
        build: Build::Optimizer(|options| build(options, Decay::Decoupled)),
    }
}

inventory::submit! {
    Plugin {
        name: "adam",
        description: "Adam, weight decay as an L2 penalty, in one pass over the shard",
        options: &[BETAS, EPS, specs::L2, specs::MOMENTS],
        build: Build::Optimizer(|options| build(options, Decay::L2)),
    }
}

fn build(options: &Options, decay: Decay) -> Result<Arc<dyn Optimizer>> {
    Ok(Arc::new(Adam {
        decay,
        betas: options.pair("betas"),
        eps: options.float("eps"),
        weight_decay: options.float("weight_decay"),
        moments: specs::moments(options),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::slots as slots_of;
    use crate::testing::{given, refusal, update_one};
    use proptest::prelude::*;
    use stoker_core::{Error, registry};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn keeps_every_law(
            decay in prop_oneof![Just(Decay::Decoupled), Just(Decay::L2)],
            betas in (0.0..0.999, 0.5..0.9999), eps in 1e-12..1e-3, weight_decay in 0.0..0.3,
            moments in prop_oneof![Just(DType::F32), Just(DType::BF16)],
        ) {
            stoker_testkit::optimizer::conforms(&Adam { decay, betas, eps, weight_decay, moments });
        }
    }

    #[test]
    fn are_found_by_their_names_with_the_defaults_of_pytorch() {
        for (name, defaults, parameter) in [("adamw", Adam::ADAMW, 0.99899), ("adam", Adam::ADAM, 0.999)] {
            let found = registry::optimizer(name, &Default::default()).unwrap();
            assert_eq!(slots_of(name, &given([])), ["exp_avg", "exp_avg_sq"]);
            assert_eq!(update_one(found.as_ref(), 3).unwrap(), update_one(&defaults, 3).unwrap());
            assert_eq!(update_one(found.as_ref(), 1).unwrap(), [parameter, 0.025, 0.0625 * 0.001]);
        }
    }

    #[test]
    fn heed_their_options() {
        let options = given([
            ("betas", OptionValue::List(vec![OptionValue::Integer(0), OptionValue::Float(0.5)])),
            ("eps", OptionValue::Float(1e-3)),
            ("weight_decay", OptionValue::Float(0.5)),
        ]);
        for (name, defaults) in [("adamw", Adam::ADAMW), ("adam", Adam::ADAM)] {
            let found = registry::optimizer(name, &options).unwrap();
            let wanted = Adam { betas: (0.0, 0.5), eps: 1e-3, weight_decay: 0.5, ..defaults.clone() };
            assert_eq!(update_one(found.as_ref(), 3).unwrap(), update_one(&wanted, 3).unwrap());
            assert_ne!(update_one(found.as_ref(), 3).unwrap(), update_one(&defaults, 3).unwrap());
        }
        let refused = refusal("adamw", &given([("eps", OptionValue::Integer(0))]));
        assert_eq!(refused, "option `eps` of optimizer `adamw` is 0; allowed: a number from 1e-16 on");
    }

    #[test]
    fn there_is_no_update_0() {
        assert!(matches!(update_one(&Adam::ADAMW, 0), Err(Error::OutOfRange { found: 0, wanted: 1, .. })));
    }
}
