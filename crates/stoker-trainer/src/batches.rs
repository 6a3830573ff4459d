//! Which records of a data set a rank trains on, step by step and micro-batch by micro-batch.
//!
//! The records of a step do not depend on how many micro-batches it is cut into: micro-batch `a` of `m` records (over all
//! ranks) is records `a * m .. (a + 1) * m` of the step's batch, and every rank takes an equal part of each.

use crate::{Result, tensors};
use burn::tensor::{Device, Int, Tensor};
use burn_dataset::Dataset;
use std::vec::IntoIter;
use stoker_data::{Epoch, ImageItem, RankSampler, SamplerError};

/// What one rank trains on at a time.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Pictures, `[records, channels, rows, columns]`, scaled to [-1, 1].
    pub images: Tensor<4>,
    /// The class of each.
    pub labels: Tensor<1, Int>,
    /// The epoch, from 0.
    pub epoch: usize,
    /// The step within the epoch, from 0.
    pub step: usize,
    /// Whether no other batch of this epoch comes.
    pub ends_epoch: bool,
}

/// All batches of a rank over a run, equally many on every rank: each is a step where `train.accumulation` is 1, else a
/// micro-batch, and [`steps`](Self::steps) tells which belong together.
#[derive(Debug)]
pub struct Batches<'a> {
    steps: Steps<'a>,
    current: Option<MicroBatches<'a>>,
}

/// All steps of a rank over a run: `train.epochs` epochs, at most `train.max_steps`. From [`Batches::steps`].
pub struct Steps<'a> {
    data: &'a dyn Dataset<ImageItem>,
    sampler: RankSampler,
    device: Device,
    accumulation: usize,
    left: usize,
    epoch: usize,
    step: usize,
    records: Epoch,
}

/// The micro-batches of one step: what [`Rank::step_over`](crate::Rank::step_over) takes. Each is read when its turn comes.
pub struct MicroBatches<'a> {
    data: &'a dyn Dataset<ImageItem>,
    device: Device,
    records: IntoIter<Vec<usize>>,
    epoch: usize,
    step: usize,
    ends_epoch: bool,
}

impl<'a> Batches<'a> {
    /// `sampler` gives micro-batches, of which `accumulation` are a step.
    pub(crate) fn new(
        data: &'a dyn Dataset<ImageItem>,
        sampler: RankSampler,
        accumulation: usize,
        device: Device,
    ) -> Result<Self> {
        let accumulation = accumulation.max(1);
        let batch = sampler.global_batch().saturating_mul(accumulation);
        if sampler.batches() < accumulation {
            return Err(SamplerError::TooFewRecords { len: data.len(), batch }.into());
        }
        let records = sampler.epoch(0);
        let steps = Steps { data, sampler, device, accumulation, left: 0, epoch: 0, step: 0, records };
        Ok(Self { steps, current: None })
    }

    /// So many steps.
    pub(crate) fn take_steps(mut self, steps: usize) -> Self {
        self.steps.left = steps;
        self
    }

    /// Steps of an epoch.
    pub fn per_epoch(&self) -> usize {
        self.steps.per_epoch()
    }

    /// Records of a step over all ranks.
    pub fn global_batch(&self) -> usize {
        self.steps.global_batch()
    }

    /// Step by step instead of batch by batch, from the next step on.
    pub fn steps(self) -> Steps<'a> {
        self.steps
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(batch) = self.current.as_mut().and_then(Iterator::next) {
            return Some(batch);
        }
        self.current = self.steps.next();
        self.current.as_mut()?.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let current = self.current.as_ref().map_or(0, ExactSizeIterator::len);
        let left = self.steps.left.saturating_mul(self.steps.accumulation).saturating_add(current);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Batches<'_> {}

impl Steps<'_> {
    /// Steps of an epoch.
    pub fn per_epoch(&self) -> usize {
        self.sampler.batches() / self.accumulation
    }

    /// Records of a step over all ranks.
    pub fn global_batch(&self) -> usize {
        self.sampler.global_batch().saturating_mul(self.accumulation)
    }
}

impl<'a> Iterator for Steps<'a> {
    type Item = MicroBatches<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        // What is left of an epoch after its last whole step is left out.
        if self.step == self.per_epoch() {
            self.epoch += 1;
            self.step = 0;
            self.records = self.sampler.epoch(self.epoch as u64);
        }
        let records: Vec<_> = self.records.by_ref().take(self.accumulation).collect();
        let step = self.step;
        self.step += 1;
        Some(MicroBatches {
            data: self.data,
            device: self.device.clone(),
            records: records.into_iter(),
            epoch: self.epoch,
            step,
            ends_epoch: self.left == 0 || self.step == self.per_epoch(),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Steps<'_> {}

impl MicroBatches<'_> {
    /// The epoch, from 0.
    pub fn epoch(&self) -> usize {
        self.epoch
    }

    /// The step within the epoch, from 0.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Whether no other step of this epoch comes.
    pub fn ends_epoch(&self) -> bool {
        self.ends_epoch
    }
}

impl Iterator for MicroBatches<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let records = self.records.next()?;
        let ends_epoch = self.ends_epoch && self.records.len() == 0;
        let tensors = tensors::of(self.data, &records, &self.device);
        Some(tensors.map(|(images, labels)| Batch { images, labels, epoch: self.epoch, step: self.step, ends_epoch }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.records.size_hint()
    }
}

impl ExactSizeIterator for MicroBatches<'_> {}

impl std::fmt::Debug for Steps<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steps")
            .field("sampler", &self.sampler)
            .field("accumulation", &self.accumulation)
            .field("epoch", &self.epoch)
            .field("step", &self.step)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for MicroBatches<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MicroBatches")
            .field("records", &self.records)
            .field("epoch", &self.epoch)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
