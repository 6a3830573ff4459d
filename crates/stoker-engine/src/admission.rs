//! What a plan needs, and whether it is there: computed from shapes before anything is allocated.

use crate::engine::gradient_dtype;
use crate::{Error, Result, Settings, Stage, UnitSpec};
use std::collections::BTreeMap;
use stoker_core::{Place, Plan, Role, StateSlot};

/// Bytes that a plan needs, by place and role.
#[derive(Debug, Default)]
struct Needed(BTreeMap<(Place, Role), u64>);

impl Needed {
    fn add(&mut self, place: Place, role: Role, bytes: u64) {
        *self.0.entry((place, role)).or_default() += bytes;
    }

    /// Bytes of one place.
    fn of(&self, place: Place) -> u64 {
        self.0.iter().filter(|((p, _), _)| *p == place).map(|(_, bytes)| bytes).sum()
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

/// Refuses a plan that needs more than there is.
pub(crate) fn admit(
    settings: &Settings,
    specs: &[UnitSpec],
    plans: &[Plan],
    target: Place,
    slots: &[StateSlot],
) -> Result<()> {
    let needed = plan_bytes(settings, specs, plans, target, slots);
    let largest = largest_call(specs, plans);
    let limits = [(Place::Device, settings.device_memory_limit), (Place::Host, settings.host_memory_limit)];
    for (place, limit) in limits {
        let Some(limit) = limit else { continue };
        if needed.of(place) <= limit {
            continue;
        }
        let by_role = needed.0.iter().filter(|((p, _), bytes)| *p == place && **bytes > 0);
        return Err(Error::DoesNotFit {
            place,
            needed: needed.of(place),
            limit,
            breakdown: by_role.map(|((_, role), bytes)| format!("{role} {bytes}")).collect(),
            advice: advice(settings, largest, target, place, limit),
        });
    }
    Ok(())
}

fn advice(settings: &Settings, largest: u64, target: Place, place: Place, limit: u64) -> Vec<String> {
    let mut advice = Vec::new();
    if place == Place::Device {
        if settings.stage < Stage::Three {
            advice.push("zero.stage = 3 (parameters are gathered unit by unit)".to_owned());
        }
        if target == Place::Device {
            advice.push("offload.name = \"cpu-offload\" (shards and optimizer state in host memory)".to_owned());
        }
        if settings.stage == Stage::Three && settings.pool_bytes > largest {
            advice.push(format!(
                "a smaller schedule.pool_bytes (the largest unit, {largest} bytes, is there at times in any case)"
            ));
        }
        if largest > limit / 3 {
            advice.push("smaller units (wrap parts of the largest one)".to_owned());
        }
    }
    // At stage 0 every rank holds everything, however many there are.
    if settings.stage > Stage::Zero {
        advice.push("more ranks (run.ranks)".to_owned());
    }
    advice.push(format!("a larger {place}.memory_limit, if there is more"));
    advice
}
