//! ZeRO stages 0 to 3 with offloading, for Burn: models that do not fit where they are trained.
//!
//! Wrap the parts of a model that should be in device memory at once, and train it on ranks. The model stays a Burn
//! module, which also runs without any of this:
//!
//! ```
//! use burn::prelude::*;
//! use burn::nn::{Linear, LinearConfig, conv::{Conv2d, Conv2dConfig}};
//! use stoker::{Unit, cross_entropy, launch};
//!
//! #[derive(Module, Debug)]
//! struct Net { features: Unit<Conv2d>, head: Unit<Linear> }           // what is gathered together
//!
//! impl Net {
//!     fn init(device: &Device) -> Self {
//!         let features = Conv2dConfig::new([3, 4], [5, 5]).with_stride([3, 3]).init(device);
//!         Net { features: Unit::new(features), head: Unit::new(LinearConfig::new(4 * 10 * 10, 10).init(device)) }
//!     }
//!
//!     fn forward(&self, x: Tensor<4>) -> Tensor<2> {
//!         let x = self.features.call(x, |conv, x| conv.forward(x));  // any Burn module, any inputs
//!         self.head.call(x.flatten(1, 3), |head, x| head.forward(x))
//!     }
//! }
//!
//! fn main() -> stoker::Result<()> {
//!     let mut settings = stoker::Settings::profile("offload")?;     // ZeRO-3, two ranks, shards in host memory
//! #   settings.train.epochs = 1;
//! #   settings.data.source = stoker::config::DataSource::Builtin;
//! #   (settings.data.train_records, settings.data.valid_records) = (settings.train.batch_size, 20);
//!     let data = stoker::open_data(&settings)?;
//!     let validations = launch(&settings, |rank| {
//!         let net = rank.build(Net::init)?;                          // parameter by parameter, never all at once
//!         for batch in rank.batches(&data.train)? {
//!             let batch = batch?;
//!             rank.step(|| cross_entropy(net.forward(batch.images), batch.labels))?;   // backward, reduce, update
//!         }
//!         rank.validate(&data.valid, |images| net.forward(images))
//!     })?;
//! #   assert_eq!(validations.len(), settings.run.ranks);
//! #   assert_eq!(validations[0].records, 20);
//!     println!("accuracy {:.1} %", validations[0].accuracy * 100.0);
//!     Ok(())
//! }
//! ```
//!
//! What is sharded, where shards live, how ranks exchange them and how they are updated is configuration
//! ([`Settings`]); the last three and the way parameters are shared out are plugins, found by name. This crate links
//! those that come with stoker. A program that adds one of its own says `use the_crate as _;` and names it in its
//! configuration; [`core`] has the traits.
//!
//! The program `stoker` trains the models in [`models`]; its exit codes are in [`exit`].
#![forbid(unsafe_code)]

// A plugin that nobody names is not linked, and then is not there.
use stoker_cpu_offload as _;
use stoker_gpu_only as _;
use stoker_optimizers as _;
use stoker_partitioners as _;
use stoker_threads as _;

pub use stoker_burn::{FloatMap, Flow, ParameterGroup, ParameterRules, RunningStatistics, Step, Unit, init, nn};
pub use stoker_config::{Provenance, Settings, Sources};
pub use stoker_trainer::{
    Batch, Batches, Classifier, EpochReport, Error, Fitted, MicroBatches, PeakBytes, PlanReport, Progress, Rank,
    Result, Schedule, Steps, Summary, TrainOptions, Validation, check_directory_of, cross_entropy, exit, fit, launch,
    models, open_data, plan, train,
};

/// The layered configuration.
pub use stoker_config as config;
/// What a plugin implements, and the registry that it submits itself to.
pub use stoker_core as core;
/// Data sets and samplers.
pub use stoker_data as data;
/// The engine below, for its reports: [`engine::StepReport`], [`engine::Ledger`], [`engine::Moved`].
pub use stoker_engine as engine;
