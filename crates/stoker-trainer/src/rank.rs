//! A rank that knows its settings.

use crate::{Batches, Error, Result, Schedule, tensors, widened};
use burn::module::Module;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Int, Tensor};
use burn_dataset::Dataset;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stoker_burn::Step;
use stoker_config::Settings;
use stoker_data::{EvaluationSampler, ImageItem, RankSampler, SamplerError};
use stoker_engine::{Ledger, MemoryPlan, Moved, Outcome};

/// One data-parallel worker: a [`stoker_burn::Rank`] with settings, data and a learning rate.
#[derive(Debug)]
pub struct Rank {
    burn: stoker_burn::Rank,
    settings: Settings,
    course: Mutex<Course>,
}

/// How far the steps are.
#[derive(Debug, Default)]
struct Course {
    schedule: Option<Schedule>,
    /// Steps made, skipped ones among them.
    steps: u64,
}

/// What a model is worth on a validation set, over all ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Validation {
    /// Mean cross-entropy.
    pub loss: f64,
    /// Records that were told right, from 0 to 1.
    pub accuracy: f64,
    /// Records.
    pub records: usize,
}

impl Rank {
    pub(crate) fn new(burn: stoker_burn::Rank, settings: Settings) -> Self {
        Self { burn, settings, course: Mutex::default() }
    }

    /// The rank below, for what is not here: steps with a learning rate of one's own.
    pub fn inner(&self) -> &stoker_burn::Rank {
        &self.burn
    }

    /// What it was launched with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Its number, from 0.
    pub fn number(&self) -> usize {
        self.burn.communicator().rank()
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.burn.communicator().world()
    }

    /// The device, with autodiff: where training inputs belong.
    pub fn device(&self) -> Device {
        self.burn.device()
    }

    /// Makes a model and shards it: see [`stoker_burn::Rank::build`]. Initial weights come from `run.seed`.
    ///
    /// # Errors
    /// As there.
    pub fn build<M: Module + 'static>(&self, make: impl FnOnce(&Device) -> M) -> Result<M> {
        self.build_from(make, None)
    }

    /// [`build`](Self::build) with initial weights from a safetensors file, if one is given.
    ///
    /// # Errors
    /// As there.
    pub fn build_from<M: Module + 'static>(
        &self,
        make: impl FnOnce(&Device) -> M,
        weights: Option<&Path>,
    ) -> Result<M> {
        Ok(self.burn.build(make, weights)?)
    }

    /// What [`build`](Self::build) would need for a model, and what there is: see [`stoker_burn::Rank::plan`].
    ///
    /// # Errors
    /// As there.
    pub fn plan<M: Module>(&self, make: impl FnOnce(&Device) -> M) -> Result<MemoryPlan> {
        Ok(self.burn.plan(make)?)
    }

    /// This rank's batches of `data` over the whole run: `train.epochs` epochs, at most `train.max_steps` steps of
    /// `train.accumulation` micro-batches.
    ///
    /// The learning rate begins anew with it.
    ///
    /// # Errors
    /// Fewer records than a batch; a batch that the ranks and micro-batches cannot share.
    pub fn batches<'a>(&self, data: &'a dyn Dataset<ImageItem>) -> Result<Batches<'a>> {
        let train = &self.settings.train;
        let (world, accumulation) = (self.world(), train.accumulation.max(1));
        if !train.batch_size.is_multiple_of(accumulation) {
            let world = world.saturating_mul(accumulation);
            return Err(SamplerError::NotDivisible { batch: train.batch_size, world }.into());
        }
        let micro_batch = train.batch_size / accumulation;
        let seed = self.settings.run.seed;
        let sampler = RankSampler::with_global_batch(data.len(), world, self.number(), micro_batch, seed)?;
        let batches = Batches::new(data, sampler, accumulation, self.device())?;
        let steps = batches.per_epoch().saturating_mul(train.epochs);
        let steps = if train.max_steps == 0 { steps } else { steps.min(train.max_steps) };
        self.plan_steps(steps)?;
        Ok(batches.take_steps(steps))
    }

    /// Begins the learning rate of a run of `steps` steps: for loops that do without [`batches`](Self::batches).
    ///
    /// # Errors
    /// What [`Schedule::new`] refuses.
    pub fn plan_steps(&self, steps: usize) -> Result<()> {
        self.course().schedule = Some(Schedule::new(&self.settings.learning_rate, steps)?);
        Ok(())
    }

    /// One step of one batch, with the learning rate whose turn it is. Every rank must call it.
    ///
    /// `loss` gives the mean over this rank's part of the batch.
    ///
    /// # Errors
    /// As [`step_over`](Self::step_over); [`Error::Misuse`] if `train.accumulation` is not 1, since then a batch is not a
    /// step.
    pub fn step(&self, loss: impl FnOnce() -> Tensor<1>) -> Result<Step> {
        if self.settings.train.accumulation > 1 {
            return Err(Error::Misuse(
                "train.accumulation is above 1, so a step is several batches: call `Rank::step_over` for each step of \
                 `rank.batches(..)?.steps()`",
            ));
        }
        self.step_over([Ok(loss)], |loss| loss())
    }

    /// One step of several micro-batches, with the learning rate whose turn it is: forward and backward for one after the
    /// other, then an update with their mean gradient. Every rank must call it, with equally many micro-batches.
    ///
    /// `loss` gives the mean over this rank's part of a micro-batch; the loss of the step is the mean over its
    /// micro-batches. A step that is skipped has used its learning rate, and the next one uses it again.
    ///
    /// ```no_run
    /// use stoker_trainer::{Classifier, Rank, Result, cross_entropy, models::LeNet};
    /// # fn train(rank: &Rank, net: &LeNet, data: &stoker_data::Sources) -> Result<()> {
    /// for micro_batches in rank.batches(&data.train)?.steps() {
    ///     rank.step_over(micro_batches, |batch| cross_entropy(net.forward(batch.images), batch.labels))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first micro-batch that is an error, after which no rank can go on; as [`stoker_burn::Rank::accumulate`] and [`stoker_burn::Rank::update`];
    /// [`Error::Misuse`] if the learning rate depends on the number of steps and nobody said it, or if there is no
    /// micro-batch.
    pub fn step_over<B>(
        &self,
        micro_batches: impl IntoIterator<Item = Result<B>>,
        mut loss: impl FnMut(B) -> Tensor<1>,
    ) -> Result<Step> {
        let learning_rate = self.learning_rate()?;
        if self.settings.train.accumulation == 1 {
            self.burn.announce_step(learning_rate)?;
        }
        let (mut sum, mut count) = (0.0, 0u32);
        for batch in micro_batches {
            let batch = batch.inspect_err(|error| self.burn.give_up(&error.chain()))?;
            sum += self.burn.accumulate(|| loss(batch))?;
            count += 1;
        }
        if count == 0 {
            return Err(Error::Misuse("a step without micro-batches has no gradient; give at least one"));
        }
        let step = Step { loss: sum / f64::from(count), report: self.burn.update(learning_rate)? };
        self.ended(&step);
        Ok(step)
    }

    fn ended(&self, &Step { loss, report }: &Step) {
        let mut course = self.course();
        course.steps += 1;
        if report.outcome == Outcome::Updated
            && let Some(schedule) = &mut course.schedule
        {
            schedule.advance();
        }
        tracing::debug!(
            step = course.steps,
            update = report.updates,
            outcome = ?report.outcome,
            learning_rate = report.learning_rate,
            loss,
            gradient_norm = report.gradient_norm,
            loss_scale = report.loss_scale,
            "step"
        );
    }

    fn learning_rate(&self) -> Result<f64> {
        let settings = &self.settings.learning_rate;
        let mut course = self.course();
        let schedule = match &mut course.schedule {
            Some(schedule) => schedule,
            None if settings.schedule.needs_steps() => {
                return Err(Error::Misuse(
                    "learning_rate.schedule is one that needs the number of steps: take batches from `Rank::batches`, \
                     or call `Rank::plan_steps` first",
                ));
            }
            none => none.insert(Schedule::new(settings, 0)?),
        };
        Ok(schedule.rate())
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` with units that build no graph: see [`stoker_burn::Rank::evaluate`].
    ///
    /// # Errors
    /// As there, and what `work` fails with.
    pub fn evaluate<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.burn.evaluate(work)?
    }

    /// Runs `forward` on every record of `data` once over all ranks, and compares its logits with the labels.
    ///
    /// Batches are as large as the micro-batches of training.
    ///
    /// # Errors
    /// An empty data set; a record that cannot be read; what a unit call failed with.
    pub fn validate(
        &self,
        data: &dyn Dataset<ImageItem>,
        forward: impl Fn(Tensor<4>) -> Tensor<2>,
    ) -> Result<Validation> {
        let micro_batch = self.settings.micro_batch().max(1);
        let sampler = EvaluationSampler::new(data.len(), self.world(), self.number(), micro_batch)?;
        let device = self.device().without_autodiff();
        let sums = self.evaluate(|| {
            let mut sums = [0.0; 2];
            for batch in &sampler {
                let (images, labels) = tensors::of(data, &batch.padded(), &device)?;
                let logits = forward(images);
                // The batch was run for the others' sake.
                if batch.is_empty() {
                    continue;
                }
                let counted = 0..batch.len();
                let [_, classes] = logits.dims();
                let logits = logits.slice([counted.clone(), 0..classes]);
                for (sum, value) in sums.iter_mut().zip(judge(logits, labels.slice([counted]))) {
                    *sum += value;
                }
            }
            Ok(sums)
        })?;
        let records = data.len();
        let [loss, right] = sums;
        let sums = self.sum("validation", &[loss, right])?;
        let mean = |at: usize| sums.get(at).copied().unwrap_or(f64::NAN) / records as f64;
        Ok(Validation { loss: mean(0), accuracy: mean(1), records })
    }

    /// Sums numbers over all ranks, which must all call this with the same name.
    ///
    /// # Errors
    /// As [`stoker_burn::Rank::sum`].
    pub fn sum(&self, name: &str, numbers: &[f64]) -> Result<Vec<f64>> {
        Ok(self.burn.sum(name, numbers)?)
    }

    /// Waits until every update has been made.
    ///
    /// # Errors
    /// As [`stoker_burn::Rank::flush`].
    pub fn flush(&self) -> Result<()> {
        Ok(self.burn.flush()?)
    }

    /// Writes the model to a safetensors file that the plain Burn model can load. Every rank must call it.
    ///
    /// # Errors
    /// As [`stoker_burn::Rank::save`].
    pub fn save<M: Module>(&self, model: &M, path: &Path) -> Result<()> {
        Ok(self.burn.save(model, path)?)
    }

    /// The engine's books.
    ///
    /// # Errors
    /// As [`stoker_burn::Rank::ledger`].
    pub fn ledger(&self) -> Result<Ledger> {
        Ok(self.burn.ledger()?)
    }

    /// Bytes moved so far.
    ///
    /// # Errors
    /// As [`stoker_burn::Rank::moved`].
    pub fn moved(&self) -> Result<Moved> {
        Ok(self.burn.moved()?)
    }
}

/// The summed cross-entropy of these rows, and how many of them are right.
fn judge(logits: Tensor<2>, labels: Tensor<1, Int>) -> [f64; 2] {
    let [records] = labels.dims();
    let logits = widened(logits);
    let told = logits.clone().argmax(1).reshape([records]);
    let right = told.equal(labels.clone()).int().sum().into_scalar::<i64>();
    let log_likelihood = log_softmax(logits, 1).gather(1, labels.reshape([records, 1])).sum().into_scalar::<f32>();
    [-f64::from(log_likelihood), right as f64]
}

#[cfg(test)]
mod tests;
