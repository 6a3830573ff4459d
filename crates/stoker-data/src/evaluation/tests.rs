use super::*;
use proptest::prelude::*;

#[test]
fn each_error_says_what_was_wanted() {
    let new = |len, world, rank, batch| EvaluationSampler::new(len, world, rank, batch).unwrap_err();
    assert_eq!(new(10, 2, 2, 1), SamplerError::Rank { rank: 2, world: 2 });
    assert_eq!(new(10, 0, 0, 1), SamplerError::Rank { rank: 0, world: 0 });
    assert_eq!(new(10, 2, 1, 0), SamplerError::EmptyBatch);
    assert_eq!(new(0, 2, 1, 4), SamplerError::NothingToEvaluate);
    assert!(new(0, 2, 1, 4).to_string().contains("wanted at least 1"));
}

#[test]
fn a_rank_without_records_left_runs_an_empty_batch() {
    let batches = |rank| EvaluationSampler::new(9, 2, rank, 4).unwrap().iter().collect::<Vec<_>>();
    let (first, second) = (batches(0), batches(1));
    assert_eq!(first.iter().map(EvaluationBatch::records).collect::<Vec<_>>(), [0..4, 4..5]);
    assert_eq!(second.iter().map(EvaluationBatch::records).collect::<Vec<_>>(), [5..9, 9..9]);
    assert_eq!(first[1].padded(), [4, 4, 4, 4]);
    assert_eq!((second[1].len(), second[1].is_empty(), second[1].padded()), (0, true, vec![0; 4]));
    assert_eq!(second[0].padded(), [5, 6, 7, 8]);
}

#[test]
fn more_ranks_than_records_still_run_one_batch_each() {
    for rank in 0..5 {
        let sampler = EvaluationSampler::new(3, 5, rank, 2).unwrap();
        let batches: Vec<EvaluationBatch> = (&sampler).into_iter().collect();
        assert_eq!((batches.len(), batches[0].len()), (1, usize::from(rank < 3)));
        assert!(batches[0].padded().iter().all(|record| *record < 3));
    }
}

proptest! {
    #[test]
    fn every_record_counts_once_and_every_rank_runs_as_often(
        len in 1usize..300,
        world in 1usize..9,
        micro in 1usize..20,
    ) {
        let samplers: Vec<EvaluationSampler> =
            (0..world).map(|rank| EvaluationSampler::new(len, world, rank, micro).unwrap()).collect();
        let counted: Vec<usize> = samplers.iter().flat_map(|s| s.iter().flat_map(|batch| batch.records())).collect();
        prop_assert_eq!(counted, (0..len).collect::<Vec<usize>>());
        let shares: Vec<usize> = samplers.iter().map(|s| s.share().len()).collect();
        prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        for sampler in &samplers {
            prop_assert_eq!(sampler.batches(), samplers[0].batches());
            prop_assert_eq!(sampler.iter().len(), sampler.batches());
            prop_assert_eq!(sampler.iter().count(), sampler.batches());
            for batch in sampler {
                let padded = batch.padded();
                prop_assert_eq!(padded.len(), micro);
                prop_assert!(batch.records().eq(padded.iter().copied().take(batch.len())));
                prop_assert!(padded.iter().all(|record| *record < len));
            }
        }
    }
}
