//! What must hold between keys.

use crate::{Error, Layer, LearningRateSchedule, Provenance, Result, Setting, Settings};
use std::fmt::Display;

/// Checks keys against each other.
pub(crate) fn check(settings: &Settings, provenance: &Provenance) -> Result<()> {
    let Settings { run, data, train, learning_rate, zero, schedule, .. } = settings;
    let conflict = |one: (&str, &dyn Display), other: (&str, &dyn Display), wanted: String| {
        let setting = |(key, found): (&str, &dyn Display)| {
            let layer = provenance.of(key).cloned().unwrap_or(Layer::Default);
            Box::new(Setting { key: key.to_owned(), found: found.to_string(), layer })
        };
        Err(Error::Conflict { one: setting(one), other: setting(other), wanted })
    };
    if !train.batch_size.is_multiple_of(run.ranks) {
        let next = train.batch_size.div_ceil(run.ranks).saturating_mul(run.ranks);
        return conflict(
            ("train.batch_size", &train.batch_size),
            ("run.ranks", &run.ranks),
            format!(
                "every rank takes an equal part of the batch, so it must be a multiple of the ranks, such as {next}"
            ),
        );
    }
    if data.train_records != 0 && data.train_records < train.batch_size {
        return conflict(
            ("data.train_records", &data.train_records),
            ("train.batch_size", &train.batch_size),
            "that is not one batch; use more records (0 for all) or a smaller batch".to_owned(),
        );
    }
    if learning_rate.schedule == LearningRateSchedule::Linear && learning_rate.end > learning_rate.base {
        return conflict(
            ("learning_rate.end", &learning_rate.end),
            ("learning_rate.base", &learning_rate.base),
            "a linear schedule decays, so the end must not be above the base".to_owned(),
        );
    }
    if zero.stage == 3 && schedule.pool_bytes == 0 {
        return conflict(
            ("schedule.pool_bytes", &schedule.pool_bytes),
            ("zero.stage", &zero.stage),
            "stage 3 gathers units in the pool, so it must hold at least the largest unit, such as \"256 MiB\""
                .to_owned(),
        );
    }
    Ok(())
}
