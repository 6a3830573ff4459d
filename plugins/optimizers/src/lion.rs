//! `lion`, as its authors'.

use crate::{segments, specs};
use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{
    DType, Granularity, Optimizer, OptionValue, Options, Result, ShardUpdate, StateSlot, StepContext, inventory,
};
use stoker_kernels::{Level, lion};

/// The update rule is described in [`stoker_kernels::lion`](mod@stoker_kernels::lion).
#[derive(Debug, Clone, PartialEq)]
pub struct Lion {
    /// Weight of the moment in the direction, and its decay.
    pub betas: (f64, f64),
    /// Decoupled weight decay of segments that have none of their own.
    pub weight_decay: f64,
    /// Type of the moment: f32 or bf16.
    pub moments: DType,
}

impl Default for Lion {
    fn default() -> Self {
        Self { betas: (0.9, 0.99), weight_decay: 0.0, moments: DType::F32 }
    }
}

impl Optimizer for Lion {
    fn state_slots(&self) -> &'static [StateSlot] {
        match self.moments {
            DType::BF16 => &[StateSlot { name: "exp_avg", dtype: DType::BF16 }],
            _ => const { &[StateSlot::f32("exp_avg")] },
        }
    }

    fn granularity(&self) -> Granularity {
        Granularity::Element
    }

    fn update(&self, shard: ShardUpdate<'_>, context: &StepContext) -> Result<()> {
        segments::for_each(shard, self.state_slots(), |segment, shard| {
            let rule = lion::Lion {
                learning_rate: segment.learning_rate,
                beta1: self.betas.0,
                beta2: self.betas.1,
                weight_decay: segment.weight_decay.unwrap_or(self.weight_decay),
                update: segment.update,
                gradient: segments::gradient(context),
            };
            lion::lion(Level::best(), &rule, shard);
        })
    }
}

inventory::submit! {
    Plugin {
        name: "lion",
        description: "Lion: steps by sign, decoupled weight decay, in one pass over the shard",
        options: &[
            specs::decays(
                "betas",
                || OptionValue::List(vec![OptionValue::Float(0.9), OptionValue::Float(0.99)]),
                "weight of the moment in the direction, and its decay",
            ),
            specs::amount(
                "weight_decay",
                || OptionValue::Float(0.0),
                "decoupled weight decay of parameters whose group sets none",
            ),
            specs::MOMENTS,
        ],
        build: Build::Optimizer(build),
    }
}

fn build(options: &Options) -> Result<Arc<dyn Optimizer>> {
    Ok(Arc::new(Lion {
        betas: options.pair("betas"),
        weight_decay: options.float("weight_decay"),
        moments: specs::moments(options),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{given, slots, update_one};
    use proptest::prelude::*;
    use stoker_core::{Error, registry};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn keeps_every_law(betas in (0.0..0.999, 0.0..0.9999), weight_decay in 0.0..0.3) {
            stoker_testkit::optimizer::conforms(&Lion { betas, weight_decay, moments: DType::BF16 });
        }
    }

    #[test]
    fn is_found_by_its_name_with_the_defaults_of_the_paper() {
        let found = registry::optimizer("lion", &Default::default()).unwrap();
        assert_eq!(slots("lion", &given([])), ["exp_avg"]);
        assert_eq!(update_one(found.as_ref(), 1).unwrap(), update_one(&Lion::default(), 1).unwrap());
        assert_eq!(update_one(found.as_ref(), 1).unwrap(), [0.999, 0.0025]);
    }

    #[test]
    fn heeds_its_options() {
        let options = given([
            ("betas", OptionValue::List(vec![OptionValue::Integer(0), OptionValue::Float(0.5)])),
            ("weight_decay", OptionValue::Float(0.25)),
        ]);
        let found = registry::optimizer("lion", &options).unwrap();
        let wanted = Lion { betas: (0.0, 0.5), weight_decay: 0.25, moments: DType::F32 };
        assert_eq!(update_one(found.as_ref(), 3).unwrap(), update_one(&wanted, 3).unwrap());
        // 1 * (1 - 0.001 * 0.25) - 0.001
        assert_eq!(update_one(found.as_ref(), 3).unwrap(), [0.99975 - 0.001, 0.125]);
    }

    #[test]
    fn there_is_no_update_0() {
        assert!(matches!(update_one(&Lion::default(), 0), Err(Error::OutOfRange { found: 0, wanted: 1, .. })));
    }
}
