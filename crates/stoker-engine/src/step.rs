//! The end of a step: reduce what is left, decide by one number, update.

use crate::bridge::Bridge;
use crate::engine::Engine;
use crate::gather::here;
use crate::settings::Stage;
use crate::unit::{Shard, UnitId};
use crate::update::Job;
use crate::{Error, Result};
use stoker_core::{HostBuffer, Segment, StepContext};

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Parameters were updated (or are being updated in the background).
    Updated,
    /// A gradient was not finite: parameters and optimizer state are untouched, on all ranks.
    Skipped,
}

/// The account of a step.
#[derive(Debug, Clone, Copy)]
pub struct StepReport {
    /// Whether it updated.
    pub outcome: Outcome,
    /// Updates so far, this one included.
    pub updates: u64,
    /// Global L2 norm of the mean gradient.
    pub gradient_norm: f64,
    /// Learning rate that it used.
    pub learning_rate: f64,
    /// Loss scale that its gradients had; 1 if none is used.
    pub loss_scale: f64,
    /// Steps skipped in a row, this one included.
    pub consecutive_skips: u32,
}

impl<B: Bridge> Engine<B> {
    /// Ends a step: every rank's gradients since the last one become one update.
    ///
    /// `learning_rate`: of this update. `micro_batches`: backwards since the last step, whose mean gradient is taken.
    /// Returns as soon as the decision is made; updates go on in the background and are waited for by the next use of
    /// their unit.
    ///
    /// # Errors
    /// What a collective, a copy or an update failed with.
    pub fn step(&mut self, learning_rate: f64, micro_batches: u32) -> Result<StepReport> {
        self.alive()?;
        self.phase = "step";
        self.finish_reduction()?;
        self.agree_on_gradients()?;
        let world = self.plugins.communicator.world();
        let scale = 1.0 / (world as f64 * f64::from(micro_batches.max(1)));
        let gradient_norm = self.sum_of_squares()?.sqrt() * scale;
        let outcome = if gradient_norm.is_finite() { Outcome::Updated } else { Outcome::Skipped };
        match outcome {
            Outcome::Updated => {
                self.updates += 1;
                let context = StepContext::scaled(scale as f32);
                self.update_all(learning_rate, context)?;
            }
            Outcome::Skipped => {
                self.skipped += 1;
                tracing::warn!(
                    rank = self.plugins.communicator.rank(),
                    update = self.updates + 1,
                    gradient_norm,
                    skipped = self.skipped,
                    "a gradient is not finite: the step is skipped on all ranks"
                );
            }
        }
        for unit in 0..self.units.len() {
            self.units[unit].gradient.next_step();
            self.hold(unit).until_backward = false;
        }
        self.order.next_step();
        Ok(StepReport {
            outcome,
            updates: self.updates,
            gradient_norm,
            learning_rate,
            loss_scale: 1.0,
            consecutive_skips: 0,
        })
    }

    /// Makes all ranks see which parameters got a gradient on any of them, and reduces what was not reduced yet.
    fn agree_on_gradients(&mut self) -> Result<()> {
        let mut pending: Vec<bool> = (0..self.units.len()).map(|unit| self.buckets[unit].is_some()).collect();
        if self.plugins.communicator.world() > 1 {
            // A sum of zeros and ones: more than zero where any rank has something.
            let flags = pending.iter().chain(self.units.iter().flat_map(|unit| &unit.gradient.arrived));
            let flags: Vec<f64> = flags.map(|&flag| f64::from(u8::from(flag))).collect();
            let buffer = HostBuffer::from_slice(&flags);
            let summed = self.plugins.communicator.all_reduce("which gradients arrived", buffer)?.wait()?;
            let mut flags = summed.as_slice::<f64>().iter().map(|&sum| sum > 0.0);
            let arrived = self.units.iter_mut().flat_map(|unit| unit.gradient.arrived.iter_mut());
            for (flag, any) in pending.iter_mut().chain(arrived).zip(&mut flags) {
                *flag = any;
            }
        }
        for (unit, pending) in pending.into_iter().enumerate() {
            if pending {
                self.start_reduction(unit)?;
                self.finish_reduction()?;
            }
        }
        Ok(())
    }

    /// Of the summed gradients of all ranks and micro-batches.
    fn sum_of_squares(&mut self) -> Result<f64> {
        let mut sum = 0.0;
        // At stage 0 every rank has the whole gradient; one of them speaks for all.
        let speaks = self.settings.stage != Stage::Zero || self.plugins.communicator.rank() == 0;
        for unit in (0..self.units.len()).filter(|_| speaks) {
            if !self.units[unit].gradient.region_filled {
                continue;
            }
            let gradient = &mut here(&mut self.units[unit].shard)?.gradient;
            sum += match gradient.host() {
                Some(memory) => stoker_kernels::norm::sum_of_squares(memory.as_slice::<f32>()),
                None => {
                    let staging = HostBuffer::zeros::<f32>(gradient.spec().elements);
                    stoker_kernels::norm::sum_of_squares(gradient.read(0, staging)?.wait()?.as_slice::<f32>())
                }
            };
        }
        if self.plugins.communicator.world() == 1 {
            return Ok(sum);
        }
        let buffer = HostBuffer::from_slice(&[sum]);
        let total = self.plugins.communicator.all_reduce("gradient norm", buffer)?.wait()?;
        Ok(total.as_slice::<f64>().first().copied().unwrap_or(f64::NAN))
    }

    /// Updates the units in the order in which the next forward will want them.
    fn update_all(&mut self, learning_rate: f64, context: StepContext) -> Result<()> {
        let mut units = self.order_of_next_forward();
        units.retain(|&unit| self.units[unit].gradient.arrived.contains(&true));
        for unit in units {
            // A fetch ahead still has the shard; its slab will be stale.
            self.finish_fill(unit)?;
            let segments = self.segments(unit, learning_rate);
            let Shard::Here(regions) = std::mem::replace(&mut self.units[unit].shard, Shard::Lost) else {
                return Err(Error::Stopped("a shard was used while its update runs".to_owned()));
            };
            let name = self.units[unit].name().to_owned();
            let optimizer = self.plugins.optimizer.clone();
            let job = Job { unit: name, regions, segments, context, optimizer };
            self.units[unit].shard = match &self.updater {
                Some(updater) => Shard::Updating(updater.submit(job)),
                None => Shard::Here(job.run()?),
            };
            self.units[unit].version += 1;
        }
        Ok(())
    }

    fn order_of_next_forward(&self) -> Vec<UnitId> {
        let mut units = self.order.first_uses();
        let missing: Vec<_> = (0..self.units.len()).filter(|unit| !units.contains(unit)).collect();
        units.extend(missing);
        units
    }

    /// The parts of this rank's shard that are updated: trained parameters that got a gradient.
    fn segments(&self, unit: UnitId, learning_rate: f64) -> Vec<Segment> {
        let Some(unit) = self.units.get(unit) else { return Vec::new() };
        // At stage 0 the plan is of a world of one, whose only shard is everything.
        let rank = if unit.plan.world() == 1 { 0 } else { self.plugins.communicator.rank() };
        let parameters = unit.plan.parameters.iter().zip(&unit.trainable).zip(&unit.gradient.arrived);
        parameters
            .filter(|((_, trainable), arrived)| **trainable && **arrived)
            .flat_map(|((parameter, _), _)| unit.plan.overlap(rank, &parameter.range))
            .map(|(_, range)| Segment { range, update: self.updates, learning_rate, weight_decay: None })
            .collect()
    }

    /// Waits for the unit's update, if one runs.
    pub(crate) fn settle_update(&mut self, unit: UnitId) -> Result<()> {
        match std::mem::replace(&mut self.units[unit].shard, Shard::Lost) {
            Shard::Updating(ticket) => self.units[unit].shard = Shard::Here(ticket.wait()?),
            settled => self.units[unit].shard = settled,
        }
        Ok(())
    }

    /// Waits until nothing is in flight: updates, fetches, reductions.
    ///
    /// # Errors
    /// What any of them failed with.
    pub fn flush(&mut self) -> Result<()> {
        self.alive()?;
        self.finish_reduction()?;
        for unit in 0..self.units.len() {
            self.finish_fill(unit)?;
            self.settle_update(unit)?;
        }
        Ok(())
    }
}
