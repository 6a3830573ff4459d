//! `sgd`, as PyTorch's.

use crate::{segments, specs};
use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{
    Error, Granularity, Optimizer, OptionValue, Options, Result, ShardUpdate, StateSlot, StepContext, inventory,
};
use stoker_kernels::{Level, sgd};

/// The update rule is described in [`stoker_kernels::sgd`](mod@stoker_kernels::sgd).
///
/// Without momentum it has no state, and a shard takes no memory for any: so a run cannot be resumed with momentum
/// where there was none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sgd {
    /// Decay of the momentum buffer; 0 keeps none.
    pub momentum: f64,
    /// How much less of the gradient enters the buffer.
    pub dampening: f64,
    /// Whether the step looks one step ahead. Means nothing without momentum.
    pub nesterov: bool,
    /// L2 penalty of segments that have none of their own.
    pub weight_decay: f64,
}

impl Optimizer for Sgd {
    fn state_slots(&self) -> &'static [StateSlot] {
        if self.momentum == 0.0 { &[] } else { const { &[StateSlot::f32("momentum_buffer")] } }
    }

    fn granularity(&self) -> Granularity {
        Granularity::Element
    }

    fn update(&self, shard: ShardUpdate<'_>, context: &StepContext) -> Result<()> {
        let rule = |segment: &stoker_core::Segment| sgd::Sgd {
            learning_rate: segment.learning_rate,
            weight_decay: segment.weight_decay.unwrap_or(self.weight_decay),
            gradient: segments::gradient(context),
        };
        if self.momentum == 0.0 {
            return segments::for_each(shard, self.state_slots(), |segment, shard| {
                sgd::sgd(Level::best(), &rule(segment), shard);
            });
        }
        segments::for_each(shard, self.state_slots(), |segment, shard| {
            let past = sgd::Momentum {
                momentum: self.momentum,
                dampening: self.dampening,
                nesterov: self.nesterov,
                update: segment.update,
            };
            sgd::sgd_momentum(Level::best(), &rule(segment), &past, shard);
        })
    }
}

inventory::submit! {
    Plugin {
        name: "sgd",
        description: "gradient descent, with or without momentum, in one pass over the shard",
        options: &[
            specs::fraction("momentum", || OptionValue::Float(0.0), "decay of the momentum buffer; 0 keeps none"),
            specs::fraction(
                "dampening",
                || OptionValue::Float(0.0),
                "how much less of the gradient enters the buffer, from the second update on",
            ),
            specs::flag("nesterov", "step ahead by the momentum; wants momentum and no dampening"),
            specs::L2,
        ],
        build: Build::Optimizer(build),
    }
}

fn build(options: &Options) -> Result<Arc<dyn Optimizer>> {
    let (momentum, dampening) = (options.float("momentum"), options.float("dampening"));
    let nesterov = options.flag("nesterov");
    if nesterov && (momentum == 0.0 || dampening != 0.0) {
        return Err(Error::BadOption {
            kind: "optimizer",
            plugin: "sgd".to_owned(),
            option: "nesterov".to_owned(),
            found: "true".to_owned(),
            wanted: format!(
                "false, unless momentum is above 0 and dampening is 0; they are {momentum} and {dampening}"
            ),
        });
    }
    Ok(Arc::new(Sgd { momentum, dampening, nesterov, weight_decay: options.float("weight_decay") }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{given, refusal, slots, update_one};
    use proptest::prelude::*;
    use stoker_core::registry;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn keeps_every_law(
            momentum in prop_oneof![Just(0.0), 0.01..0.999], dampening in prop_oneof![Just(0.0), 0.0..0.9],
            nesterov in any::<bool>(), weight_decay in 0.0..0.3,
        ) {
            stoker_testkit::optimizer::conforms(&Sgd { momentum, dampening, nesterov, weight_decay });
        }
    }

    #[test]
    fn is_found_by_its_name_with_the_defaults_of_pytorch() {
        let found = registry::optimizer("sgd", &Default::default()).unwrap();
        assert_eq!(slots("sgd", &given([])), [""; 0]);
        assert_eq!(update_one(found.as_ref(), 1).unwrap(), update_one(&Sgd::default(), 1).unwrap());
        assert_eq!(update_one(found.as_ref(), 1).unwrap(), [0.99975]);
    }

    #[test]
    fn heeds_its_options() {
        let options = [
            ("momentum", OptionValue::Float(0.5)),
            ("dampening", OptionValue::Float(0.5)),
            ("weight_decay", OptionValue::Float(0.25)),
        ];
        let options = given(options);
        assert_eq!(slots("sgd", &options), ["momentum_buffer"]);
        let found = registry::optimizer("sgd", &options).unwrap();
        // 0.25 + 0.25 * 1
        assert_eq!(update_one(found.as_ref(), 1).unwrap(), [0.9995, 0.5]);
        assert_eq!(update_one(found.as_ref(), 2).unwrap(), [0.99975, 0.25]);
        let ahead = given([("momentum", OptionValue::Float(0.5)), ("nesterov", OptionValue::Bool(true))]);
        let ahead = registry::optimizer("sgd", &ahead).unwrap();
        assert_eq!(update_one(ahead.as_ref(), 1).unwrap(), [0.999625, 0.25]);
    }

    #[test]
    fn nesterov_wants_momentum_without_dampening() {
        let nesterov = ("nesterov", OptionValue::Bool(true));
        let refused = refusal("sgd", &given([nesterov.clone()]));
        assert_eq!(
            refused,
            "option `nesterov` of optimizer `sgd` is true; allowed: false, unless momentum is above 0 and dampening is \
             0; they are 0 and 0"
        );
        let dampened = given([nesterov, ("momentum", OptionValue::Float(0.9)), ("dampening", OptionValue::Float(0.1))]);
        assert!(refusal("sgd", &dampened).ends_with("they are 0.9 and 0.1"));
    }

    #[test]
    fn there_is_no_update_0() {
        for momentum in [0.0, 0.9] {
            let refused = update_one(&Sgd { momentum, ..Sgd::default() }, 0);
            assert!(matches!(refused, Err(Error::OutOfRange { found: 0, wanted: 1, .. })));
        }
    }
}
