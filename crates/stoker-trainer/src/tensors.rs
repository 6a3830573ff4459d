//! Records of a data set as tensors.

use crate::{Error, Result};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_dataset::Dataset;
use stoker_data::{CHANNELS, HEIGHT, ImageItem, PIXELS, WIDTH};

/// Pictures, `[records, channels, rows, columns]`, and labels of these records.
pub(crate) fn of(
    data: &dyn Dataset<ImageItem>,
    records: &[usize],
    device: &Device,
) -> Result<(Tensor<4>, Tensor<1, Int>)> {
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

    #[test]
    fn tensors_are_the_records() {
        let data = Builtin::new(1, Split::Train, 8);
        let (images, labels) = of(&data, &[6, 1, 3], &Device::flex()).unwrap();
        assert_eq!(images.dims(), [3, 3, 32, 32]);
        let last = data.get(3).unwrap();
        let image = images.slice([2..3, 0..3, 0..32, 0..32]).into_data();
        assert_eq!(image.as_slice::<f32>().unwrap(), last.to_f32());
        assert_eq!(labels.into_data().convert::<i64>().as_slice::<i64>().unwrap()[2], i64::from(last.label));
    }
}
