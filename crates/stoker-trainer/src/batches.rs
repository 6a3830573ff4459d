//! Images and labels of a rank, as tensors.

use crate::{Error, Result};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_dataset::Dataset;
use stoker_data::{CHANNELS, Epoch, EvaluationBatch, HEIGHT, ImageItem, PIXELS, RankSampler, WIDTH};

/// What one rank trains on in one step.
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

/// All batches of a rank over a run: `train.epochs` epochs, at most `train.max_steps` steps, equally many on every rank.
pub struct Batches<'a> {
    data: &'a dyn Dataset<ImageItem>,
    sampler: RankSampler,
    device: Device,
    left: usize,
    epoch: usize,
    step: usize,
    records: Epoch,
}

impl<'a> Batches<'a> {
    pub(crate) fn new(
        data: &'a dyn Dataset<ImageItem>,
        sampler: RankSampler,
        device: Device,
        steps: usize,
    ) -> Batches<'a> {
        let records = sampler.epoch(0);
        Self { data, sampler, device, left: steps, epoch: 0, step: 0, records }
    }

    /// Steps of an epoch.
    pub fn per_epoch(&self) -> usize {
        self.sampler.batches()
    }

    /// Records that all ranks together take at a time.
    pub fn global_batch(&self) -> usize {
        self.sampler.global_batch()
    }

    fn batch(&mut self, records: &[usize]) -> Result<Batch> {
        let (images, labels) = tensors(self.data, records, &self.device)?;
        let (epoch, step) = (self.epoch, self.step);
        let ends_epoch = self.left == 0 || self.records.len() == 0;
        Ok(Batch { images, labels, epoch, step, ends_epoch })
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let records = match self.records.next() {
            Some(records) => records,
            None => {
                self.epoch += 1;
                self.step = 0;
                self.records = self.sampler.epoch(self.epoch as u64);
                self.records.next()?
            }
        };
        let batch = self.batch(&records);
        self.step += 1;
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Batches<'_> {}

impl std::fmt::Debug for Batches<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches")
            .field("sampler", &self.sampler)
            .field("epoch", &self.epoch)
            .field("step", &self.step)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

/// A whole batch of an evaluation.
pub(crate) fn padded(
    data: &dyn Dataset<ImageItem>,
    batch: &EvaluationBatch,
    device: &Device,
) -> Result<(Tensor<4>, Tensor<1, Int>)> {
    tensors(data, &batch.padded(), device)
}

fn tensors(data: &dyn Dataset<ImageItem>, records: &[usize], device: &Device) -> Result<(Tensor<4>, Tensor<1, Int>)> {
    let mut images = Vec::with_capacity(records.len() * PIXELS);
    let mut labels = Vec::with_capacity(records.len());
    for &record in records {
        let item = data.get(record).map_err(|source| Error::Record { record, source })?;
        item.extend_f32(&mut images);
        labels.push(i64::from(item.label));
    }
    let images = TensorData::new(images, [records.len(), CHANNELS, HEIGHT, WIDTH]);
    let labels = TensorData::new(labels, [records.len()]);
    Ok((Tensor::from_data(images, (device, DType::F32)), Tensor::from_data(labels, device)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoker_data::{Builtin, Split};

    fn batches(data: &Builtin, rank: usize, steps: usize) -> Vec<Batch> {
        let sampler = RankSampler::new(data.len(), 2, rank, 4, 7).unwrap();
        Batches::new(data, sampler, Device::flex(), steps).collect::<Result<_>>().unwrap()
    }

    #[test]
    fn a_run_goes_through_epochs_until_its_steps_are_done() {
        // 17 records are two global batches of 8 an epoch.
        let data = Builtin::new(1, Split::Train, 17);
        let places =
            |steps| batches(&data, 0, steps).iter().map(|b| (b.epoch, b.step, b.ends_epoch)).collect::<Vec<_>>();
        assert_eq!(places(4), [(0, 0, false), (0, 1, true), (1, 0, false), (1, 1, true)]);
        assert_eq!(places(3), [(0, 0, false), (0, 1, true), (1, 0, true)]);
        assert_eq!(places(0), []);
    }

    #[test]
    fn tensors_are_the_records() {
        let data = Builtin::new(1, Split::Train, 8);
        let batch = &batches(&data, 1, 1)[0];
        assert_eq!(batch.images.dims(), [4, 3, 32, 32]);
        let records = RankSampler::new(8, 2, 1, 4, 7).unwrap().epoch(0).next().unwrap();
        let last = data.get(records[3]).unwrap();
        let image = batch.images.clone().slice([3..4, 0..3, 0..32, 0..32]).into_data();
        assert_eq!(image.as_slice::<f32>().unwrap(), last.to_f32());
        let labels = batch.labels.clone().into_data().convert::<i64>();
        assert_eq!(labels.as_slice::<i64>().unwrap()[3], i64::from(last.label));
    }

    #[test]
    fn ranks_share_an_epoch_without_overlap() {
        let data = Builtin::new(1, Split::Train, 16);
        let pixels = |rank| {
            let batches = batches(&data, rank, 2);
            batches
                .iter()
                .flat_map(|batch| batch.images.clone().into_data().try_to_vec::<f32>().unwrap())
                .collect::<Vec<_>>()
        };
        let (one, other) = (pixels(0), pixels(1));
        let images = |pixels: &[f32]| pixels.chunks(PIXELS).map(<[f32]>::to_vec).collect::<Vec<_>>();
        let other = images(&other);
        assert!(images(&one).iter().all(|image| !other.contains(image)));
        assert_eq!(other.len(), 8);
    }
}
