//! Between the flat vector and the order of the ranks: what comes out of an all-gather, what goes into a
//! reduce-scatter. Elements are only moved, so every type is welcome.

use super::Plan;
use crate::HostBuffer;
use std::ops::Range;

impl Plan {
    /// The flat vector, from every rank's shard, one rank after another.
    ///
    /// Not needed where the plan [is in order](Self::is_in_order): `shards` is the flat vector then.
    ///
    /// ```
    /// # use stoker_core::{HostBuffer, Plan};
    /// let shards = vec![vec![0..1, 3..4], vec![1..3]];
    /// let plan = Plan { unit: "u".into(), parameters: vec![], elements: 4, shards };
    /// let full = plan.gathered(&HostBuffer::from_slice(&[10.0f32, 13.0, 11.0, 12.0]));
    /// assert_eq!(full.as_slice::<f32>(), [10.0, 11.0, 12.0, 13.0]);
    /// assert_eq!(plan.packed(&full, &(0..2)).as_slice::<f32>(), [10.0, 13.0, 11.0, 12.0]);
    /// assert_eq!(plan.packed(&full, &(1..2)).as_slice::<f32>(), [13.0, 12.0]);
    /// ```
    ///
    /// # Panics
    /// When `shards` is not as long as the flat vector: a mistake in the program, never in its input. The plan must
    /// have passed [`check`](Self::check).
    pub fn gathered(&self, shards: &HostBuffer) -> HostBuffer {
        assert_eq!(shards.len(), self.elements, "all shards of unit `{}` together have another length", self.unit);
        let mut full = HostBuffer::zeros_of(shards.dtype(), self.elements);
        let mut at = 0;
        for range in self.shards.iter().flatten() {
            full.copy_elements(range.start, shards, at..at + range.len());
            at += range.len();
        }
        full
    }

    /// Elements `part` of every rank's shard, one rank after another, from the flat vector.
    ///
    /// Each rank's share has the length of `part`, so the result can be reduced and scattered as it is. With the whole
    /// shard as `part` it is what [`gathered`](Self::gathered) takes.
    ///
    /// # Panics
    /// When `full` is not as long as the flat vector, or `part` ends outside the shard: as for
    /// [`gathered`](Self::gathered).
    pub fn packed(&self, full: &HostBuffer, part: &Range<usize>) -> HostBuffer {
        assert_eq!(full.len(), self.elements, "the flat vector of unit `{}` has another length", self.unit);
        let shard = self.shard_elements();
        assert!(part.end <= shard, "{part:?} was asked of shards of {shard} elements of unit `{}`", self.unit);
        let mut packed = HostBuffer::zeros_of(full.dtype(), part.len() * self.world());
        let mut at = 0;
        for ranges in &self.shards {
            let mut local = 0;
            for range in ranges {
                let start = part.start.max(local);
                let end = part.end.min(local + range.len());
                if start < end {
                    let from = range.start + start - local;
                    packed.copy_elements(at, full, from..from + end - start);
                    at += end - start;
                }
                local += range.len();
            }
        }
        packed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use half::bf16;
    use proptest::prelude::*;

    fn plan(elements: usize, shards: Vec<Vec<Range<usize>>>) -> Plan {
        Plan { unit: "u".into(), parameters: vec![], elements, shards }
    }

    /// Ranges of 0 and more elements, dealt to `world` ranks so that each keeps equally many, in an order that is not
    /// that of the flat vector.
    fn any_plan() -> impl Strategy<Value = Plan> {
        let cuts = (1usize..6, 0usize..50).prop_flat_map(|(world, shard)| {
            let rank = proptest::collection::vec(0..=shard, 0..5).prop_map(move |mut cuts| {
                cuts.extend([0, shard]);
                cuts.sort_unstable();
                cuts.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
            });
            proptest::collection::vec(rank, world)
        });
        (cuts, any::<proptest::sample::Index>()).prop_map(|(lengths, first)| {
            // One range of each rank in turn, starting with any.
            let (world, most) = (lengths.len(), lengths.iter().map(Vec::len).max().unwrap_or(0));
            let first = first.index(world);
            let mut shards = vec![Vec::new(); world];
            let mut at = 0;
            for (number, rank) in (0..most).flat_map(|number| (first..first + world).map(move |rank| (number, rank))) {
                let length = lengths[rank % world].get(number).copied().unwrap_or(0);
                shards[rank % world].push(at..at + length);
                at += length;
            }
            plan(at, shards)
        })
    }

    proptest! {
        #[test]
        fn gathering_undoes_packing(plan in any_plan(), cut in any::<proptest::sample::Index>()) {
            plan.check().unwrap();
            let shard = plan.shard_elements();
            let full: Vec<f64> = (0..plan.elements).map(|at| at as f64 + 0.5).collect();
            let packed = plan.packed(&HostBuffer::from_slice(&full), &(0..shard));
            let wanted: Vec<f64> = plan.shards.iter().flatten().flat_map(|range| &full[range.clone()]).copied().collect();
            prop_assert_eq!(packed.as_slice::<f64>(), &wanted);
            let gathered = plan.gathered(&packed);
            prop_assert_eq!(gathered.as_slice::<f64>(), &full);
            prop_assert!(!plan.is_in_order() || wanted == full);

            // In two parts, each rank's share is a part of its shard.
            let cut = cut.index(shard + 1);
            for part in [0..cut, cut..shard] {
                let found = plan.packed(&gathered, &part);
                prop_assert_eq!(found.len(), part.len() * plan.world());
                for rank in 0..plan.world() {
                    let share = &found.as_slice::<f64>()[rank * part.len()..(rank + 1) * part.len()];
                    prop_assert_eq!(share, &wanted[rank * shard + part.start..rank * shard + part.end]);
                }
            }
        }
    }

    #[test]
    fn a_piece_holds_the_same_part_of_every_shard() {
        let plan = plan(8, vec![vec![0..1, 5..8], vec![1..5]]);
        let full = HostBuffer::from_slice(&[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let all = plan.packed(&full, &(0..4));
        assert_eq!(all.as_slice::<f32>(), [0.0, 5.0, 6.0, 7.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(plan.packed(&full, &(1..3)).as_slice::<f32>(), [5.0, 6.0, 2.0, 3.0]);
        assert!(plan.packed(&full, &(4..4)).is_empty());
        assert_eq!(plan.gathered(&all).as_slice::<f32>(), full.as_slice::<f32>());
    }

    #[test]
    fn every_bit_and_the_type_are_kept() {
        // Among them a NaN with a payload, -0 and a subnormal.
        let bits = [0x7FC1u16, 0x8000, 0x0001, 0xFF81];
        let plan = plan(4, vec![vec![3..4, 0..1], vec![1..3]]);
        let packed = plan.packed(&HostBuffer::from_slice(&bits.map(bf16::from_bits)), &(0..2));
        assert_eq!(packed.dtype(), DType::BF16);
        let found: Vec<_> = packed.as_slice::<bf16>().iter().map(|value| value.to_bits()).collect();
        assert_eq!(found, [0xFF81, 0x7FC1, 0x8000, 0x0001]);
        let found: Vec<_> = plan.gathered(&packed).as_slice::<bf16>().iter().map(|value| value.to_bits()).collect();
        assert_eq!(found, bits);
    }

    #[test]
    #[should_panic(expected = "0..3 was asked of shards of 2 elements of unit `u`")]
    fn a_part_outside_the_shard_is_a_mistake() {
        plan(4, vec![vec![0..2], vec![2..4]]).packed(&HostBuffer::zeros::<f32>(4), &(0..3));
    }

    #[test]
    #[should_panic(expected = "all shards of unit `u` together have another length")]
    fn another_length_is_a_mistake() {
        plan(4, vec![vec![0..2], vec![2..4]]).gathered(&HostBuffer::zeros::<f32>(3));
    }
}
