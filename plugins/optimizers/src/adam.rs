//! `adamw`: Adam with decoupled weight decay, as PyTorch's.

use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{
    Error, Granularity, Optimizer, OptionKind, OptionSpec, OptionValue, Options, Result, ShardUpdate, StateSlot,
    StepContext, inventory,
};
use stoker_kernels::adamw;

/// The update rule is described in [`stoker_kernels::adamw`](mod@stoker_kernels::adamw).
#[derive(Debug, Clone, PartialEq)]
pub struct AdamW {
    /// Decays of the first and the second moment.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay of segments that have none of their own.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.01 }
    }
}

const SLOTS: &[StateSlot] = &[StateSlot { name: "exp_avg" }, StateSlot { name: "exp_avg_sq" }];

impl Optimizer for AdamW {
    fn state_slots(&self) -> &'static [StateSlot] {
        SLOTS
    }

    fn granularity(&self) -> Granularity {
        Granularity::Element
    }

    fn update(&self, mut shard: ShardUpdate<'_>, context: &StepContext) -> Result<()> {
        shard.check(SLOTS.len())?;
        if shard.segments.iter().any(|segment| segment.update == 0) {
            // The bias correction of update 0 would be a division by zero.
            return Err(Error::OutOfRange { what: "the number of an update".to_owned(), found: 0, wanted: 1 });
        }
        let [exp_avg, exp_avg_sq] = shard.state.as_mut_slice() else {
            return Ok(()); // `check` has counted them.
        };
        for segment in shard.segments {
            // In range: `check` compared every segment's end with the length that all slices share.
            let range = segment.range.clone();
            let rule = adamw::AdamW {
                learning_rate: segment.learning_rate,
                beta1: self.betas.0,
                beta2: self.betas.1,
                eps: self.eps,
                weight_decay: segment.weight_decay.unwrap_or(self.weight_decay),
                step: segment.update,
                gradient_scale: context.gradient_scale,
            };
            adamw::adamw(
                &rule,
                &mut shard.parameters[range.clone()],
                &shard.gradient[range.clone()],
                &mut exp_avg[range.clone()],
                &mut exp_avg_sq[range],
            );
        }
        Ok(())
    }
}

inventory::submit! {
    Plugin {
        name: "adamw",
        description: "Adam with decoupled weight decay, in one pass over the shard",
        options: &[
            OptionSpec {
                name: "betas",
                kind: OptionKind::Pair { min: 0.0, below: 1.0 },
                default: || OptionValue::List(vec![OptionValue::Float(0.9), OptionValue::Float(0.999)]),
                help: "decay of the first and of the second moment",
            },
            OptionSpec {
                name: "eps",
                // Second moments below the smallest normal f32 count as zero: eps must then be the divisor alone.
                kind: OptionKind::Float { min: 1e-16, max: f64::INFINITY },
                default: || OptionValue::Float(1e-8),
                help: "added to the root of the bias-corrected second moment",
            },
            OptionSpec {
                name: "weight_decay",
                kind: OptionKind::Float { min: 0.0, max: f64::INFINITY },
                default: || OptionValue::Float(0.01),
                help: "decoupled weight decay of parameters whose group sets none",
            },
        ],
        build: Build::Optimizer(build),
    }
}

fn build(options: &Options) -> Result<Arc<dyn Optimizer>> {
    Ok(Arc::new(AdamW {
        betas: options.pair("betas"),
        eps: options.float("eps"),
        weight_decay: options.float("weight_decay"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stoker_core::{Segment, registry};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn keeps_every_law(
            betas in (0.0..0.999, 0.5..0.9999), eps in 1e-12..1e-3, weight_decay in 0.0..0.3,
        ) {
            stoker_testkit::optimizer::conforms(&AdamW { betas, eps, weight_decay });
        }
    }

    fn update(optimizer: &dyn Optimizer, step: u64) -> Result<[f32; 3]> {
        let (mut p, mut m, mut v) = ([1.0], [0.0], [0.0]);
        let segments = [Segment { range: 0..1, update: step, learning_rate: 1e-3, weight_decay: None }];
        let shard =
            ShardUpdate { parameters: &mut p, gradient: &[0.5], state: vec![&mut m, &mut v], segments: &segments };
        optimizer.update(shard, &StepContext::scaled(0.5))?;
        Ok([p[0], m[0], v[0]])
    }

    #[test]
    fn is_found_by_its_name_with_the_defaults_of_pytorch() {
        let found = registry::optimizer("adamw", &Default::default()).unwrap();
        assert_eq!(found.state_slots().iter().map(|slot| slot.name).collect::<Vec<_>>(), ["exp_avg", "exp_avg_sq"]);
        assert_eq!(found.granularity(), Granularity::Element);
        assert_eq!(update(found.as_ref(), 1).unwrap(), update(&AdamW::default(), 1).unwrap());
        assert_eq!(update(found.as_ref(), 1).unwrap(), [0.99899, 0.025, 0.0625 * 0.001]);
    }

    #[test]
    fn heeds_its_options() {
        let given = [
            ("betas".to_owned(), OptionValue::List(vec![OptionValue::Integer(0), OptionValue::Float(0.5)])),
            ("eps".to_owned(), OptionValue::Float(1e-3)),
            ("weight_decay".to_owned(), OptionValue::Integer(0)),
        ];
        let found = registry::optimizer("adamw", &given.into()).unwrap();
        let wanted = AdamW { betas: (0.0, 0.5), eps: 1e-3, weight_decay: 0.0 };
        assert_eq!(update(found.as_ref(), 3).unwrap(), update(&wanted, 3).unwrap());
        assert_ne!(update(found.as_ref(), 3).unwrap(), update(&AdamW::default(), 3).unwrap());
        let given = [("eps".to_owned(), OptionValue::Integer(0))];
        let refused = registry::optimizer("adamw", &given.into()).unwrap_err().to_string();
        assert_eq!(refused, "option `eps` of optimizer `adamw` is 0; allowed: a number from 1e-16 on");
    }

    #[test]
    fn there_is_no_step_0() {
        assert!(matches!(update(&AdamW::default(), 0), Err(Error::OutOfRange { found: 0, wanted: 1, .. })));
    }
}
