//! The settings of a run, typed.

use crate::check::{Entry, Merged};
use crate::{Error, Layer, Plugins, Provenance, Registered, Result, Sources, consistency, schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use stoker_core::OptionValue;
use stoker_core::registry::Kind;

/// Everything that a run is configured with: plain data, checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The run as a whole.
    pub run: Run,
    /// What is trained.
    pub model: Model,
    /// What it is trained on.
    pub data: Data,
    /// How long, and in which batches.
    pub train: Train,
    /// The learning rate.
    pub learning_rate: LearningRate,
    /// Where tensors are.
    pub device: Device,
    /// The machine around it.
    pub host: Host,
    /// What is sharded.
    pub zero: Zero,
    /// When things happen, and in which pieces.
    pub schedule: Schedule,
    /// Which rank keeps which part of a unit.
    pub partitioner: PluginChoice,
    /// Where shards live.
    pub offload: PluginChoice,
    /// How ranks exchange bytes.
    pub communicator: PluginChoice,
    /// How shards are updated.
    pub optimizer: PluginChoice,
}

/// `[run]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Seed of initial values and of the order of the data.
    pub seed: u64,
    /// Data-parallel workers, 1 to 64.
    pub ranks: usize,
    /// How long a rank waits for another: above 0, at most 1e9.
    pub timeout_seconds: f64,
}

impl Run {
    /// How long a rank waits for another.
    pub fn timeout(&self) -> Duration {
        // The fields are public: what was put there since it was checked may be no duration.
        Duration::try_from_secs_f64(self.timeout_seconds).unwrap_or(Duration::ZERO)
    }
}

/// `[model]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Which model.
    pub name: ModelName,
    /// Widths of seednet's layers are divided by this, 1 to 1024.
    pub width_divisor: usize,
}

/// `[data]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Which data set.
    pub source: DataSource,
    /// Where CIFAR-10 is; empty for the usual place.
    pub dir: PathBuf,
    /// Records to train on; 0 for all.
    pub train_records: usize,
    /// Records to validate with; 0 for all.
    pub valid_records: usize,
}

/// `[train]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Passes over the training records, at least 1.
    pub epochs: usize,
    /// Records a step over all ranks, a multiple of [`Run::ranks`].
    pub batch_size: usize,
    /// Stop after so many steps; 0 for no limit.
    pub max_steps: usize,
}

/// `[learning_rate]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningRate {
    /// How it changes.
    pub schedule: LearningRateSchedule,
    /// At the first step.
    pub base: f64,
    /// At the last step of a linear schedule; not above `base` then.
    pub end: f64,
}

/// `[device]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Burn's backend.
    pub backend: Backend,
    /// Bytes of device memory to stay within; 0 for no limit.
    pub memory_limit: u64,
}

/// `[host]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Bytes of host memory to stay within; 0 for what the machine says.
    pub memory_limit: u64,
}

/// `[zero]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zero {
    /// 0 nothing, 1 optimizer state, 2 and gradients, 3 and parameters.
    pub stage: u8,
    /// Stage 3: free weights after forward and gather them again in backward.
    pub reshard_after_forward: bool,
    /// Stage 3: units of fewer bytes stay gathered.
    pub persistence_threshold: u64,
}

/// `[schedule]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Update in the background, and prefetch.
    pub overlap: bool,
    /// Bytes of the pool that holds gathered units at stage 3.
    pub pool_bytes: u64,
    /// Bytes to fetch ahead.
    pub prefetch_bytes: u64,
    /// Bytes of the largest piece of a gradient that is reduced at once, at least 4.
    pub bucket_bytes: u64,
    /// Parameters of fewer bytes are copied out of the pool.
    pub copy_below: u64,
    /// Burn's gradient checkpointing.
    pub checkpointing: Checkpointing,
}

/// A plugin, and what it is built with: what `stoker_core::registry` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PluginChoice {
    /// Its name.
    pub name: String,
    /// All its options, with its own defaults where nobody set one.
    #[serde(default)]
    pub options: BTreeMap<String, OptionValue>,
}

/// `model.name`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelName {
    /// LeNet-5.
    LeNet,
    /// Four convolutions and four linear layers, 561 million parameters at full width.
    SeedNet,
}

/// `data.source`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataSource {
    /// CIFAR-10 if it is installed, else built-in.
    Auto,
    /// CIFAR-10.
    Cifar10,
    /// Images made by the program.
    Builtin,
}

/// `learning_rate.schedule`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LearningRateSchedule {
    /// Always the same.
    Constant,
    /// Decays linearly over the run.
    Linear,
}

/// `device.backend`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Burn's CPU backend.
    Flex,
    /// LibTorch.
    LibTorch,
}

/// `schedule.checkpointing`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Checkpointing {
    /// Activations are kept.
    None,
    /// Cheap activations are computed again.
    Balanced,
}

impl Settings {
    /// The settings that `sources` give, with the plugins that are linked into this program.
    ///
    /// # Errors
    /// Any [`Error`]: the first mistake, layer by layer from the weakest.
    pub fn load(sources: &Sources) -> Result<(Self, Provenance)> {
        Self::load_with(sources, &Registered)
    }

    /// The settings of a profile, with this process's environment over it.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn profile(name: &str) -> Result<Self> {
        let sources = Sources { profile: Some(name.to_owned()), ..Sources::from_env() };
        Ok(Self::load(&sources)?.0)
    }

    /// [`Settings::load`] with these plugins instead of those that are linked.
    ///
    /// # Errors
    /// As [`Settings::load`].
    pub fn load_with(sources: &Sources, plugins: &dyn Plugins) -> Result<(Self, Provenance)> {
        let mut merged = Merged::new(plugins);
        for leaf in sources.leaves()? {
            merged.take(leaf)?;
        }
        let mut settings = typed(&merged.fixed)?;
        let mut provenance = Provenance::default();
        for (key, (_, layer)) in &merged.fixed {
            provenance.insert(key.clone(), layer.clone());
        }
        for kind in Kind::ALL {
            let section = schema::section_of(kind);
            let choice = settings.choice_mut(kind);
            let name_key = format!("{section}.name");
            let specs = plugins.options(kind, &choice.name).map_err(|reason| Error::Plugin {
                layer: Box::new(provenance.of(&name_key).cloned().unwrap_or(Layer::Default)),
                key: name_key,
                reason: Box::new(reason),
            })?;
            let mut given = merged
                .options
                .iter()
                .filter(|((of, name), _)| *of == kind && *name == choice.name)
                .flat_map(|(_, options)| options.clone())
                .collect::<BTreeMap<_, Entry>>();
            for spec in specs {
                let (value, layer) = given.remove(spec.name).unwrap_or_else(|| {
                    ((spec.default)(), Layer::Plugin { kind: kind.name(), name: choice.name.clone() })
                });
                provenance.insert(format!("{section}.{}.{}", choice.name, spec.name), layer);
                choice.options.insert(spec.name.to_owned(), value);
            }
        }
        consistency::check(&settings, &provenance)?;
        Ok((settings, provenance))
    }

    /// Records that one rank takes at a time: the batch over the ranks.
    pub fn micro_batch(&self) -> usize {
        self.train.batch_size / self.run.ranks.max(1)
    }

    /// The plugin that is chosen of a kind.
    pub fn choice(&self, kind: Kind) -> &PluginChoice {
        match kind {
            Kind::Partitioner => &self.partitioner,
            Kind::OffloadTarget => &self.offload,
            Kind::Communicator => &self.communicator,
            Kind::Optimizer => &self.optimizer,
        }
    }

    fn choice_mut(&mut self, kind: Kind) -> &mut PluginChoice {
        match kind {
            Kind::Partitioner => &mut self.partitioner,
            Kind::OffloadTarget => &mut self.offload,
            Kind::Communicator => &mut self.communicator,
            Kind::Optimizer => &mut self.optimizer,
        }
    }
}

/// Settings of checked values. The schema has the same keys and narrower values, so only a fault of ours can fail.
fn typed(values: &BTreeMap<String, Entry>) -> Result<Settings> {
    let failed = |error: serde_json::Error| Error::Schema { reason: error.to_string() };
    let mut root = BTreeMap::<&str, BTreeMap<&str, serde_json::Value>>::new();
    for field in schema::FIELDS {
        if let Some((value, _)) = values.get(&field.key()) {
            let value = serde_json::to_value(value).map_err(failed)?;
            root.entry(field.section).or_default().insert(field.name, value);
        }
    }
    serde_json::to_value(root).and_then(serde_json::from_value).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_are_told_from_users_mistakes() {
        let error = typed(&BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(error, "checked values do not make settings: missing field `run`. This is a fault in stoker");
    }
}
