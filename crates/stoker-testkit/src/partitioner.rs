//! What every partitioner owes.

use crate::values::assert_same;
use std::collections::BTreeSet;
use stoker_core::half::bf16;
use stoker_core::{HostBuffer, ParameterSpec, Partitioner, Plan};

/// Panics unless `partitioner` plans parameters of these `sizes` for `world` ranks as it must:
///
/// - the plan passes [`Plan::check`], has `world` ranks, and keeps unit, paths, shapes and order of the parameters,
///   those without elements too;
/// - the same arguments give the same plan;
/// - what is scattered to the shards by [`Plan::overlap`] is gathered again, as a whole and parameter by parameter, and
///   padding stays zero;
/// - [`Plan::packed`] scatters the same, at once and in two parts, and [`Plan::gathered`] undoes it, whatever the type.
pub fn conforms(partitioner: &dyn Partitioner, sizes: &[usize], world: usize) {
    let specs: Vec<_> = sizes.iter().enumerate().map(|(number, size)| spec(number, *size)).collect();
    let case = format!("{partitioner:?}, sizes {sizes:?}, world {world}");
    let plan = partitioner.plan("unit", &specs, world).unwrap_or_else(|error| panic!("{case}: {error}"));
    plan.check().unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(plan.unit, "unit", "{case}: the unit's name");
    assert_eq!(plan.world(), world, "{case}: number of ranks");
    let placed: Vec<_> = plan.parameters.iter().map(|parameter| parameter.spec.clone()).collect();
    assert_eq!(placed, specs, "{case}: the parameters");

    let again = partitioner.plan("unit", &specs, world).unwrap_or_else(|error| panic!("{case}, again: {error}"));
    assert_eq!(plan, again, "{case}: the same arguments give another plan");
    assert_eq!(plan.fingerprint(), again.fingerprint(), "{case}: the same plan has another fingerprint");

    keeps_every_element(&plan, &case);
}

/// Of one dimension, or of several where the size allows: shapes must survive.
fn spec(number: usize, size: usize) -> ParameterSpec {
    let shape = match size {
        0 => vec![3, 0, 2],
        1 => vec![],
        even if even % 2 == 0 => vec![2, even / 2],
        odd => vec![odd],
    };
    ParameterSpec { path: format!("unit.p{number}"), shape }
}

fn keeps_every_element(plan: &Plan, case: &str) {
    // Every parameter element has a value of its own; 0 is padding.
    let mut flat = vec![0u32; plan.elements];
    let mut next = 1;
    for parameter in &plan.parameters {
        for value in &mut flat[parameter.range.clone()] {
            *value = next;
            next += 1;
        }
    }
    let shards: Vec<Vec<u32>> = (0..plan.world())
        .map(|rank| {
            let mut shard = vec![0; plan.shard_elements()];
            for (from, to) in plan.overlap(rank, &(0..plan.elements)) {
                shard[to].copy_from_slice(&flat[from]);
            }
            shard
        })
        .collect();
    let kept: Vec<u32> = shards.iter().flatten().copied().filter(|value| *value != 0).collect();
    assert_eq!(kept.len(), kept.iter().collect::<BTreeSet<_>>().len(), "{case}: an element is kept twice");
    assert_eq!(kept.len() + 1, next as usize, "{case}: an element is kept by no rank");

    let gather = |wanted: std::ops::Range<usize>| {
        let mut whole = vec![u32::MAX; wanted.len()];
        for (rank, shard) in shards.iter().enumerate() {
            for (place, from) in plan.overlap(rank, &wanted) {
                whole[place.start - wanted.start..place.end - wanted.start].copy_from_slice(&shard[from]);
            }
        }
        whole
    };
    // This compares padding, too: whatever is not of a parameter comes back as the 0 that it was.
    assert_eq!(gather(0..plan.elements), flat, "{case}: what was scattered is not what is gathered");
    for parameter in &plan.parameters {
        let found = gather(parameter.range.clone());
        assert_eq!(found, flat[parameter.range.clone()], "{case}: `{}` is not what was scattered", parameter.spec.path);
    }
    let narrow = |values: &[u32]| values.iter().map(|value| bf16::from_bits(*value as u16)).collect::<Vec<_>>();
    let wide = |values: &[u32]| values.iter().map(|value| f32::from_bits(*value)).collect::<Vec<_>>();
    is_rearranged(plan, &flat, &shards, &|values| HostBuffer::from_slice(&narrow(values)), case);
    is_rearranged(plan, &flat, &shards, &|values| HostBuffer::from_slice(&wide(values)), case);
}

fn is_rearranged(plan: &Plan, flat: &[u32], shards: &[Vec<u32>], of: &dyn Fn(&[u32]) -> HostBuffer, case: &str) {
    let length = plan.shard_elements();
    let full = of(flat);
    for part in [0..length, 0..length / 3, length / 3..length] {
        let wanted: Vec<u32> = shards.iter().flat_map(|shard| &shard[part.clone()]).copied().collect();
        let what = format!("{case}: part {part:?} of every shard, packed");
        assert_same(&plan.packed(&full, &part), &of(&wanted), &what);
    }
    let gathered = plan.gathered(&of(&shards.concat()));
    assert_same(&gathered, &full, &format!("{case}: shards, gathered"));
    assert!(!plan.is_in_order() || shards.concat() == flat, "{case}: is not in order but says so");
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoker_core::{PlacedParameter, Result};

    /// Rank `r` keeps every element whose number leaves `r`: many ranges a rank. `broken` then spoils the plan.
    #[derive(Debug)]
    struct Striped(fn(&mut Plan));

    impl Partitioner for Striped {
        fn plan(&self, unit: &str, parameters: &[ParameterSpec], world: usize) -> Result<Plan> {
            let mut end = 0;
            let place = |spec: &ParameterSpec| {
                let start = end;
                end += spec.elements();
                PlacedParameter { spec: spec.clone(), range: start..end }
            };
            let parameters = parameters.iter().map(place).collect();
            let elements = end.next_multiple_of(world);
            let stripes = |rank| (rank..elements).step_by(world).map(|at| at..at + 1).collect();
            let shards = (0..world).map(stripes).collect();
            let mut plan = Plan { unit: unit.to_owned(), parameters, elements, shards };
            (self.0)(&mut plan);
            Ok(plan)
        }
    }

    #[test]
    fn a_right_plan_passes() {
        for world in 1..5 {
            conforms(&Striped(|_| {}), &[0, 1, 5, 12], world);
            conforms(&Striped(|_| {}), &[], world);
        }
    }

    #[test]
    #[should_panic(expected = "rank 1 keeps 4 elements, rank 0 5")]
    fn a_lost_element_is_found() {
        conforms(&Striped(|plan| plan.shards[1].truncate(4)), &[5, 5], 2);
    }

    #[test]
    #[should_panic(expected = "the parameters")]
    fn a_lost_shape_is_found() {
        conforms(&Striped(|plan| plan.parameters[0].spec.shape = vec![6]), &[6], 1);
    }
}
