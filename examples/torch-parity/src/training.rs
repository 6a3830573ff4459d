//! The loop: the file's batches through the engine, by the file's rule.

use crate::error::{Error, Problem, Result};
use crate::networks::{BnNet, Network};
use crate::tensors::Tensors;
use crate::trajectory::{Trajectory, Way};
use burn::module::Module;
use burn::tensor::Device;
use std::path::Path;
use stoker::config::PluginChoice;
use stoker::models::LeNetConfig;
use stoker::{Classifier, Rank, Settings, cross_entropy, launch};

/// What came of it.
#[derive(Debug)]
pub(crate) struct Trained {
    /// Each step as each rank saw it.
    pub(crate) ranks: Vec<Vec<Seen>>,
    /// Last values in the order of [`Trajectory::ways`].
    pub(crate) last: Vec<Vec<f32>>,
}

/// A step as a rank sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Mean loss of its own records.
    pub(crate) loss: f64,
    /// Norm of the mean gradient of all ranks, before clipping.
    pub(crate) norm: f64,
}

/// Trains the trajectory's network as the trajectory was.
///
/// # Errors
/// [`Error::Ranks`], [`Error::Scratch`].
pub(crate) fn train(trajectory: &Trajectory, settings: &Settings) -> Result<Trained> {
    let optimizer = &trajectory.spec.optimizer;
    let optimizer = PluginChoice { name: optimizer.name.clone(), options: optimizer.options() };
    let mut settings = settings.clone();
    settings.optimizer.choice = optimizer;
    // 0 clips nothing.
    settings.train.clip_norm = trajectory.spec.gradient_clipping.unwrap_or(0.0);
    settings.train.clip_value = 0.0;
    let scratch = tempfile::tempdir().map_err(Error::Scratch)?;
    let (first, last) = (scratch.path().join("first.safetensors"), scratch.path().join("last.safetensors"));
    trajectory.write_first(&first)?;
    let ranks = match trajectory.network {
        Network::LeNet => on_ranks(trajectory, &settings, &first, &last, |device| LeNetConfig::new().init(device)),
        Network::SeedNet(config) => on_ranks(trajectory, &settings, &first, &last, |device| config.init(device)),
        Network::BatchNormed => on_ranks(trajectory, &settings, &first, &last, BnNet::init),
    }?;
    let bytes = std::fs::read(&last).map_err(Error::Scratch)?;
    let failed = |problem| Error::File { file: last, source: Box::new(problem) };
    let last = read_last(trajectory, &bytes).map_err(failed)?;
    Ok(Trained { ranks, last })
}

fn on_ranks<M: Module + Classifier + 'static>(
    trajectory: &Trajectory,
    settings: &Settings,
    first: &Path,
    last: &Path,
    make: impl Fn(&Device) -> M + Sync,
) -> Result<Vec<Vec<Seen>>> {
    let ranks = launch(settings, |rank| {
        let model = rank.build_from(&make, Some(first))?;
        let steps = (0..trajectory.spec.steps).map(|step| one_step(trajectory, rank, &model, step));
        let seen = steps.collect::<stoker::Result<Vec<_>>>()?;
        rank.save(&model, last)?;
        Ok(seen)
    });
    ranks.map_err(|source| Error::Ranks { file: trajectory.file.clone(), source: Box::new(source) })
}

fn one_step<M: Classifier>(trajectory: &Trajectory, rank: &Rank, model: &M, step: usize) -> stoker::Result<Seen> {
    let spec = &trajectory.spec;
    let place = (rank.number(), rank.world());
    let mut sum = 0.0;
    for micro_batch in 0..spec.accumulation() {
        let (images, labels) = trajectory.batch((step, micro_batch), place, &rank.device());
        sum += rank.inner().accumulate(|| cross_entropy(model.forward(images), labels))?;
    }
    let report = rank.inner().update(spec.learning_rate(step))?;
    Ok(Seen { loss: sum / spec.accumulation() as f64, norm: report.gradient_norm })
}

fn read_last(trajectory: &Trajectory, bytes: &[u8]) -> std::result::Result<Vec<Vec<f32>>, Problem> {
    let mut tensors = Tensors::new(bytes, &trajectory.spec.model)?;
    let tensor = |way: &Way| tensors.f32s(&way.tensor.path, &way.tensor.shape);
    trajectory.ways.iter().map(tensor).collect()
}
