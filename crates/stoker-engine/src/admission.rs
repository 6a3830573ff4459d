//! What a plan needs, and whether it is there: computed from shapes before anything is allocated.

use crate::{Error, Result, Settings, Stage};
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
fn plan_bytes(settings: &Settings, plans: &[Plan], target: Place, slots: usize) -> Needed {
    let mut needed = Needed::default();
    let unit_bytes = |plan: &Plan| plan.elements as u64 * 4;
    let total: u64 = plans.iter().map(unit_bytes).sum();
    let mut sizes: Vec<u64> = plans.iter().map(unit_bytes).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let two_largest: u64 = sizes.iter().take(2).sum();

    for plan in plans {
        let shard = plan.shard_elements() as u64 * 4;
        needed.add(target, Role::Parameters, shard);
        needed.add(target, Role::Gradients, shard);
        needed.add(target, Role::OptimizerState, shard * slots as u64);
    }
    if settings.stage == Stage::Three {
        let kept: u64 = sizes.iter().filter(|bytes| **bytes < settings.persistence_threshold).sum();
        let largest = sizes.first().copied().unwrap_or(0);
        let pooled = (total - kept).min(settings.pool_bytes.max(largest));
        needed.add(Place::Device, Role::Slab, kept + pooled);
    } else {
        needed.add(Place::Device, Role::Slab, total);
    }
    let buckets = if settings.stage >= Stage::Two { two_largest } else { total };
    needed.add(Place::Device, Role::GradientBucket, buckets);
    needed
}

/// Refuses a plan that needs more than there is.
pub(crate) fn admit(settings: &Settings, plans: &[Plan], target: Place, slots: usize) -> Result<()> {
    let needed = plan_bytes(settings, plans, target, slots);
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
            advice: advice(settings, plans, target, place, limit),
        });
    }
    Ok(())
}

fn advice(settings: &Settings, plans: &[Plan], target: Place, place: Place, limit: u64) -> Vec<String> {
    let mut advice = Vec::new();
    if place == Place::Device {
        let sizes = plans.iter().map(|plan| plan.elements as u64 * 4);
        let largest = sizes.max().unwrap_or(0);
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
