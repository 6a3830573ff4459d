//! What a plan needs, and whether it is there: computed from shapes before anything is allocated.

use crate::engine::gradient_dtype;
use crate::{Error, Result, Settings, Stage, UnitSpec};
use std::collections::BTreeMap;
use stoker_core::{Place, Plan, Role};

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
fn plan_bytes(settings: &Settings, specs: &[UnitSpec], plans: &[Plan], target: Place, slots: usize) -> Needed {
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
            needed.add(target, Role::OptimizerState, shard * 4 * slots as u64);
        }
    }
    if settings.stage == Stage::Three {
        let kept: u64 = sizes.iter().filter(|bytes| **bytes < settings.persistence_threshold).sum();
        let largest = sizes.first().copied().unwrap_or(0);
        let pooled = (total - kept).min(settings.pool_bytes.max(largest));
        needed.add(Place::Device, Role::Slab, kept + pooled);
    } else {
        needed.add(Place::Device, Role::Slab, total);
    }
    let trained = specs.iter().zip(plans).filter(|(spec, _)| spec.trainable);
    let buckets = sorted(trained.map(|(spec, plan)| (plan.elements * gradient_dtype(settings, spec).size()) as u64));
    // From stage 2 on at most two units have one at a time.
    let at_once = if settings.stage >= Stage::Two { 2 } else { buckets.len() };
    needed.add(Place::Device, Role::GradientBucket, buckets.iter().take(at_once).sum());
    needed
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
    slots: usize,
) -> Result<()> {
    let needed = plan_bytes(settings, specs, plans, target, slots);
    let largest = specs.iter().zip(plans).map(slab_bytes).max().unwrap_or(0);
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
            advice.push(format!("a smaller schedule.pool_bytes (at least the largest unit, {largest} bytes)"));
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
