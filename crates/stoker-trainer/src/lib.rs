//! Ranks from settings, models, the training loop and its report.
//!
//! This crate composes the others as a configuration says. It knows no plugin: they come by name through
//! [`stoker_core::registry`], from whatever the program links.
//!
//! | file | idea |
//! |---|---|
//! | `launch` | [`launch()`]: one thread per rank, and one error for all of them |
//! | `compose` | settings to what the layers below take |
//! | `rank` | [`Rank`]: a rank that knows its settings |
//! | `batches` | which records a rank trains on, step by step and micro-batch by micro-batch |
//! | `tensors` | records as tensors |
//! | `schedule` | the learning rate of each step |
//! | `models` | [`models::SeedNet`], [`models::LeNet`], [`models::MoeLeNet`] |
//! | `fit` | [`fit()`]: the training loop of one rank |
//! | `losses` | what the loop remembers of losses |
//! | `train` | [`train()`]: a whole run, from settings to a [`Summary`] |
//! | `report` | [`Summary`], for people and for programs |
//! | `plan` | [`plan()`]: what a run would need, and what there is |
//! | `json` | results as files |
//! | `progress` | what a run shows while it goes on |
//! | `error` | [`Error`], and the exit code of each |
#![forbid(unsafe_code)]

mod batches;
mod compose;
mod error;
mod fit;
mod json;
mod launch;
mod losses;
pub mod models;
mod plan;
mod progress;
mod rank;
mod report;
mod schedule;
mod tensors;
mod text;
mod train;

pub use batches::{Batch, Batches, MicroBatches, Steps};
pub use error::{Error, Result, exit};
pub use fit::{EpochReport, Fitted, fit};
pub use launch::launch;
pub use models::Classifier;
pub use plan::{PlanReport, plan};
pub use progress::Progress;
pub use rank::{Rank, Validation};
pub use report::{PeakBytes, Summary};
pub use schedule::Schedule;
pub use train::{TrainOptions, check_directory_of, open_data, train};

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{DType, Int, Tensor};

/// The mean cross-entropy of `logits` (a row for each record) for these `labels`; of f16 and bf16 logits it is computed in
/// f32, which also lets it be scaled without leaving the range of f16.
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// let device = Device::flex();
/// let logits = Tensor::<2>::zeros([4, 10], &device);
/// let loss = stoker_trainer::cross_entropy(logits, Tensor::<1, Int>::zeros([4], &device));
/// assert!((loss.into_scalar::<f32>() - 10f32.ln()).abs() < 1e-6);
/// ```
pub fn cross_entropy(logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
    CrossEntropyLossConfig::new().init(&logits.device()).forward(widened(logits), labels)
}

/// In f32 if it is of a narrower type.
fn widened<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    match tensor.dtype() {
        DType::F16 | DType::BF16 => tensor.cast(DType::F32),
        _ => tensor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn narrow_logits_are_widened_before_the_cross_entropy() {
        let device = Device::flex().autodiff();
        // ln(1 + e^-8) is 3.4e-4; in bf16 a sum of 1 and e^-8 is 1, whose logarithm is 0.
        let wanted = (-8f64).exp().ln_1p();
        for dtype in [DType::BF16, DType::F16, DType::F32] {
            let logits = Tensor::<2>::from_data([[8.0, 0.0]], &device).cast(dtype).require_grad();
            let loss = cross_entropy(logits.clone(), Tensor::<1, Int>::from_data([0], &device));
            assert_eq!(loss.dtype(), DType::F32);
            let found = f64::from(loss.clone().into_scalar::<f32>());
            assert!((found / wanted - 1.0).abs() < 1e-3, "{dtype:?}: {found}, {wanted}");
            let gradient = logits.grad(&loss.backward()).unwrap();
            assert_eq!(gradient.dtype(), dtype);
            let gradient = f64::from(widened(gradient).slice([0..1, 1..2]).into_scalar::<f32>());
            // softmax of the other class
            assert!((gradient / (-wanted).exp_m1().abs() - 1.0).abs() < 1e-2, "{dtype:?}: {gradient}");
        }
    }
}
