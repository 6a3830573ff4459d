//! The end of a step: reduce what is left, decide by one number, update.

use crate::agree::NotFinite;
use crate::bridge::Bridge;
use crate::engine::Engine;
use crate::settings::{Clipping, DynamicLossScale, LossScale};
use crate::unit::{Shard, Unit, UnitId};
use crate::update::Job;
use crate::{Error, Result};
use stoker_core::{DType, Segment, StepContext};

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
    /// Global L2 norm of the mean gradient, free of the loss scale and before clipping.
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
    /// What a collective, a copy or an update failed with; [`Error::NothingTrained`] when too many steps in a row were
    /// skipped.
    pub fn step(&mut self, learning_rate: f64, micro_batches: u32) -> Result<StepReport> {
        self.alive()?;
        self.phase = "step";
        self.check_announced(learning_rate, micro_batches)?;
        self.finish_reductions()?;
        // Ranks that scale by other numbers would part without a word: the collective's name makes them notice.
        let what = format!("gradients of {micro_batches} micro-batches for learning rate {learning_rate:e}");
        let gradients = self.agree_on_gradients(&what)?;
        let world = self.plugins.communicator.world();
        let loss_scale = self.scaler.scale();
        let scale = 1.0 / (world as f64 * f64::from(micro_batches.max(1)) * loss_scale);
        let gradient_norm = gradients.sum_of_squares.sqrt() * scale;
        let outcome = if gradients.not_finite.is_none() { Outcome::Updated } else { Outcome::Skipped };
        if let Some(not_finite) = gradients.not_finite {
            if self.announced.is_some() {
                return Err(Error::CannotSkip { parameter: not_finite.parameter });
            }
            self.skip(&not_finite, gradient_norm)?;
        } else {
            self.updates += 1;
            self.consecutive_skips = 0;
            self.update_all(learning_rate, self.settings.clipping.context(scale, gradient_norm))?;
        }
        self.announced = None;
        self.scaler.step(outcome == Outcome::Skipped);
        for unit in 0..self.units.len() {
            self.units[unit].gradient.next_step();
            let hold = self.hold(unit);
            (hold.until_backward, hold.in_backward) = (false, false);
        }
        self.order.next_step();
        let (updates, consecutive_skips) = (self.updates, self.consecutive_skips);
        Ok(StepReport { outcome, updates, gradient_norm, learning_rate, loss_scale, consecutive_skips })
    }

    /// Counts and tells a step that changes nothing.
    fn skip(&mut self, not_finite: &NotFinite, gradient_norm: f64) -> Result<()> {
        self.skipped += 1;
        self.consecutive_skips += 1;
        let (rank, loss_scale) = (self.plugins.communicator.rank(), self.scaler.scale());
        let step = self.updates + self.skipped;
        tracing::warn!(
            rank,
            step,
            loss_scale,
            parameter = not_finite.parameter,
            found_by = not_finite.rank.map_or_else(|| "the sum over ranks".to_owned(), |rank| format!("rank {rank}")),
            gradient_norm,
            skipped = self.skipped,
            in_a_row = self.consecutive_skips,
            "a gradient is not finite: the step is skipped on all ranks"
        );
        let limit = self.settings.max_consecutive_skips;
        if limit == 0 || self.consecutive_skips < limit {
            return Ok(());
        }
        Err(Error::NothingTrained {
            skips: self.consecutive_skips,
            step,
            loss_scale,
            not_finite: not_finite.clone(),
            advice: match self.settings.loss_scale {
                LossScale::Dynamic(DynamicLossScale { minimum, .. }) if loss_scale > minimum => {
                    "the loss scale is still falling: lower precision.initial_scale_power, or raise \
                     precision.max_consecutive_skips"
                }
                LossScale::Static(scale) if scale > 1.0 => {
                    "lower precision.static_scale, or take loss_scale = \"dynamic\""
                }
                _ if self.units.iter().any(|unit| unit.dtype != DType::F32) => {
                    "lower the learning rate, or compute in f32 to see whether the range of the type is the cause"
                }
                _ => "lower the learning rate, or look at the records and the loss of the first step that was skipped",
            },
        })
    }

    /// Updates the units in the order in which the next forward will want them.
    fn update_all(&mut self, learning_rate: f64, context: StepContext) -> Result<()> {
        let mut units = self.order_of_next_forward();
        units.retain(|&unit| {
            let Unit { trainable, gradient, .. } = &self.units[unit];
            *trainable && !gradient.updated && gradient.arrived.contains(&true)
        });
        units.into_iter().try_for_each(|unit| self.submit_update(unit, learning_rate, context))
    }

    /// Begins the unit's update.
    pub(crate) fn submit_update(&mut self, unit: UnitId, learning_rate: f64, context: StepContext) -> Result<()> {
        // A fetch ahead still has the shard; its slab will be stale.
        self.finish_fill(unit)?;
        self.settle(unit)?;
        self.units[unit].count_update();
        let segments = self.segments(unit, learning_rate);
        self.units[unit].version += 1;
        self.units[unit].gradient.updated = true;
        if self.update_on_device(unit, &segments, &context)? {
            return Ok(());
        }
        let Shard::Here(regions) = std::mem::replace(&mut self.units[unit].shard, Shard::Lost) else {
            return Err(Error::Stopped("a shard was used while its update runs".to_owned()));
        };
        let name = self.units[unit].name().to_owned();
        // What the next forward wants first is updated first.
        let turn = self.order.first_use(unit).unwrap_or(usize::MAX);
        let optimizer = self.plugins.optimizer.clone();
        let job = Job { unit: name, regions, segments, context, optimizer };
        self.units[unit].shard = match &self.updater {
            Some(updater) => Shard::Updating(updater.submit(job, turn)),
            None => Shard::Here(job.run_on(&self.workers)?),
        };
        Ok(())
    }

    fn order_of_next_forward(&self) -> Vec<UnitId> {
        let mut units = self.order.first_uses();
        let missing: Vec<_> = (0..self.units.len()).filter(|unit| !units.contains(unit)).collect();
        units.extend(missing);
        units
    }

    /// The parts of this rank's shard that are updated: parameters that got a gradient.
    fn segments(&self, id: UnitId, learning_rate: f64) -> Vec<Segment> {
        let Some(unit) = self.units.get(id) else { return Vec::new() };
        let rank = self.plan_rank(id);
        let parameters = unit.plan.parameters.iter().zip(&unit.rules).zip(&unit.updates).zip(&unit.gradient.arrived);
        parameters
            .filter(|(_, arrived)| **arrived)
            .flat_map(|(((parameter, rule), &update), _)| {
                let pieces = unit.plan.overlap(rank, &parameter.range);
                pieces.into_iter().map(move |(_, range)| Segment {
                    range,
                    update,
                    learning_rate: learning_rate * rule.learning_rate_scale,
                    weight_decay: rule.weight_decay,
                })
            })
            .collect()
    }

    /// Waits for the unit's update, if one runs.
    pub(crate) fn settle_update(&mut self, unit: UnitId) -> Result<()> {
        match std::mem::replace(&mut self.units[unit].shard, Shard::Lost) {
            Shard::Updating(ticket) => {
                let _span = tracing::trace_span!("await update", unit = %self.units[unit].name()).entered();
                self.units[unit].shard = Shard::Here(ticket.wait()?);
            }
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
        self.finish_reductions()?;
        for unit in 0..self.units.len() {
            self.finish_fill(unit)?;
            self.settle(unit)?;
        }
        Ok(())
    }
}

impl Clipping {
    /// How the accumulated gradient becomes the one that is updated with. `scale` makes it the mean gradient, whose norm
    /// is `norm`.
    pub(crate) fn context(self, scale: f64, norm: f64) -> StepContext {
        match self {
            Clipping::None => StepContext::scaled(scale as f32),
            // PyTorch's `clip_grad_norm_` adds 1e-6, and so does who compares with it.
            Clipping::Norm(limit) => StepContext::scaled((scale * (limit / (norm + 1e-6)).min(1.0)) as f32),
            Clipping::Value(limit) => StepContext { gradient_scale: scale as f32, clip_value: limit as f32 },
        }
    }
}
