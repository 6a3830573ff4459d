//! Ranks composed by hand: what [`stoker::launch`] does for a program whose loop it knows.

use crate::error::RankError;
use std::sync::Arc;
use std::thread;
use stoker::Settings;
use stoker::config::{Backend, Checkpointing};
use stoker::core::error::panic_text;
use stoker::core::registry::{self, Group, TargetContext};
use stoker::core::{Communicator, Error as CoreError};
use stoker::engine::{self, Clipping, Plugins, Stage};
use stoker_burn::{DeviceSettings, Error, Rank};

/// What a main thread has, so that a model runs on a rank if it runs there.
const STACK_BYTES: usize = 8 << 20;

/// Runs `work` on as many ranks as the settings say, each a thread; results in the order of the ranks.
///
/// # Errors
/// Plugins that cannot be made; else what went wrong on a rank, and not what others made of it.
pub(crate) fn launch<T: Send>(
    settings: &Settings,
    clipping: Clipping,
    work: impl Fn(&Rank) -> stoker_burn::Result<T> + Sync,
) -> Result<Vec<T>, RankError> {
    let group = Group { world: settings.run.ranks, timeout: settings.run.timeout() };
    let ends = registry::communicators(&settings.communicator.name, &settings.communicator.options, &group)?;
    let ranks = ends.into_iter().map(|communicator| rank(settings, clipping, communicator));
    let ranks = ranks.collect::<Result<Vec<_>, _>>()?;
    let results = thread::scope(|scope| {
        // All are started before the first is waited for.
        let threads: Vec<_> = ranks
            .into_iter()
            .enumerate()
            .map(|(number, rank)| {
                let communicator = rank.communicator().clone();
                let work = &work;
                let spawned = thread::Builder::new()
                    .name(format!("rank-{number}"))
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || work(&rank));
                spawned.map_err(|source| {
                    communicator.abort("its thread could not be started");
                    RankError::Thread { rank: number, source }
                })
            })
            .collect();
        let results = threads.into_iter().enumerate().map(|(rank, thread)| match thread?.join() {
            Ok(result) => result.map_err(|source| RankError::Work { rank, source: Box::new(source) }),
            Err(payload) => Err(RankError::Panicked { rank, message: panic_text(payload.as_ref()) }),
        });
        results.collect::<Vec<_>>()
    });
    first_cause(results)
}

/// A rank of its own plugins. Every method of [`Rank`] that fails tells the other ranks, so that they do not wait.
fn rank(settings: &Settings, clipping: Clipping, communicator: Arc<dyn Communicator>) -> Result<Rank, RankError> {
    let number = communicator.rank();
    // Both backends compute on the CPU.
    let context = TargetContext { rank: number, device_is_host: true };
    let plugins = Plugins {
        partitioner: registry::partitioner(&settings.partitioner.name, &settings.partitioner.options)?,
        target: registry::offload_target(&settings.offload.name, &settings.offload.options, &context)?,
        optimizer: registry::optimizer(&settings.optimizer.name, &settings.optimizer.options)?,
        communicator,
    };
    let device = DeviceSettings {
        backend: match settings.device.backend {
            Backend::Flex => stoker_burn::Backend::Flex,
            Backend::LibTorch => stoker_burn::Backend::LibTorch,
        },
        checkpointing: match settings.schedule.checkpointing {
            Checkpointing::None => stoker_burn::Checkpointing::None,
            Checkpointing::Balanced => stoker_burn::Checkpointing::Balanced,
        },
        copy_below: settings.schedule.copy_below,
        ..DeviceSettings::default()
    };
    let rank = Rank::new(engine_settings(settings, clipping)?, device, plugins, settings.run.seed);
    rank.map_err(|source| RankError::Work { rank: number, source: Box::new(source) })
}

fn engine_settings(settings: &Settings, clipping: Clipping) -> Result<engine::Settings, RankError> {
    let Settings { run, device, host, zero, schedule, .. } = settings;
    let stage = Stage::from_number(zero.stage).ok_or_else(|| RankError::Setting {
        key: "zero.stage",
        found: zero.stage.to_string(),
        wanted: "choose 0, 1, 2 or 3",
    })?;
    let limit = |bytes: u64| (bytes > 0).then_some(bytes);
    Ok(engine::Settings {
        stage,
        overlap: schedule.overlap,
        pool_bytes: schedule.pool_bytes,
        prefetch_bytes: schedule.prefetch_bytes,
        bucket_bytes: schedule.bucket_bytes,
        persistence_threshold: zero.persistence_threshold,
        reshard_after_forward: zero.reshard_after_forward,
        device_memory_limit: limit(device.memory_limit),
        // All ranks have one host.
        host_memory_limit: limit(host.memory_limit).map(|bytes| bytes / run.ranks.max(1) as u64),
        clipping,
        timeout: run.timeout(),
        ..engine::Settings::default()
    })
}

/// Ranks that fail because another one did are told only if there is no better story.
fn first_cause<T>(results: Vec<Result<T, RankError>>) -> Result<Vec<T>, RankError> {
    let mut values = Vec::with_capacity(results.len());
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(failure) => failures.push(failure),
        }
    }
    match failures.into_iter().min_by_key(is_echo) {
        Some(cause) => Err(cause),
        None => Ok(values),
    }
}

fn is_echo(error: &RankError) -> bool {
    use engine::Error::{Core, Stopped};
    let RankError::Work { source, .. } = error else { return false };
    matches!(**source, Error::Engine(Core(CoreError::RankLost { .. } | CoreError::Timeout { .. }) | Stopped(_)))
}
