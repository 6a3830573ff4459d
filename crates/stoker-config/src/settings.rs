//! The settings of a run, typed.

use crate::check::{Entry, Merged};
use crate::sections::{
    Data, Device, Group, Host, LearningRate, Model, OptimizerChoice, Parameters, PluginChoice, Precision, Run,
    Schedule, Train, Zero,
};
use crate::{Error, Layer, Plugins, Provenance, Registered, Result, Sources, consistency, schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
    /// What holds for all parameters.
    pub parameters: Parameters,
    /// Parameters that are trained in a way of their own, by the name of the group.
    #[serde(default)]
    pub groups: BTreeMap<String, Group>,
    /// What is computed and summed in which type.
    pub precision: Precision,
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
    pub optimizer: OptimizerChoice,
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
        settings.groups = merged.groups.finish(&mut provenance)?;
        consistency::check(&settings, &provenance)?;
        Ok((settings, provenance))
    }

    /// Records that one rank takes at a time: the batch over the micro-batches of a step and the ranks.
    pub fn micro_batch(&self) -> usize {
        self.train.batch_size / self.run.ranks.max(1).saturating_mul(self.train.accumulation.max(1))
    }

    /// Threads of each rank that compute an update: `optimizer.threads`, or its share of the processors.
    pub fn update_threads(&self) -> usize {
        match self.optimizer.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from).div_ceil(self.run.ranks.max(1)),
            threads => threads,
        }
    }

    /// The plugin that is chosen of a kind.
    pub fn choice(&self, kind: Kind) -> &PluginChoice {
        match kind {
            Kind::Partitioner => &self.partitioner,
            Kind::OffloadTarget => &self.offload,
            Kind::Communicator => &self.communicator,
            Kind::Optimizer => &self.optimizer.choice,
        }
    }

    fn choice_mut(&mut self, kind: Kind) -> &mut PluginChoice {
        match kind {
            Kind::Partitioner => &mut self.partitioner,
            Kind::OffloadTarget => &mut self.offload,
            Kind::Communicator => &mut self.communicator,
            Kind::Optimizer => &mut self.optimizer.choice,
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
