//! How a unit's parameters lie in one flat vector, and which rank keeps which part of it.

mod rearrange;

use crate::{Error, Result};
use fnv::FnvHasher;
use std::hash::{Hash, Hasher};
use std::ops::Range;

/// A parameter before it is placed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ParameterSpec {
    /// Path in the model, `features.conv1.weight`: the key of everything that crosses ranks or runs.
    pub path: String,
    /// Shape, outermost dimension first.
    pub shape: Vec<usize>,
}

impl ParameterSpec {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// A parameter and the place of its elements in the unit's flat vector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlacedParameter {
    /// What is placed.
    pub spec: ParameterSpec,
    /// Elements `range` of the flat vector, in row-major order.
    pub range: Range<usize>,
}

/// A unit's flat vector and how `world` ranks share it.
///
/// [Note: Flat vector] A unit is gathered and reduced as one vector. Every parameter is one contiguous range of it, so
/// that a gathered unit can be used through views; what lies between them is padding, which is zero and stays zero.
/// Every rank keeps equally many elements (collectives need equal counts): the concatenation of its `shards` ranges,
/// in order. Taken over all ranks, the ranges cover the vector once each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Name of the unit: its path in the model.
    pub unit: String,
    /// The parameters in the order of the model.
    pub parameters: Vec<PlacedParameter>,
    /// Length of the flat vector, padding included.
    pub elements: usize,
    /// For every rank, what it keeps.
    pub shards: Vec<Vec<Range<usize>>>,
}

impl Plan {
    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.shards.len()
    }

    /// Elements that each rank keeps.
    pub fn shard_elements(&self) -> usize {
        self.shards.first().map_or(0, |ranges| ranges.iter().map(Range::len).sum())
    }

    /// What `rank` keeps; nothing for a rank outside the world.
    pub fn shard(&self, rank: usize) -> &[Range<usize>] {
        self.shards.get(rank).map_or(&[], Vec::as_slice)
    }

    /// Whether the concatenation of all shards is the flat vector itself, so that a gather needs no rearrangement.
    pub fn is_in_order(&self) -> bool {
        let mut next = 0;
        self.shards.iter().flatten().all(|range| std::mem::replace(&mut next, range.end) == range.start)
    }

    /// The pieces of flat range `wanted` that `rank` keeps, as (place in the flat vector, place in the shard).
    pub fn overlap(&self, rank: usize, wanted: &Range<usize>) -> Vec<(Range<usize>, Range<usize>)> {
        let mut at = 0;
        let mut pieces = Vec::new();
        for range in self.shard(rank) {
            let start = range.start.max(wanted.start);
            let end = range.end.min(wanted.end);
            if start < end {
                let local = at + start - range.start;
                pieces.push((start..end, local..local + end - start));
            }
            at += range.len();
        }
        pieces
    }

    /// A number that ranks compare to make sure that they hold the same plan. The standard hasher would not do: it may
    /// change with the compiler.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = FnvHasher::default();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Checks what a plan owes (see [Note: Flat vector]).
    ///
    /// # Errors
    /// [`Error::BadPlan`] that names the law that is broken and where.
    pub fn check(&self) -> Result<()> {
        let bad = |reason: String| Err(Error::BadPlan { unit: self.unit.clone(), reason });
        let mut end = 0;
        for parameter in &self.parameters {
            let PlacedParameter { spec, range } = parameter;
            if range.len() != spec.elements() || range.start > range.end {
                return bad(format!("`{}` has {} elements but range {range:?}", spec.path, spec.elements()));
            }
            if range.start < end {
                return bad(format!("`{}` at {range:?} overlaps what lies before it (up to {end})", spec.path));
            }
            end = range.end;
        }
        if end > self.elements {
            return bad(format!("the parameters end at {end}, the flat vector at {}", self.elements));
        }
        let wanted = self.shard_elements();
        for (rank, ranges) in self.shards.iter().enumerate() {
            let found: usize = ranges.iter().map(Range::len).sum();
            if found != wanted {
                return bad(format!("rank {rank} keeps {found} elements, rank 0 {wanted}"));
            }
        }
        let mut ranges: Vec<_> = self.shards.iter().flatten().filter(|range| !range.is_empty()).collect();
        ranges.sort_by_key(|range| range.start);
        let mut next = 0;
        for range in ranges {
            if range.start != next {
                return bad(format!("element {next} should start the next shard, {} does", range.start));
            }
            next = range.end;
        }
        if next != self.elements {
            return bad(format!("the shards end at {next}, the flat vector at {}", self.elements));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            unit: "u".into(),
            parameters: vec![PlacedParameter {
                spec: ParameterSpec { path: "u.w".into(), shape: vec![3] },
                range: 0..3,
            }],
            elements: 4,
            shards: vec![vec![0..1, 3..4], vec![1..3]],
        }
    }

    #[test]
    fn overlap_maps_flat_to_shard() {
        assert_eq!(plan().check().map_err(|e| e.to_string()), Ok(()));
        assert_eq!(plan().overlap(0, &(0..4)), [(0..1, 0..1), (3..4, 1..2)]);
        assert_eq!(plan().overlap(1, &(2..4)), [(2..3, 1..2)]);
        assert!(!plan().is_in_order());
    }

    #[test]
    fn every_broken_law_is_named() {
        let broken = |change: fn(&mut Plan)| {
            let mut plan = plan();
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        assert!(broken(|p| p.parameters[0].range = 0..2).contains("`u.w` has 3 elements but range 0..2"));
        assert!(broken(|p| p.parameters.push(p.parameters[0].clone())).contains("overlaps what lies before it"));
        assert!(broken(|p| p.elements = 2).contains("the parameters end at 3, the flat vector at 2"));
        assert!(broken(|p| p.shards[1] = vec![1..2]).contains("rank 1 keeps 1 elements, rank 0 2"));
        assert!(broken(|p| p.shards[1] = vec![0..2]).contains("should start the next shard"));
        assert!(broken(|p| p.elements = 6).contains("the shards end at 4, the flat vector at 6"));
    }

    #[test]
    fn fingerprints_tell_plans_apart() {
        let mut other = plan();
        assert_eq!(plan().fingerprint(), other.fingerprint());
        other.parameters[0].spec.path = "u.v".into();
        assert_ne!(plan().fingerprint(), other.fingerprint());
    }
}
