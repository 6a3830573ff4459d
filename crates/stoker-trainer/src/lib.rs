//! Ranks from settings, models, the training loop and its report.
//!
//! This crate composes the others as a configuration says. It knows no plugin: they come by name through
//! [`stoker_core::registry`], from whatever the program links.
//!
//! | file | idea |
//! |---|---|
//! | `launch` | [`launch()`]: one thread per rank, and one error for all of them |
//! | `rank` | [`Rank`]: a rank that knows its settings |
//! | `batches` | images and labels of a rank, as tensors |
//! | `schedule` | the learning rate of each step |
//! | `models` | [`models::SeedNet`], [`models::LeNet`], [`models::MoeLeNet`] |
//! | `fit` | [`fit()`]: the training loop of one rank |
//! | `losses` | what the loop remembers of losses |
//! | `train` | [`train()`]: a whole run, from settings to a [`Summary`] |
//! | `report` | [`Summary`], for people and for programs |
//! | `progress` | what a run shows while it goes on |
//! | `error` | [`Error`], and the exit code of each |
#![forbid(unsafe_code)]

mod batches;
mod error;
mod fit;
mod launch;
mod losses;
pub mod models;
mod progress;
mod rank;
mod report;
mod schedule;
mod text;
mod train;

pub use batches::{Batch, Batches};
pub use error::{Error, Result, exit};
pub use fit::{EpochReport, Fitted, fit};
pub use launch::launch;
pub use models::Classifier;
pub use progress::Progress;
pub use rank::{Rank, Validation};
pub use report::{PeakBytes, Summary};
pub use schedule::Schedule;
pub use train::{TrainOptions, check_directory_of, open_data, train};

use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Int, Tensor};

/// The mean cross-entropy of `logits` (a row for each record) for these `labels`.
///
/// ```
/// use burn::tensor::{Device, Int, Tensor};
/// let device = Device::flex();
/// let logits = Tensor::<2>::zeros([4, 10], &device);
/// let loss = stoker_trainer::cross_entropy(logits, Tensor::<1, Int>::zeros([4], &device));
/// assert!((loss.into_scalar::<f32>() - 10f32.ln()).abs() < 1e-6);
/// ```
pub fn cross_entropy(logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
    CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, labels)
}
