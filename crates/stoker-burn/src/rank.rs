//! One rank: it builds a model, trains it and evaluates it.

use crate::adopt::{Sharded, adopt};
use crate::bridge::burn_type;
use crate::device::DeviceSettings;
use crate::ops::join;
use crate::parameters::{ParameterRules, RunningStatistics};
use crate::raise::{catch, raise};
use crate::shared::{CallHandle, Mode, Shared, UnitLink, with_engine};
use crate::start::{plan, start};
use crate::statistics::broadcast;
use crate::survey::{Survey, survey};
use crate::weights::{WeightsFile, save};
use crate::{Error, Result};
use burn::module::Module;
use burn::tensor::{DType, Device, Tensor};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use stoker_core::Communicator;
use stoker_engine::{Busy, Ledger, MemoryPlan, Moved, Plugins, Settings, StepReport};

/// One data-parallel worker and the model that it trains with the others.
#[derive(Debug)]
pub struct Rank {
    settings: Settings,
    plugins: Plugins,
    device_settings: DeviceSettings,
    device: Device,
    seed: u64,
    rules: ParameterRules,
    running_statistics: RunningStatistics,
    built: OnceLock<Built>,
}

type ShareStatistics = Box<dyn Fn(&Shared) -> Result<()> + Send>;

struct Built {
    shared: Arc<Shared>,
    sharded: HashMap<String, Sharded>,
    statistics: Option<ShareStatistics>,
    /// Whether any parameter is trained.
    trains: bool,
    /// Backwards since the last update.
    micro_batches: AtomicU32,
    /// Whether a closure of the user's runs.
    busy: AtomicBool,
}

impl std::fmt::Debug for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { shared, sharded, micro_batches, .. } = self;
        f.debug_struct("Built")
            .field("shared", shared)
            .field("sharded", sharded)
            .field("micro_batches", micro_batches)
            .finish_non_exhaustive()
    }
}

impl Built {
    /// Runs `closure`, which must not be run inside another one: it would change what the other's unit calls mean.
    fn alone<T>(&self, closure: impl FnOnce() -> T) -> Result<T> {
        if self.busy.swap(true, Ordering::Relaxed) {
            return Err(Error::Misuse(
                "a step, an evaluation or a save was begun inside the closure of another; end that first",
            ));
        }
        // After an unwinding the rank is unusable anyway.
        let value = closure();
        self.busy.store(false, Ordering::Relaxed);
        Ok(value)
    }

    /// The ranks leave training together: statistics of the model are what the settings want from here on.
    fn evaluate(&self) -> Result<()> {
        let was_training = self.shared.mode() == Mode::Training;
        self.shared.set_mode(Mode::Evaluating)?;
        match &self.statistics {
            Some(share) if was_training => share(&self.shared),
            _ => Ok(()),
        }
    }
}

/// What one step did.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// This rank's loss, before the update.
    pub loss: f64,
    /// The engine's account.
    pub report: StepReport,
}

impl Rank {
    /// A rank that computes as `device` says and is composed of `plugins`. `seed` gives the initial weights.
    ///
    /// # Errors
    /// [`Error::BackendMissing`].
    pub fn new(settings: Settings, device_settings: DeviceSettings, plugins: Plugins, seed: u64) -> Result<Self> {
        let device = device_settings.device(plugins.communicator.rank())?;
        Ok(Self {
            settings,
            plugins,
            device_settings,
            device,
            seed,
            rules: ParameterRules::default(),
            running_statistics: RunningStatistics::default(),
            built: OnceLock::new(),
        })
    }

    /// Parameters that are trained in a way of their own, or not at all.
    #[must_use]
    pub fn with_parameter_rules(mut self, rules: ParameterRules) -> Self {
        self.rules = rules;
        self
    }

    /// Whose running statistics count.
    #[must_use]
    pub fn with_running_statistics(mut self, running_statistics: RunningStatistics) -> Self {
        self.running_statistics = running_statistics;
        self
    }

    /// The device, with autodiff: where training inputs belong.
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// This rank's end of the group.
    pub fn communicator(&self) -> &Arc<dyn Communicator> {
        &self.plugins.communicator
    }

    /// What [`build`](Self::build) would need for a model, and what there is: nothing is allocated but the module itself,
    /// whose parameters are not initialised. Other ranks are not asked.
    ///
    /// # Errors
    /// A model that cannot be sharded; what the device fails with.
    pub fn plan<M: Module>(&self, make: impl FnOnce(&Device) -> M) -> Result<MemoryPlan> {
        let planned = || {
            let specs = survey(&make(&self.device), &self.rules, burn_type(self.device_settings.compute))?.specs;
            plan(&self.device_settings, &self.settings, &self.plugins, &specs)
        };
        let result = catch(planned, || "plan".to_owned());
        self.report(result)
    }

    /// Makes a model and shards it, one parameter at a time: no more than one full parameter exists at once.
    ///
    /// `make` builds the model on the device it is given; parameters of `burn::nn` are not initialised by that. Their
    /// values come from `weights` (a safetensors file keyed by path) or are drawn from the rank's seed and their paths,
    /// so that neither the number of ranks nor the launch changes them. Every rank must call it.
    ///
    /// # Errors
    /// A model that cannot be sharded, or does not fit ([`stoker_engine::Error::DoesNotFit`], before any rank allocates
    /// anything); ranks whose models differ; a weights file that does not fit.
    pub fn build<M: Module + 'static>(&self, make: impl FnOnce(&Device) -> M, weights: Option<&Path>) -> Result<M> {
        let result = catch(|| self.try_build(make, weights), || "build".to_owned());
        self.report(result)
    }

    fn try_build<M: Module + 'static>(&self, make: impl FnOnce(&Device) -> M, weights: Option<&Path>) -> Result<M> {
        if self.built.get().is_some() {
            return Err(Error::Misuse("the rank has built a model already; one rank trains one model"));
        }
        let mut weights = weights.map(WeightsFile::open).transpose()?;
        let model = make(&self.device);
        let compute = burn_type(self.device_settings.compute);
        let Survey { specs, units, buffers } = survey(&model, &self.rules, compute)?;
        let trainable: Vec<bool> = specs.iter().map(|spec| spec.trainable).collect();
        let engine = start(&self.device_settings, self.settings.clone(), self.plugins.clone(), specs)?;
        let shared = Arc::new(Shared::new(engine, self.device.clone(), self.device_settings.copy_below));
        for unit in units {
            let link = UnitLink {
                trainable: unit.groups.iter().any(|&group| trainable.get(group).copied().unwrap_or_default()),
                call: CallHandle { shared: shared.clone(), units: unit.groups.into() },
                parameters: Arc::new(unit.parameters),
                input: (compute != DType::F32).then_some(compute),
            };
            if unit.link.set(link).is_err() {
                return Err(Error::Misuse("the model was built by a rank before; build a new one"));
            }
        }
        let (model, sharded) = adopt(model, &shared, &buffers, &trainable, self.seed, weights.as_mut())?;
        // Until every rank has drawn its weights, nobody else may use the process's random generator.
        with_engine!(&*shared.engine(), engine => engine.barrier("weights are loaded"))?;
        let statistics = self.share_statistics(&model, buffers);
        let _ = self.built.set(Built {
            shared,
            sharded,
            statistics,
            trains: trainable.contains(&true),
            micro_batches: AtomicU32::new(0),
            busy: AtomicBool::new(false),
        });
        Ok(model)
    }

    /// How every rank gets the first rank's running statistics, if it does.
    fn share_statistics<M: Module + 'static>(&self, model: &M, buffers: HashSet<String>) -> Option<ShareStatistics> {
        let alone = self.plugins.communicator.world() == 1;
        if alone || buffers.is_empty() || self.running_statistics == RunningStatistics::Local {
            return None;
        }
        let model = model.clone();
        Some(Box::new(move |shared| broadcast(&model, shared, &buffers)))
    }

    /// One step of one micro-batch: [`accumulate`](Self::accumulate), then [`update`](Self::update).
    ///
    /// # Errors
    /// As these.
    pub fn step(&self, learning_rate: f64, loss: impl FnOnce() -> Tensor<1>) -> Result<Step> {
        self.announce_step(learning_rate)?;
        let loss = self.accumulate(loss)?;
        let report = self.update(learning_rate)?;
        Ok(Step { loss, report })
    }

    /// Tells that the next [`accumulate`](Self::accumulate) is the only one before an [`update`](Self::update) with
    /// `learning_rate`, so that updates may begin in its backward if the settings want that.
    ///
    /// # Errors
    /// [`Error::Misuse`] before a model was built; a rank that has failed.
    pub fn announce_step(&self, learning_rate: f64) -> Result<()> {
        let built = self.built()?;
        let announced = with_engine!(&mut *built.shared.engine(), engine => engine.announce_step(learning_rate));
        self.report(announced.map_err(Error::from))
    }

    /// The loss of a micro-batch and its backward; gives the loss. Every rank must call it.
    ///
    /// `loss` gives the mean over this rank's part of the micro-batch. The update takes the mean over all ranks and all
    /// micro-batches since the last one.
    ///
    /// # Errors
    /// Whatever went wrong in it, on this rank or another. The rank is unusable after that.
    pub fn accumulate(&self, loss: impl FnOnce() -> Tensor<1>) -> Result<f64> {
        let built = self.built()?;
        let result = catch(
            || {
                if !built.trains {
                    return Err(Error::Misuse(
                        "all parameters are frozen, so there is nothing to train; evaluate the model, or free some of them",
                    ));
                }
                built.shared.set_mode(Mode::Training)?;
                let loss = built.alone(loss)?.cast(DType::F32);
                backward(&built.shared, loss.clone());
                built.micro_batches.fetch_add(1, Ordering::Relaxed);
                // Reading it waits for the device, which by now has all of the backward to do.
                Ok(f64::from(loss.into_scalar::<f32>()))
            },
            || whereabouts(&built.shared),
        );
        self.report(result)
    }

    /// The backward of one more loss of a micro-batch, inside [`accumulate`](Self::accumulate) or [`step`](Self::step): its
    /// gradients are added to those of the loss that is returned there. It takes in all unit calls since the
    /// last backward, and what was walked once cannot be walked again: make the calls of the next loss after it, or return
    /// the sum of the losses.
    ///
    /// # Panics
    /// Unwinds with a typed payload, as [`Unit::call`](crate::Unit::call) does; also when no model was built.
    pub fn backward(&self, loss: Tensor<1>) {
        match self.built() {
            Ok(built) => backward(&built.shared, loss.cast(DType::F32)),
            Err(error) => raise(error),
        }
    }

    /// Ends the work of all ranks: nobody waits for this one, and it refuses whatever comes. For errors between steps, or
    /// between the micro-batches of one.
    pub fn give_up(&self, reason: &str) {
        match self.built.get() {
            Some(built) => with_engine!(&mut *built.shared.engine(), engine => engine.stop(reason)),
            None => self.plugins.communicator.abort(reason),
        }
    }

    /// What a loss is multiplied by before its backward, to keep the gradients of narrow types in their range. Losses that
    /// are returned to [`step`](Self::step) and [`accumulate`](Self::accumulate) are not to be scaled by hand.
    ///
    /// # Errors
    /// [`Error::Misuse`] before a model was built.
    pub fn loss_scale(&self) -> Result<f64> {
        Ok(with_engine!(&*self.built()?.shared.engine(), engine => engine.loss_scale()))
    }

    /// Steps that were skipped so far because a gradient was not finite.
    ///
    /// # Errors
    /// [`Error::Misuse`] before a model was built.
    pub fn skipped(&self) -> Result<u64> {
        Ok(with_engine!(&*self.built()?.shared.engine(), engine => engine.skipped()))
    }

    /// Ends a step: the gradients since the last one become one update with `learning_rate`. Every rank must call it.
    ///
    /// # Errors
    /// Whatever went wrong in it, on this rank or another. The rank is unusable after that.
    pub fn update(&self, learning_rate: f64) -> Result<StepReport> {
        let built = self.built()?;
        let result = catch(
            || {
                let micro_batches = built.micro_batches.swap(0, Ordering::Relaxed);
                if micro_batches == 0 {
                    return Err(Error::Misuse("an update without a micro-batch; call `Rank::accumulate` first"));
                }
                Ok(with_engine!(&mut *built.shared.engine(), engine => engine.step(learning_rate, micro_batches))?)
            },
            || whereabouts(&built.shared),
        );
        self.report(result)
    }

    /// Runs `work` with units that build no graph. Every rank must make the same unit calls in it.
    ///
    /// # Errors
    /// Whatever went wrong in it, on this rank or another. The rank is unusable after that.
    pub fn evaluate<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let built = self.built()?;
        let result = catch(
            || {
                built.alone(|| {
                    built.evaluate()?;
                    Ok(work())
                })?
            },
            || whereabouts(&built.shared),
        );
        self.report(result)
    }

    /// Sums numbers over all ranks, which must all call this with the same name.
    ///
    /// # Errors
    /// Ranks that call something else, or do not come.
    pub fn sum(&self, name: &str, numbers: &[f64]) -> Result<Vec<f64>> {
        let built = self.built()?;
        let result = with_engine!(&*built.shared.engine(), engine => engine.sum(name, numbers));
        self.report(result.map_err(Error::from))
    }

    /// Waits until every update has been made.
    ///
    /// # Errors
    /// What an update failed with.
    pub fn flush(&self) -> Result<()> {
        let built = self.built()?;
        let result = with_engine!(&mut *built.shared.engine(), engine => engine.flush());
        self.report(result.map_err(Error::from))
    }

    /// Writes the model to a safetensors file that the plain Burn model can load, one parameter at a time. Every rank
    /// must call it; rank 0 writes.
    ///
    /// # Errors
    /// What a gather or the file system failed with.
    pub fn save<M: Module>(&self, model: &M, path: &Path) -> Result<()> {
        let built = self.built()?;
        let writes = self.plugins.communicator.rank() == 0;
        let result = catch(
            || {
                built.evaluate()?;
                save(model, path, &built.shared, &built.sharded, writes)?;
                with_engine!(&*built.shared.engine(), engine => engine.barrier("weights are saved"))?;
                Ok(())
            },
            || whereabouts(&built.shared),
        );
        self.report(result)
    }

    /// The engine's books.
    ///
    /// # Errors
    /// [`Error::Misuse`] before a model was built.
    pub fn ledger(&self) -> Result<Ledger> {
        Ok(with_engine!(&*self.built()?.shared.engine(), engine => engine.ledger().clone()))
    }

    /// Bytes moved so far.
    ///
    /// # Errors
    /// [`Error::Misuse`] before a model was built.
    pub fn moved(&self) -> Result<Moved> {
        Ok(with_engine!(&*self.built()?.shared.engine(), engine => engine.moved()))
    }

    /// Work that is done so far, and how long it took.
    ///
    /// # Errors
    /// [`Error::Misuse`] before a model was built.
    pub fn busy(&self) -> Result<Busy> {
        Ok(with_engine!(&*self.built()?.shared.engine(), engine => engine.busy()))
    }

    fn built(&self) -> Result<&Built> {
        self.built.get().ok_or(Error::Misuse("the rank has no model yet; call `Rank::build` first"))
    }

    /// An error ends the work of all ranks: they are told.
    fn report<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.give_up(&error.to_string());
        }
        result
    }
}

/// Walks back from `loss` by every call since the last backward.
fn backward(shared: &Shared, loss: Tensor<1>) {
    let scale = with_engine!(&*shared.engine(), engine => engine.loss_scale());
    let loss = if scale == 1.0 { loss } else { loss * scale };
    let loss = shared.take_tokens().into_iter().fold(loss, join);
    drop(loss.backward());
}

fn whereabouts(shared: &Shared) -> String {
    with_engine!(&*shared.engine(), engine => engine.whereabouts())
}
