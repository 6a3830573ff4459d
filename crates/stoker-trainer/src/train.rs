//! A whole run, from settings to a summary.

use crate::models::{self, WithModel, with_model};
use crate::report::{RankReport, Summary};
use crate::{Classifier, Error, Progress, Rank, Result, fit, launch};
use burn::module::Module;
use burn::tensor::Device;
use std::path::{Path, PathBuf};
use std::time::Instant;
use stoker_config::{DataSource, Settings};
use stoker_data::{SourceKind, SourceOptions, Sources, default_dir};

/// What a run is told beside its settings.
#[derive(Debug, Clone, Default)]
pub struct TrainOptions {
    /// A safetensors file that the weights begin with.
    pub init: Option<PathBuf>,
    /// A safetensors file that the weights are written to in the end.
    pub save: Option<PathBuf>,
    /// What is shown.
    pub progress: Progress,
}

/// Trains the model of the settings on their data, with their ranks and plugins.
///
/// # Errors
/// Any [`Error`].
pub fn train(settings: &Settings, options: &TrainOptions) -> Result<Summary> {
    let started = Instant::now();
    if let Some(path) = &options.save {
        check_directory_of(path)?;
    }
    let data = open_data(settings)?;
    if let Some(notice) = &data.notice {
        options.progress.say(notice);
    }
    let reports = launch(settings, |rank| with_model(&settings.model, Train { rank, data: &data, options }))?;
    Summary::new(settings, data.name, &reports, started.elapsed())
}

/// Opens the data set of the settings.
///
/// # Errors
/// [`Error::Data`].
pub fn open_data(settings: &Settings) -> Result<Sources> {
    let data = &settings.data;
    let options = SourceOptions {
        kind: match data.source {
            DataSource::Auto => SourceKind::Auto,
            DataSource::Cifar10 => SourceKind::Cifar10,
            DataSource::Builtin => SourceKind::Builtin,
        },
        dir: if data.dir.as_os_str().is_empty() { default_dir() } else { data.dir.clone() },
        train_limit: data.train_records,
        valid_limit: data.valid_records,
        // The run's seed is not taken: another seed is another run on the same data.
        ..SourceOptions::default()
    };
    Ok(stoker_data::open(&options)?)
}

/// What one rank does in a run.
struct Train<'a> {
    rank: &'a Rank,
    data: &'a Sources,
    options: &'a TrainOptions,
}

impl WithModel for Train<'_> {
    type Output = Result<RankReport>;

    fn run<M: Module + Classifier + 'static>(self, make: impl FnOnce(&Device) -> M) -> Result<RankReport> {
        train_rank(self, make)
    }
}

fn train_rank<M: Module + Classifier + 'static>(
    Train { rank, data, options }: Train<'_>,
    make: impl FnOnce(&Device) -> M,
) -> Result<RankReport> {
    let model = rank.build_from(make, options.init.as_deref())?;
    let fitted = fit(rank, &model, data, options.progress)?;
    if let Some(path) = &options.save {
        rank.save(&model, path)?;
    }
    Ok(RankReport { fitted, parameters: models::count(&model), peaks: rank.ledger()?.peaks(), moved: rank.moved()? })
}

/// Makes sure that a file can be written: that its directory is there, and that nothing but a file is in its place, which
/// it would replace. Better known before the work than after it.
///
/// # Errors
/// [`Error::Write`].
pub fn check_directory_of(path: &Path) -> Result<()> {
    let directory = directory_of(path);
    let failed = |source| Error::Write { path: path.to_owned(), source };
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(failed(std::io::Error::other(format!("{} is no directory", directory.display())))),
        Err(error) => return Err(failed(error)),
    }
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            Err(failed(std::io::Error::other("something that is no regular file is there; choose another path")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
