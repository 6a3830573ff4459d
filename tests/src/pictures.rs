//! Batches of the built-in data set, the same for engines and plain models.

use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_dataset::Dataset;
use std::ops::Range;
use stoker_data::{Builtin, Split};

/// Records `rows` of step `step`'s batch of `batch` records.
pub fn pictures(step: usize, batch: usize, rows: Range<usize>, device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let data = Builtin::new(1, Split::Train, (step + 1) * batch);
    let records: Vec<_> = rows.map(|row| data.get(step * batch + row).unwrap()).collect();
    let pixels: Vec<f32> = records.iter().flat_map(|record| record.to_f32()).collect();
    let labels: Vec<i32> = records.iter().map(|record| i32::from(record.label)).collect();
    let count = records.len();
    (
        Tensor::from_data(TensorData::new(pixels, [count, 3, 32, 32]), device),
        Tensor::from_data(TensorData::new(labels, [count]), device),
    )
}
