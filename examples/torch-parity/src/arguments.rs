//! The command line, and the settings that it makes.

use crate::Result;
use crate::error::Error;
use std::path::PathBuf;
use stoker::config::Compute;
use stoker::{Settings, Sources};

const AFTER_HELP: &str =
    "Exit codes: 0 all within, 1 any over, 2 wrong usage or a file that is not such a trajectory, 3 a \
                          run that failed.
Settings that no option here names are those of the profile, or the defaults, and can be --set.";

/// Trains as PyTorch did, and says how far apart the two end.
///
/// Each FILE is a trajectory: the layout is described in ../shared/golden/README.md. Model, optimizer, batches and learning
/// rate are the file's; which ranks train it, and how, is said here.
#[derive(Debug, clap::Parser)]
#[command(version, after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Trajectories.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// A profile of settings: `offload`, `no-offload`, `gpu-only`.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// ZeRO's stage, 0 to 3: short for --set zero.stage=N.
    #[arg(long, value_name = "N")]
    stage: Option<u8>,
    /// Number of ranks, which must divide the file's batch: short for --set run.ranks=N.
    #[arg(long, value_name = "N")]
    ranks: Option<usize>,
    /// Where shards live, `cpu-offload` or `gpu-only`: short for --set offload.name=NAME.
    #[arg(long, value_name = "NAME")]
    offload: Option<String>,
    /// Whether updates run in the background: short for --set schedule.overlap=…
    #[arg(long, value_name = "true|false")]
    overlap: Option<bool>,
    /// Burn's backend, `flex`, `libtorch` or `libtorch-cuda`: short for --set device.backend=NAME.
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Largest piece of a gradient that is reduced at once, at least 4: short for --set schedule.bucket_bytes=N.
    #[arg(long, value_name = "N")]
    bucket_bytes: Option<u64>,
    /// Seconds that a rank waits for another: short for --set run.timeout_seconds=S.
    #[arg(long, value_name = "S")]
    timeout: Option<f64>,
    /// One setting, such as schedule.pool_bytes="1 MiB"; can be given again.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// One line a file instead of a table.
    #[arg(long)]
    pub(crate) brief: bool,
}

impl Arguments {
    /// The settings of the ranks. Those of model, data and optimizer are not used: the files have their own.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let sources = Sources { profile: self.profile.clone(), overrides: self.all_overrides(), ..Sources::from_env() };
        let settings = Settings::load(&sources)?.0;
        let other = |key, found: String| Err(Error::OtherNumbers { key, found });
        if settings.precision.compute != Compute::F32 {
            return other("precision.compute", settings.precision.compute.to_string());
        }
        if let Some(name) = settings.groups.keys().next() {
            return other("groups", format!("not empty (`{name}`)"));
        }
        if !settings.parameters.decay_vectors {
            return other("parameters.decay_vectors", "false".to_owned());
        }
        Ok(settings)
    }

    fn all_overrides(&self) -> Vec<String> {
        let given = |key: &str, value: Option<String>| value.map(|value| format!("{key}={value}"));
        let mut overrides = self.overrides.clone();
        overrides.extend(given("zero.stage", self.stage.map(|stage| stage.to_string())));
        overrides.extend(given("run.ranks", self.ranks.map(|ranks| ranks.to_string())));
        // The file's batch is what counts; a setting that is not used must not conflict with the ranks.
        overrides.extend(given("train.batch_size", self.ranks.map(|ranks| ranks.max(1).to_string())));
        overrides.extend(self.ranks.map(|_| "train.accumulation=1".to_owned()));
        overrides.extend(given("offload.name", self.offload.clone()));
        overrides.extend(given("schedule.overlap", self.overlap.map(|overlap| overlap.to_string())));
        overrides.extend(given("device.backend", self.backend.clone()));
        overrides.extend(given("schedule.bucket_bytes", self.bucket_bytes.map(|bytes| bytes.to_string())));
        overrides.extend(given("run.timeout_seconds", self.timeout.map(|seconds| format!("{seconds:?}"))));
        overrides
    }
}
