//! The training loop of one rank.

use crate::losses::Losses;
use crate::progress::Reporter;
use crate::{Classifier, Progress, Rank, Result, cross_entropy};
use burn::module::Module;
use serde::Serialize;
use std::time::{Duration, Instant};
use stoker_config::LossScale;
use stoker_data::Sources;
use stoker_engine::Outcome;

/// What one epoch came to, over all ranks.
#[derive(Debug, Clone, Serialize)]
pub struct EpochReport {
    /// Which, from 1.
    pub epoch: usize,
    /// Its steps.
    pub steps: usize,
    /// Mean loss of its steps, each before its update.
    pub train_loss: f64,
    /// Mean loss of the validation records after it.
    pub valid_loss: f64,
    /// Part of the validation records that were told right after it.
    pub valid_accuracy: f64,
    /// Seconds of training, without validation.
    pub seconds: f64,
}

/// What a training came to, over all ranks.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// Steps, skipped ones among them.
    pub steps: usize,
    /// Steps whose gradient was not finite: they changed nothing.
    pub skipped_steps: usize,
    /// Steps whose loss was not finite: the means leave them out.
    pub not_finite_losses: usize,
    /// Loss scale of the last step, if the loss is scaled.
    pub loss_scale: Option<f64>,
    /// Loss of the first step, before its update.
    pub first_loss: f64,
    /// Mean loss of the last 50 steps.
    pub train_loss: f64,
    /// Epoch by epoch. The last one may be cut short by `train.max_steps`.
    pub epochs: Vec<EpochReport>,
    /// Records trained on.
    pub images: usize,
    /// Time of training, without validation.
    pub training: Duration,
}

/// Trains `model` on `data` as the rank's settings say: cross-entropy, validation after every epoch.
///
/// Every rank must call it. `progress` is shown by rank 0.
///
/// # Errors
/// Whatever a step or a validation fails with.
pub fn fit<M: Module + Classifier>(rank: &Rank, model: &M, data: &Sources, progress: Progress) -> Result<Fitted> {
    let steps = rank.batches(&data.train)?.steps();
    let (total, global_batch) = (steps.len(), steps.global_batch());
    let epochs = total.div_ceil(steps.per_epoch());
    let is_scaled = rank.settings().precision.effective_loss_scale() != LossScale::None;
    let reporter = Reporter::new(if rank.number() == 0 { progress } else { Progress::Silent }, total, epochs);
    let every = total.div_ceil(10).max(1);

    let mut losses = Losses::default();
    // Losses of this rank that the others do not know yet.
    let mut own = Vec::new();
    let mut fitted = Fitted {
        steps: 0,
        skipped_steps: 0,
        not_finite_losses: 0,
        loss_scale: None,
        first_loss: f64::NAN,
        train_loss: f64::NAN,
        epochs: Vec::new(),
        images: 0,
        training: Duration::ZERO,
    };
    let mut started = Instant::now();
    for micro_batches in steps {
        let (epoch, step_of_epoch, ends_epoch) =
            (micro_batches.epoch(), micro_batches.step(), micro_batches.ends_epoch());
        let step = rank.step_over(micro_batches, |batch| {
            let (logits, wish) = model.forward_with_loss(batch.images);
            cross_entropy(logits, batch.labels) + wish
        })?;
        fitted.steps += 1;
        fitted.images += global_batch;
        fitted.skipped_steps += usize::from(step.report.outcome == Outcome::Skipped);
        fitted.loss_scale = is_scaled.then_some(step.report.loss_scale);
        own.push(step.loss);
        reporter.step(step.loss);
        if fitted.steps.is_multiple_of(every) || ends_epoch {
            // Every rank comes here at the same steps.
            let world = rank.world() as f64;
            for sum in rank.sum("training losses", &std::mem::take(&mut own))? {
                losses.add(sum / world);
            }
            if !ends_epoch {
                let speed = fitted.images as f64 / (fitted.training + started.elapsed()).as_secs_f64();
                reporter.line(epoch + 1, fitted.steps, losses.recent(), speed, fitted.loss_scale);
            }
        }
        if ends_epoch {
            // The last update belongs to the training.
            rank.flush()?;
            let seconds = started.elapsed();
            fitted.training += seconds;
            let validation = rank.validate(&data.valid, |images| model.forward(images))?;
            let report = EpochReport {
                epoch: epoch + 1,
                steps: step_of_epoch + 1,
                train_loss: losses.end_epoch(),
                valid_loss: validation.loss,
                valid_accuracy: validation.accuracy,
                seconds: seconds.as_secs_f64(),
            };
            if rank.number() == 0 {
                let EpochReport { epoch, train_loss, valid_loss, valid_accuracy, seconds, .. } = report;
                tracing::info!(epoch, train_loss, valid_loss, valid_accuracy, seconds, "epoch");
            }
            reporter.epoch(&report);
            fitted.epochs.push(report);
            started = Instant::now();
        }
    }
    reporter.finish();
    fitted.first_loss = losses.first();
    fitted.train_loss = losses.recent();
    fitted.not_finite_losses = losses.not_finite();
    Ok(fitted)
}
