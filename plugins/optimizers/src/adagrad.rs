//! `adagrad`, as PyTorch's.

use crate::{segments, specs};
use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{
    Granularity, Optimizer, OptionValue, Options, Result, ShardUpdate, StateSlot, StepContext, inventory,
};
use stoker_kernels::{Level, adagrad};

/// The update rule is described in [`stoker_kernels::adagrad`](mod@stoker_kernels::adagrad).
#[derive(Debug, Clone, PartialEq)]
pub struct Adagrad {
    /// How fast the learning rate gets smaller.
    pub lr_decay: f64,
    /// Added to the root of the sum.
    pub eps: f64,
    /// L2 penalty of segments that have none of their own.
    pub weight_decay: f64,
    /// The sum before the first update.
    pub initial_accumulator_value: f64,
}

impl Default for Adagrad {
    fn default() -> Self {
        Self { lr_decay: 0.0, eps: 1e-10, weight_decay: 0.0, initial_accumulator_value: 0.0 }
    }
}

impl Optimizer for Adagrad {
    fn state_slots(&self) -> &'static [StateSlot] {
        const { &[StateSlot::f32("sum")] }
    }

    fn granularity(&self) -> Granularity {
        Granularity::Element
    }

    fn update(&self, shard: ShardUpdate<'_>, context: &StepContext) -> Result<()> {
        segments::for_each(shard, self.state_slots(), |segment, shard| {
            let rule = adagrad::Adagrad {
                learning_rate: segment.learning_rate,
                lr_decay: self.lr_decay,
                eps: self.eps,
                weight_decay: segment.weight_decay.unwrap_or(self.weight_decay),
                initial_accumulator_value: self.initial_accumulator_value,
                update: segment.update,
                gradient: segments::gradient(context),
            };
            adagrad::adagrad(Level::best(), &rule, shard);
        })
    }
}

inventory::submit! {
    Plugin {
        name: "adagrad",
        description: "Adagrad, weight decay as an L2 penalty, in one pass over the shard",
        options: &[
            specs::amount(
                "lr_decay",
                || OptionValue::Float(0.0),
                "update t has the learning rate divided by 1 + (t - 1) * lr_decay",
            ),
            specs::divisor("eps", || OptionValue::Float(1e-10), "added to the root of the sum of squares"),
            specs::L2,
            specs::amount(
                "initial_accumulator_value",
                || OptionValue::Float(0.0),
                "the sum of squares before the first update",
            ),
        ],
        build: Build::Optimizer(build),
    }
}

fn build(options: &Options) -> Result<Arc<dyn Optimizer>> {
    Ok(Arc::new(Adagrad {
        lr_decay: options.float("lr_decay"),
        eps: options.float("eps"),
        weight_decay: options.float("weight_decay"),
        initial_accumulator_value: options.float("initial_accumulator_value"),
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
        fn keeps_every_law(
            lr_decay in 0.0..0.1, eps in 1e-12..1e-3, weight_decay in 0.0..0.3, initial_accumulator_value in 0.0..2.0,
        ) {
            let optimizer = Adagrad { lr_decay, eps, weight_decay, initial_accumulator_value };
            stoker_testkit::optimizer::conforms(&optimizer);
        }
    }

    #[test]
    fn is_found_by_its_name_with_the_defaults_of_pytorch() {
        let found = registry::optimizer("adagrad", &Default::default()).unwrap();
        assert_eq!(slots("adagrad", &given([])), ["sum"]);
        assert_eq!(update_one(found.as_ref(), 3).unwrap(), update_one(&Adagrad::default(), 3).unwrap());
        assert_eq!(update_one(found.as_ref(), 1).unwrap(), [0.999, 0.0625]);
    }

    #[test]
    fn heeds_its_options() {
        let options = given([
            ("lr_decay", OptionValue::Float(0.5)),
            ("eps", OptionValue::Float(1e-3)),
            ("weight_decay", OptionValue::Float(0.25)),
            ("initial_accumulator_value", OptionValue::Integer(2)),
        ]);
        let found = registry::optimizer("adagrad", &options).unwrap();
        let wanted = Adagrad { lr_decay: 0.5, eps: 1e-3, weight_decay: 0.25, initial_accumulator_value: 2.0 };
        for number in [1, 3] {
            let after = update_one(found.as_ref(), number).unwrap();
            assert_eq!(after, update_one(&wanted, number).unwrap());
            assert_ne!(after, update_one(&Adagrad::default(), number).unwrap());
        }
    }

    #[test]
    fn there_is_no_update_0() {
        assert!(matches!(update_one(&Adagrad::default(), 0), Err(Error::OutOfRange { found: 0, wanted: 1, .. })));
    }
}
