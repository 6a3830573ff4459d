//! What a run came to, for people and for programs.

use crate::json::write_json;
use crate::{EpochReport, Error, Fitted, Result, models, text};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::Duration;
use stoker_config::Settings;
use stoker_engine::{Moved, Peak};

/// What one rank has to say.
#[derive(Debug)]
pub(crate) struct RankReport {
    pub(crate) fitted: Fitted,
    pub(crate) parameters: u64,
    pub(crate) peaks: Vec<Peak>,
    pub(crate) moved: Moved,
}

/// Bytes by place (`device`, `host`), then by role (`slab`, `parameters`); `total` is the peak of a place as a whole,
/// which is less than the sum of its roles' peaks if they had them at different times.
pub type PeakBytes = BTreeMap<String, BTreeMap<String, u64>>;

/// What a run came to. Numbers that are not finite are `null` in JSON.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Number of ranks.
    pub world: usize,
    /// ZeRO stage.
    pub stage: u8,
    /// The model, with the divisor of its widths or its experts if it has them: `lenet`, `seednet/32`, `moe-lenet/4
    /// top-1`.
    pub model: String,
    /// Its numbers that are trained or kept.
    pub parameters: u64,
    /// `cifar10` or `builtin`.
    pub data_source: String,
    /// Name of the offload target.
    pub offload: String,
    /// Steps, skipped ones among them.
    pub steps: usize,
    /// Steps whose gradient was not finite: they changed nothing.
    pub skipped_steps: usize,
    /// Steps whose loss was not finite: the means leave them out.
    pub not_finite_losses: usize,
    /// Loss scale of the last step, if the loss is scaled.
    pub loss_scale: Option<f64>,
    /// Loss of the first step, over all ranks.
    pub first_loss: f64,
    /// Mean loss of the last 50 steps (of all if there were fewer), over all ranks.
    pub train_loss: f64,
    /// Mean loss of the validation records at the end.
    pub valid_loss: f64,
    /// Part of the validation records told right at the end, from 0 to 1.
    pub valid_accuracy: f64,
    /// Records trained on a second, over all ranks; validation does not count.
    pub images_per_second: f64,
    /// Seconds of the whole run.
    pub seconds: f64,
    /// Peaks of the engine's memory, summed over the ranks.
    pub peak_bytes: PeakBytes,
    /// The same of whichever rank had most: what a rank's limits are held against.
    pub peak_bytes_of_a_rank: PeakBytes,
    /// Bytes moved, summed over the ranks.
    pub bytes_moved: Moved,
    /// Epoch by epoch.
    pub epochs: Vec<EpochReport>,
}

impl Summary {
    pub(crate) fn new(settings: &Settings, data: &str, ranks: &[RankReport], elapsed: Duration) -> Result<Self> {
        let first = ranks.first().ok_or(Error::Misuse("a run of no ranks has no summary"))?;
        // What is over all ranks is the same on each.
        let fitted = &first.fitted;
        let last = fitted.epochs.last();
        let mut bytes_moved = Moved::default();
        for rank in ranks {
            bytes_moved.to_device += rank.moved.to_device;
            bytes_moved.from_device += rank.moved.from_device;
            bytes_moved.between_ranks += rank.moved.between_ranks;
        }
        Ok(Self {
            world: ranks.len(),
            stage: settings.zero.stage,
            model: models::title(&settings.model),
            parameters: first.parameters,
            data_source: data.to_owned(),
            offload: settings.offload.name.clone(),
            steps: fitted.steps,
            skipped_steps: fitted.skipped_steps,
            not_finite_losses: fitted.not_finite_losses,
            loss_scale: fitted.loss_scale,
            first_loss: fitted.first_loss,
            train_loss: fitted.train_loss,
            valid_loss: last.map_or(f64::NAN, |epoch| epoch.valid_loss),
            valid_accuracy: last.map_or(f64::NAN, |epoch| epoch.valid_accuracy),
            images_per_second: fitted.images as f64 / fitted.training.as_secs_f64(),
            seconds: elapsed.as_secs_f64(),
            peak_bytes: merged(ranks, |all, one| all + one),
            peak_bytes_of_a_rank: merged(ranks, u64::max),
            bytes_moved,
            epochs: fitted.epochs.clone(),
        })
    }

    /// Writes it to a file as one JSON object. The file is complete or, on an error, what it was before.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write_json(&self, path: &Path) -> Result<()> {
        write_json(self, path)
    }
}

fn merged(ranks: &[RankReport], merge: impl Fn(u64, u64) -> u64) -> PeakBytes {
    let mut peaks = PeakBytes::new();
    for peak in ranks.iter().flat_map(|rank| &rank.peaks) {
        let role = peak.role.map_or_else(|| "total".to_owned(), |role| role.to_string());
        let bytes = peaks.entry(peak.place.to_string()).or_default().entry(role).or_insert(0);
        *bytes = merge(*bytes, peak.bytes);
    }
    peaks
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = if self.world == 1 { "rank" } else { "ranks" };
        writeln!(f, "model           {}, {} parameters", self.model, text::thousands(self.parameters))?;
        writeln!(
            f,
            "run             {} {ranks}, ZeRO stage {}, shards in {}, data {}",
            self.world, self.stage, self.offload, self.data_source
        )?;
        let mut steps = format!("{} in {}", self.steps, text::seconds(self.seconds));
        if self.skipped_steps > 0 {
            let _ = write!(steps, ", {} skipped (a gradient was not finite)", self.skipped_steps);
        }
        writeln!(f, "steps           {steps}, {:.1} images/s", self.images_per_second)?;
        let mut loss = format!("{:.3} at first, {:.3} at last", self.first_loss, self.train_loss);
        if self.not_finite_losses > 0 {
            let _ = write!(loss, ", not finite in {} steps", self.not_finite_losses);
        }
        writeln!(f, "training loss   {loss}")?;
        if let Some(loss_scale) = self.loss_scale {
            writeln!(f, "loss scale      {loss_scale} at last")?;
        }
        writeln!(f, "validation      loss {:.3}, accuracy {:.1} %", self.valid_loss, self.valid_accuracy * 100.0)?;
        let names = ["all ranks", "largest rank"];
        text::places(f, "peak memory", names, &self.peak_bytes, &self.peak_bytes_of_a_rank)?;
        let Moved { to_device, from_device, between_ranks } = self.bytes_moved;
        writeln!(
            f,
            "bytes moved     {} to devices, {} from devices, {} between ranks",
            text::bytes(to_device),
            text::bytes(from_device),
            text::bytes(between_ranks)
        )
    }
}

#[cfg(test)]
mod tests;
