//! What a run shows while it goes on: on standard error, which leaves standard output to its result.

use crate::EpochReport;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{IsTerminal, Write};

/// How a run shows how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Progress {
    /// A bar on a terminal, lines elsewhere.
    #[default]
    Auto,
    /// A line about every tenth of the run, and one for each epoch.
    Lines,
    /// Not at all.
    Silent,
}

impl Progress {
    /// Shows a line of text.
    pub(crate) fn say(self, text: &str) {
        if self != Progress::Silent {
            // Nobody is left to be told of an error here.
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }
}

/// Shows one run.
pub(crate) struct Reporter {
    progress: Progress,
    bar: Option<ProgressBar>,
    steps: usize,
    epochs: usize,
}

impl Reporter {
    /// Of a run of so many steps and epochs.
    pub(crate) fn new(progress: Progress, steps: usize, epochs: usize) -> Self {
        let on_terminal = progress == Progress::Auto && std::io::stderr().is_terminal();
        Self { progress, bar: on_terminal.then(|| bar(steps)), steps, epochs }
    }

    /// A step was made.
    pub(crate) fn step(&self, loss: f64) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("loss {loss:.3}"));
            bar.inc(1);
        }
    }

    /// A part of the run is done.
    pub(crate) fn line(&self, epoch: usize, steps: usize, loss: f64, images_per_second: f64, loss_scale: Option<f64>) {
        if self.bar.is_none() {
            let loss_scale = loss_scale.map_or_else(String::new, |scale| format!("  loss scale {scale}"));
            self.say(&format!(
                "epoch {epoch}/{}  step {steps}/{}  loss {loss:.3}{loss_scale}  {images_per_second:.0} images/s",
                self.epochs, self.steps
            ));
        }
    }

    /// An epoch is done.
    pub(crate) fn epoch(&self, report: &EpochReport) {
        self.say(&format!(
            "epoch {}/{}  done in {:.1} s  loss {:.3}  validation loss {:.3}, accuracy {:.1} %",
            report.epoch,
            self.epochs,
            report.seconds,
            report.train_loss,
            report.valid_loss,
            report.valid_accuracy * 100.0
        ));
    }

    /// The run is over.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => self.progress.say(text),
        }
    }
}

impl Drop for Reporter {
    /// A run that fails leaves no half a bar.
    fn drop(&mut self) {
        self.finish();
    }
}

fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    // The template is a constant; were it wrong, the default style would do.
    match ProgressStyle::with_template("{bar:30} step {pos}/{len}  {msg}  {elapsed} elapsed, {eta} left") {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}
