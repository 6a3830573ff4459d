//! What a plan needs, and whether it is there: computed from shapes before anything is allocated.
//!
//! [Note: One machine for all ranks] Ranks of one process share the machine. So what all of them need is held against what
//! the machine has, by every rank, before any of them allocates: the barrier in which ranks agree on their plans comes
//! between. Whoever measures sees nothing of the others' shards, whatever the order in which they come. All ranks of the
//! communicator are taken to be in this process.

use crate::bridge::DeviceRoom;
use crate::engine::{Plugins, gradient_dtype};
use crate::memory_plan::{Limit, LimitKind, MemoryPlan, PlacePlan};
use crate::{Settings, Stage, UnitSpec};
use std::collections::BTreeMap;
use stoker_core::{Bound, Place, Plan, Role, StateSlot, TargetTraits};

/// Bytes that a plan needs, by place and role.
#[derive(Debug, Default)]
struct Needed(BTreeMap<(Place, Role), u64>);

impl Needed {
    fn add(&mut self, place: Place, role: Role, bytes: u64) {
        *self.0.entry((place, role)).or_default() += bytes;
    }

    /// What one place is needed for.
    fn of(&self, place: Place) -> BTreeMap<Role, u64> {
        let roles = self.0.iter().filter(|((p, _), bytes)| *p == place && **bytes > 0);
        roles.map(|((_, role), bytes)| (*role, *bytes)).collect()
    }
}

/// The bytes that the engine itself will use for `plans` (activations are Burn's).
///
/// `target`: where shards are kept; `slots`: state slots of the optimizer.
fn plan_bytes(settings: &Settings, specs: &[UnitSpec], plans: &[Plan], target: Place, slots: &[StateSlot]) -> Needed {
    let mut needed = Needed::default();
    let sizes = sorted(specs.iter().zip(plans).map(slab_bytes));
    let total: u64 = sizes.iter().sum();
    for (spec, plan) in specs.iter().zip(plans) {
        let shard = plan.shard_elements() as u64;
        needed.add(target, Role::Parameters, shard * spec.dtype.size() as u64);
        if spec.has_master() {
            needed.add(target, Role::MasterParameters, shard * 4);
        }
        if spec.trainable {
            needed.add(target, Role::Gradients, shard * gradient_dtype(settings, spec).size() as u64);
            let state: u64 = slots.iter().map(|slot| slot.dtype.size() as u64).sum();
            needed.add(target, Role::OptimizerState, shard * state);
        }
    }
    let persistent = |bytes: u64| bytes < settings.persistence_threshold;
    if settings.stage == Stage::Three && settings.reshard_after_forward {
        let kept: u64 = sizes.iter().filter(|bytes| persistent(**bytes)).sum();
        let pooled = (total - kept).min(settings.pool_bytes.max(largest_call(specs, plans)));
        needed.add(Place::Device, Role::Slab, kept + pooled);
    } else {
        needed.add(Place::Device, Role::Slab, total);
    }
    needed.add(Place::Device, Role::GradientBucket, bucket_bytes(settings, specs, plans));
    needed
}

/// Bytes of buckets that a step needs at once.
pub(crate) fn bucket_bytes(settings: &Settings, specs: &[UnitSpec], plans: &[Plan]) -> u64 {
    let bucket = |(spec, plan): (&UnitSpec, &Plan)| {
        if spec.trainable { (plan.elements * gradient_dtype(settings, spec).size()) as u64 } else { 0 }
    };
    if settings.stage >= Stage::Two {
        // Those of the call whose backward runs, and one that is being reduced; what several calls share waits for the last.
        let shared = specs.iter().zip(plans).filter(|(spec, _)| spec.calls.len() > 1).map(bucket);
        let own = |unit: (&UnitSpec, &Plan)| if unit.0.calls.len() > 1 { 0 } else { bucket(unit) };
        shared.sum::<u64>() + sorted(by_call(specs, plans, own).into_values()).iter().take(2).sum::<u64>()
    } else {
        specs.iter().zip(plans).map(bucket).sum()
    }
}

/// The bytes of every call: the sum over the units that it gathers.
fn by_call(specs: &[UnitSpec], plans: &[Plan], bytes: impl Fn((&UnitSpec, &Plan)) -> u64) -> BTreeMap<Call, u64> {
    let mut calls = BTreeMap::new();
    for (number, unit) in specs.iter().zip(plans).enumerate() {
        if unit.0.calls.is_empty() {
            calls.insert(Call::Own(number), bytes(unit));
        }
        for &call in &unit.0.calls {
            *calls.entry(Call::Named(call)).or_default() += bytes(unit);
        }
    }
    calls
}

/// Who gathers units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    /// A call of this unit alone.
    Own(usize),
    /// The call of this number.
    Named(usize),
}

/// Bytes of slabs that the largest call has at once.
pub(crate) fn largest_call(specs: &[UnitSpec], plans: &[Plan]) -> u64 {
    by_call(specs, plans, slab_bytes).into_values().max().unwrap_or(0)
}

fn slab_bytes((spec, plan): (&UnitSpec, &Plan)) -> u64 {
    (plan.elements * spec.dtype.size()) as u64
}

/// Largest first.
fn sorted(sizes: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut sizes: Vec<u64> = sizes.collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// What `plans` need, by place, and all that binds it. `pins`: whether the device wants pinned memory.
pub(crate) fn memory_plan(
    settings: &Settings,
    device: DeviceRoom,
    pins: bool,
    plugins: &Plugins,
    specs: &[UnitSpec],
    plans: &[Plan],
) -> MemoryPlan {
    let target = plugins.target.traits();
    let needed = plan_bytes(settings, specs, plans, target.place, plugins.optimizer.state_slots());
    let on_device: u64 = needed.of(Place::Device).values().sum();
    let mut places = Vec::new();
    for place in [Place::Device, Place::Host, Place::Pinned, Place::Disk] {
        let roles = needed.of(place);
        if roles.is_empty() {
            continue;
        }
        let of_a_rank: u64 = roles.values().sum();
        let limit = |Known { bound: Bound { bytes, shared, source }, kind, ranks }| {
            // What the device needs is in the machine's memory too, if it is the host.
            let with_device = shared && place == Place::Host && device == DeviceRoom::Host && on_device > 0;
            let each = if with_device { of_a_rank.saturating_add(on_device) } else { of_a_rank };
            Limit { bytes, source, kind, ranks, needed: each.saturating_mul(ranks as u64), with_device }
        };
        let limits = known(settings, place, device, plugins).into_iter().map(limit).collect();
        let mut plan = PlacePlan { place, roles, limits, advice: Vec::new() };
        if let Some(limit) = plan.exceeded() {
            plan.advice = advice(settings, specs, &target, place, largest_call(specs, plans), limit);
        }
        places.push(plan);
    }
    let of_target = needed.of(target.place);
    let crosses = |role| of_target.get(&role).copied().unwrap_or(0);
    let pinned = if pins && target.host_addressable { crosses(Role::Parameters) + crosses(Role::Gradients) } else { 0 };
    MemoryPlan { places, pinned }
}

/// Something that binds a place.
struct Known {
    bound: Bound,
    kind: LimitKind,
    /// Ranks that take from it together.
    ranks: usize,
}

fn known(settings: &Settings, place: Place, device: DeviceRoom, plugins: &Plugins) -> Vec<Known> {
    let world = plugins.communicator.world();
    let known = |bytes, source: &str, kind, ranks| {
        let bound = Bound { bytes, shared: ranks > 1, source: source.to_owned() };
        Known { bound, kind, ranks }
    };
    let mut found = Vec::new();
    if place == Place::Device {
        let ranks = device.ranks();
        let of_settings = settings.device_memory_limit.map(|bytes| (bytes, "device.memory_limit", LimitKind::Setting));
        let of_driver = device.free().map(|bytes| (bytes, "free by its driver", LimitKind::Driver));
        let both = of_settings.into_iter().chain(of_driver);
        found.extend(both.map(|(bytes, source, kind)| known(bytes, source, kind, ranks)));
    }
    let given = settings.host_memory_limit.filter(|_| place == Place::Host);
    if let Some(bytes) = given {
        let source = if world > 1 { "host.memory_limit, a rank's part" } else { "host.memory_limit" };
        found.push(known(bytes, source, LimitKind::Setting, 1));
    }
    if place == plugins.target.traits().place {
        // What the user said of the host's memory stands for what the machine says.
        let bounds = plugins.target.bounds().into_iter().filter(|bound| !(bound.shared && given.is_some()));
        found.extend(bounds.map(|bound| {
            let ranks = if bound.shared { world } else { 1 };
            Known { bound, kind: LimitKind::Target, ranks }
        }));
    }
    found
}

/// The most that a rank's books may have of the device: what it is allowed, or its part of what is free.
pub(crate) fn device_limit(settings: &Settings, device: DeviceRoom) -> Option<u64> {
    let limit = settings.device_memory_limit.into_iter().chain(device.free()).min()?;
    Some(limit / device.ranks().max(1) as u64)
}

/// What would make room in a place whose `limit` is exceeded. `largest`: bytes of the largest call's slabs.
fn advice(
    settings: &Settings,
    specs: &[UnitSpec],
    target: &TargetTraits,
    place: Place,
    largest: u64,
    limit: &Limit,
) -> Vec<String> {
    let mut advice = Vec::new();
    if place == Place::Device {
        if settings.stage < Stage::Three {
            advice.push("zero.stage = 3 (parameters are gathered unit by unit)".to_owned());
        }
        if target.place == Place::Device {
            advice.push("offload.name = \"cpu-offload\" (shards and optimizer state in host memory)".to_owned());
        }
        if settings.stage == Stage::Three && settings.pool_bytes > largest {
            advice.push(format!(
                "a smaller schedule.pool_bytes (the largest unit, {largest} bytes, is there at times in any case)"
            ));
        }
        if largest > limit.bytes / limit.ranks.max(1) as u64 / 3 {
            advice.push("smaller units (wrap parts of the largest one)".to_owned());
        }
    } else {
        if settings.stage == Stage::Zero && limit.ranks > 1 {
            advice.push("zero.stage = 3 (each rank keeps its part only)".to_owned());
        }
        let widened = |spec: &UnitSpec| spec.trainable && gradient_dtype(settings, spec).size() > spec.dtype.size();
        if specs.iter().any(widened) {
            advice.push("precision.gradients = \"compute\" (kept in the type that they come in)".to_owned());
        }
        advice.push("an optimizer with less state".to_owned());
    }
    // At stage 0 every rank holds everything, however many there are; ranks that share memory do not add to it.
    let of_a_rank = limit.ranks == 1 && !(place == Place::Host && limit.kind == LimitKind::Setting);
    if settings.stage > Stage::Zero && of_a_rank {
        advice.push("more ranks (run.ranks)".to_owned());
    }
    match (limit.kind, place) {
        (LimitKind::Setting, _) => advice.push(format!("a larger {place}.memory_limit, if there is more")),
        (LimitKind::Target, Place::Host) => {
            advice.push("an offload target that keeps shards on disk".to_owned());
            advice.push("host.memory_limit, if there is more than the machine says".to_owned());
        }
        (LimitKind::Target, _) => advice.push("an offload target that has more".to_owned()),
        (LimitKind::Driver, _) => advice.push("a device that others do not use".to_owned()),
    }
    advice
}
