//! `burn:*`: the element-wise optimizers of burn-optim, run by Burn itself.
//!
//! [Note: Burn] A segment becomes a rank-1 tensor on Flex, outside of autodiff, Burn's own `step` is called with it, and
//! the result is copied back. All of these rules look at one element at a time, and so do Flex's operations, so any cut
//! gives the bits that Burn would have given for whole parameters; a segment is stepped in blocks that fit a cache.
//!
//! The tensors of Burn's state are slots under the names that `RecordState` gives them. Its counts of updates are
//! [`Segment::update`] less one, and in the first update there is no state, as for Burn. Options are named and default as
//! in Burn's configs, and are f32 where Burn's are. The accumulated gradient is scaled and cut before Burn sees it.

mod adagrad;
mod adam;
mod adan;
mod lion;
mod rmsprop;
mod sgd;
mod state;

use crate::segments;
use burn::optim::Optimizer as _;
use burn::optim::decay::WeightDecayConfig;
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use state::Counts;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use stoker_core::{
    Error, Granularity, Optimizer, Options, Result, Segment, ShardUpdate, StateSlot, StepContext, ValuesMut,
};
use stoker_kernels::{Gradient, convert};

/// Elements that are stepped at once: with the temporaries of a step they stay in a core's cache.
const BLOCK: usize = 1 << 14;

/// A config of Burn's.
trait Config: Debug + Send + Sync + 'static {
    /// What it configures.
    type Optimizer: burn::optim::Optimizer;

    /// The optimizer with this weight decay instead of the config's.
    fn build_with(&self, weight_decay: f32) -> Self::Optimizer;
}

/// One of Burn's optimizers as one of stoker's. See [Note: Burn].
#[derive(Debug)]
struct FromBurn<C> {
    /// Name in errors.
    name: &'static str,
    config: C,
    /// Weight decay of segments that have none of their own.
    weight_decay: f64,
    /// The tensors of the state as this config makes it.
    slots: &'static [StateSlot],
    /// The other parts of the state.
    counts: Counts,
}

/// Finishes a builder.
fn boxed<C: Config>(
    name: &'static str,
    config: C,
    options: &Options,
    slots: &'static [StateSlot],
    counts: Counts,
) -> Result<Arc<dyn Optimizer>> {
    Ok(Arc::new(FromBurn { name, config, weight_decay: options.float("weight_decay"), slots, counts }))
}

/// What Burn's configs want for an L2 penalty.
fn penalty(weight_decay: f32) -> Option<WeightDecayConfig> {
    (weight_decay != 0.0).then(|| WeightDecayConfig::new(weight_decay))
}

impl<C: Config> Optimizer for FromBurn<C> {
    fn state_slots(&self) -> &'static [StateSlot] {
        self.slots
    }

    fn granularity(&self) -> Granularity {
        Granularity::Element
    }

    fn update(&self, mut shard: ShardUpdate<'_>, context: &StepContext) -> Result<()> {
        segments::check(&shard, self.slots)?;
        let device = Device::flex();
        // Burn makes the tensors of a state with the device's default type.
        let default = device.settings().float_dtype;
        if default != FloatDType::F32 {
            let why = format!("its state is f32, and the default float type of Burn's Flex device is {default:?}");
            return Err(self.fault("looking at Burn's device; leave its default float type at F32", why));
        }
        let gradient = segments::gradient(context);
        for segment in shard.segments {
            let weight_decay = segment.weight_decay.unwrap_or(self.weight_decay) as f32;
            let optimizer = self.config.build_with(weight_decay);
            let mut start = segment.range.start;
            while start < segment.range.end {
                let block = start..segment.range.end.min(start + BLOCK);
                start = block.end;
                self.step(&optimizer, &mut shard, segment, block, gradient, &device)?;
            }
        }
        Ok(())
    }
}

impl<C: Config> FromBurn<C> {
    /// Burn's step for `block`, which lies within the shard.
    fn step(
        &self,
        optimizer: &C::Optimizer,
        shard: &mut ShardUpdate<'_>,
        segment: &Segment,
        block: Range<usize>,
        gradient: Gradient,
        device: &Device,
    ) -> Result<()> {
        let slices = shard.state.iter_mut().map(|slice| match slice.part(block.clone()) {
            ValuesMut::F32(slice) => Some(slice),
            ValuesMut::F16(_) | ValuesMut::BF16(_) => None,
        });
        let slices = slices.collect::<Option<Vec<_>>>();
        let mut slices = slices.ok_or_else(|| self.other_state("a slot is not of f32"))?;
        let state = match segment.update {
            1 => None,
            number => {
                let state = state::read(self.slots, self.counts, number - 1, &slices, device);
                Some(state.ok_or_else(|| self.other_state("a state cannot be made of the slots"))?)
            }
        };
        let parameters = &mut shard.parameters[block.clone()];
        let mut scaled = vec![0.0; block.len()];
        gradient.of_all(&mut scaled, shard.gradient.part(block.clone()));
        let tensor = |values: Vec<f32>| {
            let length = values.len();
            Tensor::<1>::from_data(TensorData::new(values, [length]), device)
        };
        let (stepped, state) =
            optimizer.step(segment.learning_rate, tensor(parameters.to_vec()), tensor(scaled), state);
        let stepped = stepped.into_data();
        match stepped.as_slice::<f32>() {
            Ok(values) if values.len() == parameters.len() => {
                parameters.copy_from_slice(values);
                if let Some(rounded) = &mut shard.rounded {
                    convert::from_f32(rounded.part(block), values);
                }
            }
            _ => return Err(self.other_state("the parameter is not as long as before, or not f32")),
        }
        match state.map(|state| state::write(&state, self.slots, &mut slices)) {
            Some(Some(())) => Ok(()),
            _ => Err(self.other_state("the state is not that of the slots")),
        }
    }

    fn other_state(&self, what: &str) -> Error {
        let slots: Vec<_> = self.slots.iter().map(|slot| slot.name).collect();
        let why = format!("{what} ({}) and the counts ({})", slots.join(", "), self.counts.join(", "));
        self.fault("a step of Burn's; this is a fault in stoker, whose slots are those of burn-optim 0.22.1", why)
    }

    fn fault(&self, doing: &str, why: String) -> Error {
        Error::Plugin { plugin: self.name.to_owned(), doing: doing.to_owned(), source: why.into() }
    }
}

#[cfg(test)]
mod testing;
