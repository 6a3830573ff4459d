//! Updates that begin in backward, before the gradient of the whole model is known.

use crate::bridge::Bridge;
use crate::engine::Engine;
use crate::settings::{Clipping, LossScale, Stage};
use crate::unit::UnitId;
use crate::{Error, Result};
use stoker_core::Ticket;

/// [Note: Updates in backward] A unit's update needs its own gradient and, where gradients are clipped by their norm or
/// have a loss scale, one number of the whole model: the norm, or whether all are finite. Without these the update may run
/// as soon as the unit's gradient is complete, beside the backward of the units before it. What is lost is the step that
/// is skipped as a whole: when a gradient is found that is not finite, units after it are updated already, so that is an
/// error. Among several ranks a unit's update also waits to hear which gradients others have, so there it stays at the end.
impl<B: Bridge> Engine<B> {
    /// Tells that the backward that comes is the only one of its step, which will be made with `learning_rate`.
    ///
    /// # Errors
    /// When the engine has stopped.
    pub fn announce_step(&mut self, learning_rate: f64) -> Result<()> {
        self.alive()?;
        self.announced = self.updates_in_backward().then_some(learning_rate);
        Ok(())
    }

    fn updates_in_backward(&self) -> bool {
        self.settings.update_in_backward
            && self.settings.stage >= Stage::Two
            && self.is_alone()
            && self.settings.loss_scale == LossScale::None
            && !matches!(self.settings.clipping, Clipping::Norm(_))
    }

    /// A step must be what was announced.
    pub(crate) fn check_announced(&self, learning_rate: f64, micro_batches: u32) -> Result<()> {
        match self.announced {
            Some(announced) if (announced, 1) != (learning_rate, micro_batches) => Err(Error::Stopped(format!(
                "a step of one backward with learning rate {announced:e} was announced, and one of {micro_batches} with \
                 {learning_rate:e} was made"
            ))),
            _ => Ok(()),
        }
    }

    /// The unit's gradient is complete and in its region: updates it, if that was announced.
    pub(crate) fn update_in_backward(&mut self, unit: UnitId) -> Result<()> {
        let Some(learning_rate) = self.announced else { return Ok(()) };
        // Known by now: the device summed before it copied.
        let sums = self.sums_of_unit(unit)?;
        if let Some(parameter) = sums.iter().position(|sum| !sum.is_finite()) {
            let parameter = self.parameter(unit, parameter).map_or_else(String::new, |placed| placed.spec.path.clone());
            return Err(Error::CannotSkip { parameter });
        }
        self.units[unit].gradient.sums_of_squares = Some(Ticket::ready(sums));
        self.submit_update(unit, learning_rate, self.settings.clipping.context(1.0, 0.0))
    }

    /// A unit that was updated can take no more gradients in this step.
    pub(crate) fn check_not_updated(&self, unit: UnitId) -> Result<()> {
        if self.units[unit].gradient.updated {
            return Err(Error::UpdatedBefore { unit: self.units[unit].name().to_owned() });
        }
        Ok(())
    }
}
