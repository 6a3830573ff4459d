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
        if context.step == 0 {
            // The bias correction of step 0 would be a division by zero.
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
                step: context.step,
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
