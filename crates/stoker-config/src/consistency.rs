//! What must hold between keys.

use crate::{Error, Layer, LearningRateSchedule, LossScale, ModelName, Provenance, Result, Setting, Settings};
use std::fmt::Display;

/// Checks keys against each other.
pub(crate) fn check(settings: &Settings, provenance: &Provenance) -> Result<()> {
    batches(settings, provenance)?;
    clipping(settings, provenance)?;
    learning_rate(settings, provenance)?;
    precision(settings, provenance)?;
    experts(settings, provenance)
}

/// A key and its value.
type Found<'a> = (&'static str, &'a dyn Display);

fn conflict(provenance: &Provenance, one: Found<'_>, other: Found<'_>, wanted: impl Into<String>) -> Result<()> {
    let setting = |(key, found): Found<'_>| {
        let layer = provenance.of(key).cloned().unwrap_or(Layer::Default);
        Box::new(Setting { key: key.to_owned(), found: found.to_string(), layer })
    };
    Err(Error::Conflict { one: setting(one), other: setting(other), wanted: wanted.into() })
}

fn batches(Settings { run, data, train, .. }: &Settings, provenance: &Provenance) -> Result<()> {
    let batch_size: Found<'_> = ("train.batch_size", &train.batch_size);
    let parts = run.ranks.saturating_mul(train.accumulation);
    if !train.batch_size.is_multiple_of(parts) {
        let next = train.batch_size.div_ceil(parts).saturating_mul(parts);
        if train.accumulation == 1 {
            return conflict(
                provenance,
                batch_size,
                ("run.ranks", &run.ranks),
                format!(
                    "every rank takes an equal part of the batch, so it must be a multiple of the ranks, such as {next}"
                ),
            );
        }
        return conflict(
            provenance,
            batch_size,
            ("train.accumulation", &train.accumulation),
            format!(
                "the batch is cut into so many micro-batches, of which every rank (run.ranks is {}) takes an equal \
                 part, so it must be a multiple of {parts}, such as {next}",
                run.ranks
            ),
        );
    }
    if data.train_records != 0 && data.train_records < train.batch_size {
        return conflict(
            provenance,
            ("data.train_records", &data.train_records),
            batch_size,
            "that is not one batch; use more records (0 for all) or a smaller batch",
        );
    }
    Ok(())
}

fn clipping(Settings { train, .. }: &Settings, provenance: &Provenance) -> Result<()> {
    if train.clip_norm > 0.0 && train.clip_value > 0.0 {
        return conflict(
            provenance,
            ("train.clip_norm", &train.clip_norm),
            ("train.clip_value", &train.clip_value),
            "a gradient is clipped by its norm or by its values; set one of them to 0",
        );
    }
    Ok(())
}

fn learning_rate(Settings { learning_rate, .. }: &Settings, provenance: &Provenance) -> Result<()> {
    let schedule: Found<'_> = ("learning_rate.schedule", &learning_rate.schedule);
    match learning_rate.schedule {
        LearningRateSchedule::Linear | LearningRateSchedule::Cosine if learning_rate.end > learning_rate.base => {
            conflict(
                provenance,
                ("learning_rate.end", &learning_rate.end),
                ("learning_rate.base", &learning_rate.base),
                format!("a {} schedule decays, so the end must not be above the base", learning_rate.schedule),
            )
        }
        LearningRateSchedule::Step if learning_rate.step_size == 0 => conflict(
            provenance,
            ("learning_rate.step_size", &learning_rate.step_size),
            schedule,
            "say after how many steps the rate falls, such as 1000",
        ),
        LearningRateSchedule::Exponential | LearningRateSchedule::Step if learning_rate.gamma == 1.0 => conflict(
            provenance,
            ("learning_rate.gamma", &learning_rate.gamma),
            schedule,
            "times 1 the rate never falls; say by which factor it does, such as 0.999 for \"exponential\" (every step) \
             or 0.1 for \"step\" (every learning_rate.step_size steps)",
        ),
        _ => Ok(()),
    }
}

fn precision(Settings { precision, .. }: &Settings, provenance: &Provenance) -> Result<()> {
    let initial = 2f64.powf(f64::from(precision.initial_scale_power));
    if precision.effective_loss_scale() == LossScale::Dynamic && precision.minimum_scale > initial {
        return conflict(
            provenance,
            ("precision.minimum_scale", &precision.minimum_scale),
            ("precision.initial_scale_power", &precision.initial_scale_power),
            format!("the scale begins at 2 to that power, {initial}, and must not begin below its minimum"),
        );
    }
    Ok(())
}

fn experts(Settings { model, .. }: &Settings, provenance: &Provenance) -> Result<()> {
    if model.name == ModelName::MoeLeNet && model.top_k > model.experts {
        return conflict(
            provenance,
            ("model.top_k", &model.top_k),
            ("model.experts", &model.experts),
            "a picture cannot go to more experts than there are",
        );
    }
    Ok(())
}
