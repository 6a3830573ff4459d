//! Construction: plans, admission, regions.

use crate::admission::{bucket_bytes, device_limit, largest_call, memory_plan};
use crate::bridge::{Bridge, Copies};
use crate::cast;
use crate::gather::here;
use crate::gradients::Reduction;
use crate::ledger::{Allotment, Ledger};
use crate::loss_scale::Scaler;
use crate::memory_plan::MemoryPlan;
use crate::on_device::warn_of_round_trips;
use crate::order::Order;
use crate::residency::{Hold, Pool, Slab};
use crate::settings::{Settings, Stage};
use crate::unit::{GradientState, ParameterId, Shard, ShardRegions, Unit, UnitId, UnitSpec};
use crate::update::Updater;
use crate::workers::Workers;
use crate::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use stoker_core::{
    Communicator, DType, Granularity, HostBuffer, OffloadTarget, Optimizer, Partitioner, Place, PlacedParameter, Plan,
    Reading, Region, RegionSpec, Role,
};

/// The plugins that an engine is composed of.
#[derive(Debug, Clone)]
pub struct Plugins {
    /// Who keeps what.
    pub partitioner: Arc<dyn Partitioner>,
    /// Where it is kept.
    pub target: Arc<dyn OffloadTarget>,
    /// How ranks exchange it.
    pub communicator: Arc<dyn Communicator>,
    /// How it is updated.
    pub optimizer: Arc<dyn Optimizer>,
}

/// Bytes that were moved so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Moved {
    /// Parameters into slabs.
    pub to_device: u64,
    /// Gradients out of buckets.
    pub from_device: u64,
    /// Buffers given to collectives: gathered parameters, gradients to be reduced.
    pub between_ranks: u64,
}

/// Work that is done so far, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Busy {
    /// What updates read and write: each byte that the optimizer's rule must move, counted once a direction.
    pub updates: Reading,
    /// Copies to and from a device that times them.
    pub copies: Option<Copies>,
}

/// One rank's engine: see the [crate documentation](crate).
#[derive(Debug)]
pub struct Engine<B: Bridge> {
    pub(crate) settings: Settings,
    pub(crate) bridge: B,
    pub(crate) plugins: Plugins,
    pub(crate) ledger: Ledger,
    pub(crate) units: Vec<Unit>,
    pub(crate) pool: Pool<B>,
    pub(crate) buckets: Vec<Option<Slab<B::Slab>>>,
    /// Under way, the first one first.
    pub(crate) reductions: VecDeque<Reduction<B::Slab>>,
    /// Bytes of buckets that there may be while reductions are under way.
    pub(crate) bucket_limit: u64,
    /// Learning rate of the step whose updates may begin in backward.
    pub(crate) announced: Option<f64>,
    pub(crate) order: Order,
    pub(crate) updater: Option<Updater>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) updates: u64,
    pub(crate) skipped: u64,
    pub(crate) consecutive_skips: u32,
    pub(crate) scaler: Scaler,
    pub(crate) moved: Moved,
    /// Whether gathers belong to a training step (and make the forecast).
    pub(crate) training: bool,
    pub(crate) phase: &'static str,
    current: Option<UnitId>,
    stopped: Option<String>,
}

impl<B: Bridge> Engine<B> {
    /// What [`new`](Self::new) would need for `specs`, and what there is. Nothing is allocated, and no other rank asked.
    ///
    /// # Errors
    /// What a plugin refuses; what the device fails with.
    pub fn plan(settings: &Settings, bridge: &B, plugins: &Plugins, specs: &[UnitSpec]) -> Result<MemoryPlan> {
        let plans = plans(settings, plugins, specs)?;
        Ok(memory_plan(settings, bridge.memory()?, bridge.pins(), plugins, specs, &plans))
    }

    /// Plans `units`, makes sure that they fit, and allocates their shards (zeros). Every rank must call it.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`] before any rank allocates anything; what a plugin refuses; ranks whose models differ.
    pub fn new(settings: Settings, mut bridge: B, plugins: Plugins, specs: Vec<UnitSpec>) -> Result<Self> {
        let plans = plans(&settings, &plugins, &specs)?;
        let device = bridge.memory()?;
        memory_plan(&settings, device, bridge.pins(), &plugins, &specs, &plans).admit()?;
        let largest_call = largest_call(&specs, &plans);
        let bucket_limit = bucket_bytes(&settings, &specs, &plans);
        // Until all ranks are here nobody allocates: see [Note: One machine for all ranks].
        agree_on_plans(&plugins, &specs, &plans)?;
        warn_of_round_trips(plugins.target.as_ref(), plugins.optimizer.as_ref());

        let limits = [(Place::Device, device_limit(&settings, device)), (Place::Host, settings.host_memory_limit)];
        let ledger = Ledger::with_limits(limits.into_iter().filter_map(|(place, limit)| Some((place, limit?))));
        let units = specs
            .into_iter()
            .zip(plans)
            .map(|(spec, plan)| {
                let gradient_dtype = gradient_dtype(&settings, &spec);
                let regions = allocate_shard(&plugins, &mut bridge, &ledger, &spec, &plan, gradient_dtype)?;
                let count = plan.parameters.len();
                let mut rules = spec.rules;
                rules.resize_with(count, Default::default);
                Ok(Unit {
                    gradient: GradientState::new(count),
                    dtype: spec.dtype,
                    gradient_dtype,
                    trainable: spec.trainable,
                    rules,
                    updates: vec![0; count],
                    shard: Shard::Here(regions),
                    copying: None,
                    version: 0,
                    plan,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let rank = plugins.communicator.rank();
        let workers = Arc::new(Workers::start(rank, settings.update_threads)?);
        let updater =
            if settings.overlap { Some(Updater::start(rank, workers.clone(), settings.timeout)?) } else { None };
        // Gathers are collectives then: what is gathered when must be the same on every rank.
        let collective = settings.stage == Stage::Three && plugins.communicator.world() > 1;
        let mut pool = Pool::new(units.len(), settings.pool_bytes, largest_call, collective, ledger.clone());
        for (hold, unit) in pool.holds.iter_mut().zip(&units) {
            hold.always = settings.stage < Stage::Three || unit.slab_bytes() < settings.persistence_threshold;
        }
        Ok(Self {
            buckets: units.iter().map(|_| None).collect(),
            scaler: Scaler::new(settings.loss_scale),
            settings,
            bridge,
            plugins,
            ledger,
            units,
            pool,
            reductions: VecDeque::new(),
            bucket_limit,
            announced: None,
            order: Order::default(),
            updater,
            workers,
            updates: 0,
            skipped: 0,
            consecutive_skips: 0,
            moved: Moved::default(),
            training: false,
            phase: "build",
            current: None,
            stopped: None,
        })
    }

    /// Sets a parameter's initial values from element `at` on: every rank keeps its own part of them.
    ///
    /// # Errors
    /// When `values` go beyond the parameter's end; what the target failed with.
    pub fn load(&mut self, unit: UnitId, parameter: ParameterId, at: usize, values: &[f32]) -> Result<()> {
        let whole = self.parameter_range(unit, parameter)?;
        let end = at.saturating_add(values.len());
        if end > whole.len() {
            return Err(Error::Core(stoker_core::Error::OutOfRange {
                what: format!("the end of the values for parameter {parameter} of unit `{}`", self.units[unit].name()),
                found: end as u64,
                wanted: whole.len() as u64,
            }));
        }
        let range = whole.start + at..whole.start + end;
        self.finish_fill(unit)?;
        self.settle(unit)?;
        let rank = self.plan_rank(unit);
        let pieces = self.units[unit].plan.overlap(rank, &range);
        let ShardRegions { parameters, master, .. } = here(&mut self.units[unit].shard)?;
        for (flat, local) in pieces {
            // In range: the pieces lie in `range`, which is as long as `values`.
            let part = &values[flat.start - range.start..flat.end - range.start];
            for region in master.iter_mut().chain([&mut *parameters]) {
                cast::store(part, region.as_mut(), local.start)?;
            }
        }
        self.units[unit].version += 1;
        Ok(())
    }

    /// This rank's number in the unit's plan.
    pub(crate) fn plan_rank(&self, unit: UnitId) -> usize {
        if self.units[unit].plan.world() == 1 { 0 } else { self.plugins.communicator.rank() }
    }

    /// Begins (true) or leaves (false) training: only gathers of training steps make the forecast. An unfinished step
    /// is forgotten.
    ///
    /// # Errors
    /// What something in flight failed with.
    pub fn set_training(&mut self, training: bool) -> Result<()> {
        self.alive()?;
        self.training = training;
        self.order.restart();
        Ok(())
    }

    /// A parameter of a unit, with its place in the slab.
    pub fn parameter(&self, unit: UnitId, parameter: ParameterId) -> Option<&PlacedParameter> {
        self.units.get(unit)?.plan.parameters.get(parameter)
    }

    /// The books.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Bytes moved so far.
    pub fn moved(&self) -> Moved {
        self.moved
    }

    /// Work that is done so far, and how long it took.
    pub fn busy(&self) -> Busy {
        Busy { updates: self.workers.meter.read(), copies: self.bridge.copies() }
    }

    /// What the loss of the step that is being made must be multiplied by before its backward.
    pub fn loss_scale(&self) -> f64 {
        self.scaler.scale()
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.plugins.communicator.world()
    }

    /// Whether there are no other ranks: nothing is a collective then, and what is done when may follow this rank's clock.
    pub(crate) fn is_alone(&self) -> bool {
        self.world() == 1
    }

    /// Steps that were skipped so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Waits for every rank to call this with the same name.
    ///
    /// # Errors
    /// Ranks that call something else, or do not come.
    pub fn barrier(&self, name: &str) -> Result<()> {
        self.alive()?;
        Ok(self.plugins.communicator.barrier(name)?.wait()?)
    }

    /// Sums numbers over all ranks. Every rank must call this with the same name and count.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn sum(&self, name: &str, numbers: &[f64]) -> Result<Vec<f64>> {
        self.alive()?;
        let summed = self.plugins.communicator.all_reduce(name, HostBuffer::from_slice(numbers))?.wait()?;
        Ok(summed.as_slice::<f64>().to_vec())
    }

    /// The first rank's numbers. Every rank must call this with the same name and count.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn broadcast(&self, name: &str, numbers: &[f64]) -> Result<Vec<f64>> {
        self.alive()?;
        let theirs = self.plugins.communicator.broadcast(name, 0, HostBuffer::from_slice(numbers))?.wait()?;
        Ok(theirs.as_slice::<f64>().to_vec())
    }

    /// What the engine is doing, for error messages: `backward of unit "conv1"`.
    pub fn whereabouts(&self) -> String {
        match self.current.and_then(|unit| self.units.get(unit)) {
            Some(unit) if self.phase != "step" => format!("{} of unit `{}`", self.phase, unit.name()),
            _ => self.phase.to_owned(),
        }
    }

    /// Stops the engine and tells the other ranks why. The first reason stays.
    pub fn stop(&mut self, reason: &str) {
        if self.stopped.is_none() {
            self.stopped = Some(reason.to_owned());
            self.plugins.communicator.abort(reason);
        }
    }

    pub(crate) fn alive(&self) -> Result<()> {
        match &self.stopped {
            Some(reason) => Err(Error::Stopped(reason.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn at(&mut self, phase: &'static str, unit: UnitId) {
        self.phase = phase;
        self.current = Some(unit);
    }

    pub(crate) fn hold(&mut self, unit: UnitId) -> &mut Hold {
        &mut self.pool.holds[unit]
    }
}

fn plans(settings: &Settings, plugins: &Plugins, specs: &[UnitSpec]) -> Result<Vec<Plan>> {
    let world = if settings.stage == Stage::Zero { 1 } else { plugins.communicator.world() };
    specs.iter().map(|spec| plan(plugins, spec, world)).collect()
}

fn plan(plugins: &Plugins, spec: &UnitSpec, world: usize) -> Result<Plan> {
    if plugins.optimizer.granularity() == Granularity::Tensor && world > 1 {
        return Err(Error::Core(stoker_core::Error::BadPlan {
            unit: spec.name.clone(),
            reason: "the optimizer needs whole parameters, which shards of several ranks are not; use stage 0".into(),
        }));
    }
    let plan = plugins.partitioner.plan(&spec.name, &spec.parameters, world)?;
    plan.check()?;
    Ok(plan)
}

/// Type of a unit's gradient outside of the computation.
pub(crate) fn gradient_dtype(settings: &Settings, spec: &UnitSpec) -> DType {
    settings.gradients.unwrap_or(spec.dtype)
}

/// Ranks with different models would exchange the wrong bytes; the barrier's name makes them notice.
fn agree_on_plans(plugins: &Plugins, specs: &[UnitSpec], plans: &[Plan]) -> Result<()> {
    if plugins.communicator.world() == 1 {
        return Ok(());
    }
    let fingerprint = specs.iter().zip(plans).fold(0u64, |sum, (spec, plan)| {
        // One digit for each type, and whether it is trained.
        let kind = (spec.dtype as u64) * 2 + u64::from(spec.trainable);
        sum.rotate_left(7) ^ plan.fingerprint() ^ kind
    });
    let call = format!("build of {} units, plan {fingerprint:016x}", plans.len());
    plugins.communicator.barrier(&call)?.wait()?;
    Ok(())
}

fn allocate_shard<B: Bridge>(
    plugins: &Plugins,
    bridge: &mut B,
    ledger: &Ledger,
    spec: &UnitSpec,
    plan: &Plan,
    gradient_dtype: DType,
) -> Result<ShardRegions> {
    let place = plugins.target.traits().place;
    let elements = plan.shard_elements();
    let mut allotments: Vec<Allotment> = Vec::new();
    let mut allocate = |role: Role, dtype: DType| -> Result<Box<dyn Region>> {
        let region = RegionSpec { unit: plan.unit.clone(), role, dtype, elements };
        allotments.push(ledger.allot(place, role, &plan.unit, region.bytes())?);
        Ok(plugins.target.allocate(region)?)
    };
    // What crosses to the device and back.
    let mut pinned = |mut region: Box<dyn Region>| {
        if let Some(memory) = region.host() {
            *memory = bridge.pin(memory.take());
        }
        region
    };
    let parameters = pinned(allocate(Role::Parameters, spec.dtype)?);
    let master = spec.has_master().then(|| allocate(Role::MasterParameters, DType::F32)).transpose()?;
    let gradient = spec.trainable.then(|| allocate(Role::Gradients, gradient_dtype)).transpose()?.map(pinned);
    let slots = plugins.optimizer.state_slots().iter().filter(|_| spec.trainable);
    let state = slots.map(|slot| allocate(Role::OptimizerState, slot.dtype)).collect::<Result<Vec<_>>>()?;
    Ok(ShardRegions { parameters, master, gradient, state, _allotments: allotments })
}
