//! `flat`: one padded vector, cut into equal contiguous shards (the flat parameter of ZeRO and FSDP).

use std::sync::Arc;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{
    Error, OptionKind, OptionSpec, OptionValue, Options, ParameterSpec, Partitioner, PlacedParameter, Plan, Result,
    inventory,
};

/// Places parameters one after another, each at a multiple of `alignment` elements, and gives rank `r` the `r`-th of
/// `world` equal parts, each a multiple of `alignment` long.
#[derive(Debug, Clone)]
pub struct Flat {
    alignment: usize,
}

impl Flat {
    /// `alignment` in elements; 0 counts as 1.
    pub fn new(alignment: usize) -> Self {
        Self { alignment: alignment.max(1) }
    }
}

impl Partitioner for Flat {
    fn plan(&self, unit: &str, parameters: &[ParameterSpec], world: usize) -> Result<Plan> {
        if world == 0 {
            return Err(Error::BadPlan {
                unit: unit.to_owned(),
                reason: "a world of no ranks keeps nothing".to_owned(),
            });
        }
        let mut end = 0;
        let parameters = parameters
            .iter()
            .map(|spec| {
                let start = end;
                let stop = start + spec.elements();
                end = stop.next_multiple_of(self.alignment);
                PlacedParameter { spec: spec.clone(), range: start..stop }
            })
            .collect();
        let shard = end.div_ceil(world).next_multiple_of(self.alignment);
        Ok(Plan {
            unit: unit.to_owned(),
            parameters,
            elements: shard * world,
            shards: (0..world).map(|rank| vec![rank * shard..(rank + 1) * shard]).collect(),
        })
    }
}

inventory::submit! {
    Plugin {
        name: "flat",
        description: "one padded vector a unit, cut into equal contiguous shards",
        options: &[OptionSpec {
            name: "alignment",
            kind: OptionKind::Integer { min: 1, max: 65536 },
            default: || OptionValue::Integer(128),
            help: "elements to whose multiples parameters and shards are aligned (128 f32 are 512 bytes)",
        }],
        build: Build::Partitioner(build),
    }
}

fn build(options: &Options) -> Result<Arc<dyn Partitioner>> {
    // The schema allows 1 to 65536, so the conversion cannot fail; 1 is the neutral choice.
    Ok(Arc::new(Flat::new(usize::try_from(options.integer("alignment")).unwrap_or(1))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stoker_testkit::partitioner;

    proptest! {
        #[test]
        fn keeps_every_law(
            sizes in proptest::collection::vec(0usize..=4097, 0..=5), world in 1usize..=7, alignment in 1usize..=512,
        ) {
            let flat = Flat::new(alignment);
            partitioner::conforms(&flat, &sizes, world);
            let specs: Vec<_> =
                sizes.iter().map(|size| ParameterSpec { path: "p".into(), shape: vec![*size] }).collect();
            let plan = flat.plan("u", &specs, world).unwrap();
            prop_assert!(plan.is_in_order());
            prop_assert!(plan.parameters.iter().all(|parameter| parameter.range.start % alignment == 0));
            prop_assert!(plan.shards.iter().flatten().all(|range| range.start % alignment == 0));
            // Less than one alignment after each parameter and in each shard.
            let most = sizes.iter().sum::<usize>() + (sizes.len() + world) * (alignment - 1) + world;
            prop_assert!(plan.elements <= most, "{} elements, {most} would do", plan.elements);
        }
    }

    #[test]
    fn the_place_of_everything() {
        let specs = [3, 0, 5].map(|n| ParameterSpec { path: format!("p{n}"), shape: vec![n] });
        let plan = Flat::new(4).plan("u", &specs, 2).unwrap();
        assert_eq!(plan.parameters.iter().map(|p| p.range.clone()).collect::<Vec<_>>(), [0..3, 4..4, 4..9]);
        assert_eq!(plan.elements, 16);
        assert_eq!(plan.shards, [vec![0..8], vec![8..16]]);
    }

    #[test]
    fn no_ranks_are_refused() {
        let error = Flat::new(1).plan("u", &[], 0).unwrap_err().to_string();
        assert_eq!(error, "unit `u` cannot be partitioned like this: a world of no ranks keeps nothing");
    }
}
