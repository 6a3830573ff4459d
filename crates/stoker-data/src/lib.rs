//! Image data sets and per-rank samplers for training with stoker.
//!
//! Both data sets, [`Cifar10`] read from its standard binary files and [`Builtin`] drawn from a seed, implement
//! [`burn_dataset::Dataset`] over [`ImageItem`], so that everything written for Burn's data sets works on them.
//! [`open`] picks between them as a configuration asks; [`RankSampler`] and [`EvaluationSampler`] say which records a
//! rank takes at each step. Nothing here knows of tensors, of Burn's back ends or of how gradients are exchanged.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod builtin;
mod cifar10;
mod error;
mod evaluation;
mod image;
mod keyed;
mod sampler;
mod shapes;
mod source;

pub use builtin::{Builtin, DEFAULT_TRAIN_RECORDS, DEFAULT_VALID_RECORDS};
pub use cifar10::{BATCH_BYTES, Cifar10, RECORD_BYTES, RECORDS_PER_BATCH, class_names, default_dir, installed};
pub use error::{DataError, SamplerError};
pub use evaluation::{EvaluationBatch, EvaluationBatches, EvaluationSampler};
pub use image::{CHANNELS, CLASSES, HEIGHT, ImageItem, PIXELS, Split, WIDTH, to_f32};
pub use sampler::{Epoch, RankSampler};
pub use source::{SourceKind, SourceOptions, Sources, open};
