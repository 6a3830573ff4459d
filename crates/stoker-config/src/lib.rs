//! The configuration of a run: layers of raw values in, one typed and validated [`Settings`] out.
//!
//! Layers, weakest first: the defaults and the profiles in `configs/` (built into the crate, so that a program works
//! from any directory), a file, the environment, and overrides of the command line. A key is replaced as a whole by the
//! strongest layer that has it.
//!
//! Two stages. First every layer becomes a list of leaves, each with its path and the layer it came from; each leaf is
//! checked against the schema on its own, so a mistake is found whichever layer it is in, even where a stronger layer
//! hides it. Then the strongest leaf of each key wins and the whole becomes [`Settings`]; [`Provenance`] remembers
//! which layer that was.
//!
//! ```no_run
//! use stoker_config::{Settings, Sources};
//!
//! let sources = Sources {
//!     profile: Some("offload".into()),
//!     overrides: vec!["zero.stage=2".into(), "optimizer.adamw.eps=1e-6".into()],
//!     ..Sources::from_env()
//! };
//! let (settings, provenance) = Settings::load(&sources)?;
//! assert_eq!(settings.zero.stage, 2);
//! print!("{}", settings.show(&provenance));
//! # Ok::<(), stoker_config::Error>(())
//! ```
//!
//! Plugins are known through `stoker_core::registry`, by what the program links; see [`Plugins`].
#![forbid(unsafe_code)]

mod check;
mod consistency;
mod error;
mod groups;
mod inert;
mod leaf;
mod plugins;
mod profiles;
mod provenance;
mod schema;
mod sections;
mod settings;
mod show;
mod sources;
mod words;

pub use error::{Error, Result, Setting};
pub use plugins::{Plugins, Registered};
pub use profiles::profiles;
pub use provenance::{Layer, Provenance};
pub use sections::{
    Data, Device, Group, Host, LearningRate, Model, OptimizerChoice, Parameters, PluginChoice, Precision, Run,
    Schedule, Train, Zero,
};
pub use settings::Settings;
pub use sources::Sources;
pub use words::{
    Backend, Checkpointing, Compute, DataSource, Gradients, LearningRateSchedule, LossScale, ModelName,
    RunningStatistics, Warmup,
};
