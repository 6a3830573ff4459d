//! The learning rate of each step.

use crate::{Error, Result};
use burn::lr_scheduler::constant::ConstantLr;
use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use stoker_config::{LearningRate, LearningRateSchedule};

/// A learning rate for each step of a run, first to last, as the settings say: Burn's schedulers.
///
/// ```
/// use stoker_config::{LearningRate, LearningRateSchedule};
/// use stoker_trainer::Schedule;
///
/// let settings = LearningRate { schedule: LearningRateSchedule::Linear, base: 0.5, end: 0.25 };
/// let mut schedule = Schedule::new(&settings, 3)?;
/// assert_eq!([schedule.step(), schedule.step(), schedule.step()], [0.5, 0.375, 0.25]);
/// # Ok::<(), stoker_trainer::Error>(())
/// ```
#[derive(Clone)]
pub struct Schedule {
    /// Burn's linear schedule takes rates up to 1 only: this is what they are multiplied by.
    scale: f64,
    scheduler: ModuleLrScheduler,
}

impl Schedule {
    /// The schedule of a run of `steps` steps.
    ///
    /// # Errors
    /// Rates that Burn refuses: a linear schedule that grows, or is negative.
    pub fn new(settings: &LearningRate, steps: usize) -> Result<Self> {
        let &LearningRate { schedule, base, end } = settings;
        if schedule == LearningRateSchedule::Constant || base == 0.0 {
            return Ok(Self { scale: 1.0, scheduler: ModuleLrScheduler::new(ConstantLr::new(base)) });
        }
        let scale = base.max(1.0);
        // From the first step to the last there is one interval fewer than there are steps.
        let config = LinearLrSchedulerConfig::new(base / scale, end / scale, steps.saturating_sub(1).max(1));
        let scheduler = config.init().map_err(|reason| Error::Setting {
            key: "learning_rate",
            found: format!("linear from {base} to {end}"),
            wanted: format!("0 <= end <= base ({reason})"),
        })?;
        Ok(Self { scale, scheduler })
    }

    /// The learning rate of the next step; after the last one it stays.
    pub fn step(&mut self) -> f64 {
        self.scheduler.step().base() * self.scale
    }
}

impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule").field("scale", &self.scale).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(base: f64, end: f64, steps: usize, take: usize) -> Vec<f64> {
        let settings = LearningRate { schedule: LearningRateSchedule::Linear, base, end };
        let mut schedule = Schedule::new(&settings, steps).unwrap();
        (0..take).map(|_| schedule.step()).collect()
    }

    #[test]
    fn linear_begins_at_the_base_and_ends_at_the_end() {
        assert_eq!(rates(0.5, 0.0, 5, 7), [0.5, 0.375, 0.25, 0.125, 0.0, 0.0, 0.0]);
        assert_eq!(rates(4.0, 2.0, 3, 3), [4.0, 3.0, 2.0]);
        assert_eq!(rates(0.5, 0.0, 1, 1), [0.5]);
        assert_eq!(rates(0.0, 0.0, 4, 2), [0.0, 0.0]);
    }

    #[test]
    fn constant_stays() {
        let settings = LearningRate { schedule: LearningRateSchedule::Constant, base: 3.0, end: 0.0 };
        let mut schedule = Schedule::new(&settings, 0).unwrap();
        assert_eq!([schedule.step(), schedule.step()], [3.0, 3.0]);
    }

    #[test]
    fn what_burn_refuses_is_an_error() {
        let settings = LearningRate { schedule: LearningRateSchedule::Linear, base: 0.5, end: -0.5 };
        let error = Schedule::new(&settings, 4).unwrap_err().to_string();
        assert!(error.starts_with("learning_rate is linear from 0.5 to -0.5; allowed: 0 <= end <= base"), "{error}");
    }
}
