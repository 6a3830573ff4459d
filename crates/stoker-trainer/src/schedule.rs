//! The learning rate of each step.

mod one_cycle;
mod shape;
mod warmup;

#[cfg(test)]
mod tests;

use crate::Result;
use shape::Shape;
use stoker_config::LearningRate;
use warmup::WarmUp;

/// Steps of a run whose number nobody said: what Burn's step schedule can count.
const UNKNOWN: usize = i32::MAX as usize;

/// A learning rate for each step of a run, first to last, as the settings say.
///
/// It stands at a step until it is told to [`advance`](Self::advance): a step that is skipped is made again with the same
/// rate.
///
/// ```
/// use stoker_config::{Settings, Sources};
/// use stoker_trainer::Schedule;
/// # use {stoker_cpu_offload as _, stoker_optimizers as _, stoker_partitioners as _, stoker_threads as _};
///
/// let overrides = ["schedule=linear", "base=0.5", "end=0.25"].map(|key| format!("learning_rate.{key}"));
/// let (settings, _) = Settings::load(&Sources { overrides: overrides.to_vec(), ..Sources::default() })?;
/// let mut schedule = Schedule::new(&settings.learning_rate, 3)?;
/// assert_eq!(schedule.rate(), 0.5);
/// schedule.advance();
/// assert_eq!(schedule.rate(), 0.375);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Schedule {
    warm_up: WarmUp,
    shape: Shape,
    /// Of the shape, without the warm-up's part.
    rate: f64,
    step: usize,
    last: usize,
}

impl Schedule {
    /// The schedule of a run of `steps` steps; 0 if nobody knows how many.
    ///
    /// # Errors
    /// Settings that were made by hand and that Burn refuses: a schedule that grows, or is negative.
    pub fn new(settings: &LearningRate, steps: usize) -> Result<Self> {
        let warm_up = WarmUp::new(settings.warmup, settings.warmup_steps);
        let mut shape = Shape::new(settings, steps.saturating_sub(warm_up.steps()))?;
        let rate = shape.next();
        let last = if steps == 0 { UNKNOWN } else { steps }.saturating_sub(1);
        Ok(Self { warm_up, shape, rate, step: 0, last })
    }

    /// The learning rate of the step whose turn it is.
    pub fn rate(&self) -> f64 {
        self.rate * self.warm_up.factor(self.step)
    }

    /// Goes to the next step; from the last one there is none.
    pub fn advance(&mut self) {
        if self.step < self.last {
            self.step += 1;
            if self.step > self.warm_up.steps() {
                self.rate = self.shape.next();
            }
        }
    }
}
