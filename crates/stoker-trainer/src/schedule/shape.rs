//! The course of a schedule after its warm-up: Burn's schedulers where it has one.

use super::one_cycle::OneCycle;
use crate::{Error, Result};
use burn::lr_scheduler::constant::ConstantLr;
use burn::lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig;
use burn::lr_scheduler::exponential::ExponentialLrSchedulerConfig;
use burn::lr_scheduler::linear::LinearLrSchedulerConfig;
use burn::lr_scheduler::module_lr_scheduler::ModuleLrScheduler;
use burn::lr_scheduler::step::StepLrSchedulerConfig;
use stoker_config::{LearningRate, LearningRateSchedule};

/// Rates, first to last. Nothing is said of those after the last.
#[derive(Clone)]
pub(super) enum Shape {
    /// Most of Burn's schedulers take rates up to 1 only: `scale` is what theirs are multiplied by.
    Burn {
        scale: f64,
        scheduler: Box<ModuleLrScheduler>,
    },
    OneCycle(OneCycle),
}

impl Shape {
    /// Over `steps` steps, at least one.
    pub(super) fn new(settings: &LearningRate, steps: usize) -> Result<Self> {
        let &LearningRate { schedule, base, end, gamma, step_size, .. } = settings;
        let steps = steps.max(1);
        // From the first step to the last there is one interval fewer than there are steps.
        let intervals = (steps - 1).max(1);
        let scale = base.max(1.0);
        let (initial, last) = (base / scale, end / scale);
        // Burn refuses a rate of 0, which no schedule changes.
        let made = match schedule {
            LearningRateSchedule::OneCycle => return Ok(Self::OneCycle(OneCycle::new(settings, steps))),
            LearningRateSchedule::Constant => Ok(ModuleLrScheduler::new(ConstantLr::new(initial))),
            _ if base == 0.0 => Ok(ModuleLrScheduler::new(ConstantLr::new(initial))),
            LearningRateSchedule::Linear => LinearLrSchedulerConfig::new(initial, last, intervals).init(),
            LearningRateSchedule::Cosine => {
                CosineAnnealingLrSchedulerConfig::new(initial, intervals).with_min_lr(last).init()
            }
            LearningRateSchedule::Exponential => ExponentialLrSchedulerConfig::new(initial, gamma).init(),
            LearningRateSchedule::Step => StepLrSchedulerConfig::new(initial, step_size).with_gamma(gamma).init(),
        };
        let scheduler = made.map_err(|reason| Error::Setting {
            key: "learning_rate",
            found: format!("{schedule} with base {base}, end {end}, gamma {gamma}, step_size {step_size}"),
            wanted: format!("0 <= end <= base, 0 < gamma <= 1, step_size from 1 on ({reason})"),
        })?;
        Ok(Self::Burn { scale, scheduler: Box::new(scheduler) })
    }

    /// The rate of the next step.
    pub(super) fn next(&mut self) -> f64 {
        match self {
            Self::Burn { scale, scheduler } => scheduler.step().base() * *scale,
            Self::OneCycle(cycle) => cycle.next(),
        }
    }
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Burn { scale, .. } => f.debug_struct("Burn").field("scale", scale).finish_non_exhaustive(),
            Self::OneCycle(cycle) => cycle.fmt(f),
        }
    }
}
