use super::*;
use proptest::prelude::*;

#[test]
fn each_error_says_what_was_wanted() {
    let new = |len, world, rank, batch| RankSampler::new(len, world, rank, batch, 0).unwrap_err();
    assert_eq!(new(10, 2, 2, 1), SamplerError::Rank { rank: 2, world: 2 });
    assert_eq!(new(10, 0, 0, 1), SamplerError::Rank { rank: 0, world: 0 });
    assert_eq!(new(10, 2, 1, 0), SamplerError::EmptyBatch);
    assert_eq!(new(10, 3, 1, 4), SamplerError::TooFewRecords { len: 10, batch: 12 });
    let overflow = SamplerError::BatchOverflow { micro_batch: usize::MAX, world: 2 };
    assert_eq!(new(10, 2, 1, usize::MAX), overflow);

    let global = |world, rank, batch| RankSampler::with_global_batch(100, world, rank, batch, 0).unwrap_err();
    assert_eq!(global(0, 0, 8), SamplerError::Rank { rank: 0, world: 0 });
    assert_eq!(global(4, 0, 0), SamplerError::EmptyBatch);
    let uneven = global(4, 0, 30);
    assert_eq!(uneven, SamplerError::NotDivisible { batch: 30, world: 4 });
    assert!(uneven.to_string().contains("leaves 2 over") && uneven.to_string().ends_with("try 28 or 32"), "{uneven}");
    assert!(global(4, 0, 3).to_string().ends_with("leaves 3 over, wanted a multiple of the number of ranks; try 4"));
    assert!(global(1, 0, 101).to_string().contains("found 100 records, wanted at least one global batch of 101"));
}

#[test]
fn epochs_and_seeds_differ_and_repeat() {
    let order = |seed, epoch| RankSampler::new(100, 2, 1, 10, seed).unwrap().epoch(epoch).flatten().collect::<Vec<_>>();
    assert_eq!(order(1, 0), order(1, 0));
    assert_ne!(order(1, 0), order(1, 1));
    assert_ne!(order(1, 0), order(2, 0));
}

#[test]
fn skipping_goes_to_the_same_place_as_walking() {
    let sampler = RankSampler::new(100, 2, 0, 5, 3).unwrap();
    let walked: Vec<Vec<usize>> = sampler.epoch(4).collect();
    assert_eq!(walked.len(), sampler.batches());
    assert_eq!(sampler.epoch(4).skip(7).collect::<Vec<_>>(), walked[7..]);
    let mut epoch = sampler.epoch(4);
    assert_eq!(epoch.len(), 10);
    assert_eq!(epoch.nth(8).as_ref(), walked.get(8));
    assert_eq!((epoch.len(), epoch.next().as_ref()), (1, walked.get(9)));
    assert_eq!((epoch.len(), epoch.next(), epoch.next(), epoch.nth(usize::MAX)), (0, None, None, None));
}

/// Records, ranks and records per rank and batch that fit together.
fn fitting() -> impl Strategy<Value = (usize, usize, usize)> {
    (1usize..7, 1usize..9).prop_flat_map(|(world, micro)| (world * micro..400, Just(world), Just(micro)))
}

/// The batches of every rank.
fn all(len: usize, world: usize, micro: usize, seed: u64, epoch: u64) -> Vec<Vec<Vec<usize>>> {
    let batches = |rank| RankSampler::new(len, world, rank, micro, seed).unwrap().epoch(epoch).collect();
    (0..world).map(batches).collect()
}

proptest! {
    #[test]
    fn ranks_see_disjoint_and_equal_shares((len, world, micro) in fitting(), seed: u64, epoch: u64) {
        let ranks = all(len, world, micro, seed, epoch);
        let batches = len / (world * micro);
        for rank in &ranks {
            prop_assert_eq!(rank.len(), batches);
            prop_assert!(rank.iter().all(|batch| batch.len() == micro));
        }
        let mut seen: Vec<usize> = ranks.into_iter().flatten().flatten().collect();
        let total = seen.len();
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen.len(), total);
        prop_assert_eq!(total, batches * world * micro);
        prop_assert!(total + world * micro > len, "only an incomplete batch is left out");
        prop_assert!(seen.iter().all(|record| *record < len));
    }

    #[test]
    fn a_step_sees_the_same_records_for_any_world((len, world, micro) in fitting(), seed: u64, epoch: u64) {
        let batch = world * micro;
        let alone: Vec<Vec<usize>> =
            RankSampler::with_global_batch(len, 1, 0, batch, seed).unwrap().epoch(epoch).collect();
        let ranks: Vec<Vec<Vec<usize>>> = (0..world)
            .map(|rank| RankSampler::with_global_batch(len, world, rank, batch, seed).unwrap().epoch(epoch).collect())
            .collect();
        for (step, alone) in alone.iter().enumerate() {
            let together: Vec<usize> = ranks.iter().flat_map(|rank| rank[step].iter().copied()).collect();
            prop_assert_eq!(&together, alone);
        }
    }

    #[test]
    fn accumulating_small_batches_gives_the_large_one((len, world, micro) in fitting(), seed: u64) {
        let large: Vec<usize> = all(len, 1, world * micro, seed, 0).into_iter().flatten().flatten().collect();
        let small: Vec<usize> = all(len, 1, micro, seed, 0).into_iter().flatten().flatten().collect();
        prop_assert_eq!(&small[..large.len()], &large[..]);
    }
}
