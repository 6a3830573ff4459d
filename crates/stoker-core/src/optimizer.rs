//! How one shard is updated.

use crate::{DType, Result, Values, ValuesMut};
use std::fmt::Debug;
use std::ops::Range;

/// A vector as long as the shard that an optimizer keeps between steps; starts as zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSlot {
    /// Name in checkpoints and errors, `exp_avg`.
    pub name: &'static str,
    /// Type of its elements, not f64.
    pub dtype: DType,
}

impl StateSlot {
    /// A slot of f32.
    pub const fn f32(name: &'static str) -> Self {
        Self { name, dtype: DType::F32 }
    }
}

/// What an optimizer must see at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// Each element by itself: any split into shards and chunks gives the same bits.
    Element,
    /// Whole parameters.
    Tensor,
}

/// What all shards of a step share: how an accumulated gradient becomes the one that the rule sees.
///
/// It is multiplied by `gradient_scale` and then cut to `[-clip_value, clip_value]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepContext {
    /// Factor that turns the accumulated gradient into the mean gradient (and unscales it, and clips it by norm).
    pub gradient_scale: f32,
    /// Largest magnitude of an element of the mean gradient; infinity cuts nothing.
    pub clip_value: f32,
}

impl StepContext {
    /// A gradient times `scale`, with nothing cut.
    pub const fn scaled(scale: f32) -> Self {
        Self { gradient_scale: scale, clip_value: f32::INFINITY }
    }
}

/// A part of a shard with hyper-parameters of its own. Elements outside every segment are left alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Elements of the shard.
    pub range: Range<usize>,
    /// Number of this update of these elements, from 1: for bias correction, and to tell a first update from others. A
    /// parameter that had no gradient in some step counts fewer updates than others, as in PyTorch and Burn.
    pub update: u64,
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Weight decay, instead of the optimizer's own.
    pub weight_decay: Option<f64>,
}

/// One shard: slices of equal length.
#[derive(Debug)]
pub struct ShardUpdate<'a> {
    /// Master parameters, updated in place.
    pub parameters: &'a mut [f32],
    /// Accumulated gradient, before [`StepContext::gradient_scale`].
    pub gradient: Values<'a>,
    /// One slice a [`StateSlot`], in their order and of its type, updated in place.
    pub state: Vec<ValuesMut<'a>>,
    /// Where the model computes in a narrower type: becomes the updated parameters, rounded to nearest, ties to even.
    pub rounded: Option<ValuesMut<'a>>,
    /// What to update.
    pub segments: &'a [Segment],
}

/// A rule by its numbers, for devices that have a kernel of their own for it: they update shards that they keep themselves.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum DeviceRule {
    /// Adam, as PyTorch defines it. Its state slots are the first and the second moment, in f32.
    Adam {
        /// Whether weight decay is decoupled (AdamW), or an L2 penalty.
        decoupled: bool,
        /// Decays of the first and the second moment.
        betas: (f64, f64),
        /// Added to the root of the second moment.
        eps: f64,
        /// Weight decay of segments that have none of their own.
        weight_decay: f64,
    },
}

/// An update rule for flat shards.
pub trait Optimizer: Debug + Send + Sync {
    /// The state that it keeps, so that the engine can place it in any offload target.
    fn state_slots(&self) -> &'static [StateSlot];

    /// What it must see at once.
    fn granularity(&self) -> Granularity;

    /// Updates one shard.
    ///
    /// A pure function of its arguments: called for the shards of a model in any order, on any thread.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) when slices and segments do not fit together; nothing is changed
    /// then.
    fn update(&self, shard: ShardUpdate<'_>, context: &StepContext) -> Result<()>;

    /// The same rule, to within rounding, in the words of [`DeviceRule`], if these can say it. Without it, shards on a
    /// device that the host cannot address are read and written for every update.
    fn device_rule(&self) -> Option<DeviceRule> {
        None
    }
}

impl ShardUpdate<'_> {
    /// Checks that the slices are equally long, that there is one a slot, of its type, and that segments lie inside.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange), [`Error::WrongType`](crate::Error::WrongType).
    pub fn check(&self, slots: &[StateSlot]) -> Result<()> {
        let wanted = self.parameters.len();
        let refuse = |what: &str, found: usize, wanted: usize| {
            Err(crate::Error::OutOfRange { what: what.to_owned(), found: found as u64, wanted: wanted as u64 })
        };
        if self.gradient.len() != wanted {
            return refuse("the gradient of a shard", self.gradient.len(), wanted);
        }
        if self.state.len() != slots.len() {
            return refuse("the number of optimizer state slices", self.state.len(), slots.len());
        }
        for (state, slot) in self.state.iter().zip(slots) {
            let state = state.look();
            if state.len() != wanted {
                return refuse("an optimizer state slice", state.len(), wanted);
            }
            if state.dtype() != slot.dtype {
                return Err(crate::Error::WrongType {
                    what: format!("optimizer state `{}`", slot.name),
                    found: state.dtype(),
                    wanted: slot.dtype,
                });
            }
        }
        if let Some(rounded) = &self.rounded
            && rounded.look().len() != wanted
        {
            return refuse("the rounded parameters of a shard", rounded.look().len(), wanted);
        }
        match self.segments.iter().find(|segment| segment.range.end > wanted || segment.range.start > segment.range.end)
        {
            Some(segment) => refuse("a segment's end", segment.range.end, wanted),
            None => Ok(()),
        }
    }
}
