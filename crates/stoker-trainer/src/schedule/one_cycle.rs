//! One rise and one fall: PyTorch's `OneCycleLR` in two phases with cosine annealing and without a cycle of the momentum.
//! Burn has none.

use std::f64::consts::PI;
use stoker_config::LearningRate;

/// Rates of a cycle over a number of steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct OneCycle {
    begin: f64,
    peak: f64,
    end: f64,
    /// Where the peak is, in steps from the first; may lie between two steps, or before the first.
    peak_at: f64,
    last: f64,
    step: usize,
}

impl OneCycle {
    pub(super) fn new(settings: &LearningRate, steps: usize) -> Self {
        let begin = settings.base / settings.div_factor;
        Self {
            begin,
            peak: settings.base,
            end: begin / settings.final_div_factor,
            peak_at: settings.pct_start * steps as f64 - 1.0,
            last: steps as f64 - 1.0,
            step: 0,
        }
    }

    /// The rate of the next step.
    pub(super) fn next(&mut self) -> f64 {
        let step = self.step as f64;
        self.step += 1;
        if step <= self.peak_at {
            anneal(self.begin, self.peak, step, self.peak_at)
        } else {
            // In PyTorch the first phase begins at step 0 and the second where the first ends, be it before step 0.
            anneal(self.peak, self.end, step - self.peak_at, self.last - self.peak_at)
        }
    }
}

/// Half a cosine from `from` to `to`, after `done` of `whole`.
fn anneal(from: f64, to: f64, done: f64, whole: f64) -> f64 {
    // A phase of no length is over (PyTorch divides by zero).
    let part = if whole > 0.0 { (done / whole).min(1.0) } else { 1.0 };
    to + (from - to) / 2.0 * ((PI * part).cos() + 1.0)
}
