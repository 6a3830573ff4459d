use super::*;
use stoker_data::{Builtin, PIXELS, Split};

fn batches(data: &Builtin, rank: usize, micro_batch: usize, accumulation: usize, steps: usize) -> Batches<'_> {
    let sampler = RankSampler::new(data.len(), 2, rank, micro_batch, 7).unwrap();
    Batches::new(data, sampler, accumulation, Device::flex()).unwrap().take_steps(steps)
}

fn pictures(batch: Batch) -> Vec<Vec<f32>> {
    let pixels = batch.images.into_data().try_to_vec::<f32>().unwrap();
    pixels.chunks(PIXELS).map(<[f32]>::to_vec).collect()
}

#[test]
fn a_run_goes_through_epochs_until_its_steps_are_done() {
    // 17 records are two global batches of 8 an epoch.
    let data = Builtin::new(1, Split::Train, 17);
    let places = |steps| {
        let places = batches(&data, 0, 4, 1, steps).map(|batch| {
            let Batch { epoch, step, ends_epoch, .. } = batch.unwrap();
            (epoch, step, ends_epoch)
        });
        places.collect::<Vec<_>>()
    };
    assert_eq!(places(4), [(0, 0, false), (0, 1, true), (1, 0, false), (1, 1, true)]);
    assert_eq!(places(3), [(0, 0, false), (0, 1, true), (1, 0, true)]);
    assert_eq!(places(0), []);
}

#[test]
fn micro_batches_stay_within_their_step() {
    // 15 records are 7 micro-batches of 2, of which 3 are a step: the seventh is left out.
    let data = Builtin::new(1, Split::Train, 15);
    let all = batches(&data, 1, 1, 3, 3);
    assert_eq!((all.per_epoch(), all.global_batch(), all.len()), (2, 6, 9));
    let places: Vec<_> = all.map(|batch| batch.map(|b| (b.epoch, b.step, b.ends_epoch)).unwrap()).collect();
    let step = |epoch, step, ends| [(epoch, step, false), (epoch, step, false), (epoch, step, ends)];
    assert_eq!(places, [step(0, 0, false), step(0, 1, true), step(1, 0, true)].concat());

    let mut steps = batches(&data, 1, 1, 3, 3).steps();
    assert_eq!((steps.per_epoch(), steps.global_batch(), steps.len()), (2, 6, 3));
    let second = steps.nth(1).unwrap();
    assert_eq!((second.epoch(), second.step(), second.ends_epoch(), second.len()), (0, 1, true, 3));
    // Steps that were begun count as gone.
    let mut begun = batches(&data, 1, 1, 3, 3);
    begun.next().unwrap().unwrap();
    assert_eq!((begun.len(), begun.steps().len()), (8, 2));
}

#[test]
fn a_step_has_the_same_records_for_any_ranks_and_accumulation() {
    let data = Builtin::new(1, Split::Train, 30);
    let whole = RankSampler::new(data.len(), 1, 0, 12, 7).unwrap();
    for accumulation in [1, 2, 3] {
        // Of each rank, its steps of micro-batches.
        let ranks: Vec<Vec<Vec<_>>> = [0, 1]
            .map(|rank| {
                let steps = batches(&data, rank, 6 / accumulation, accumulation, 4).steps();
                steps.map(|step| step.map(|batch| pictures(batch.unwrap())).collect()).collect()
            })
            .into();
        for step in 0..4 {
            let epoch = whole.epoch(step as u64 / 2).nth(step % 2).unwrap();
            let wanted: Vec<_> = epoch.iter().map(|&record| data.get(record).unwrap().to_f32()).collect();
            // Micro-batch by micro-batch, in each the parts of the ranks.
            let found: Vec<_> = (0..accumulation)
                .flat_map(|micro_batch| ranks.iter().flat_map(move |rank| rank[step][micro_batch].clone()))
                .collect();
            assert_eq!(found, wanted, "step {step} in {accumulation} parts");
        }
    }
}

#[test]
fn a_set_smaller_than_a_step_is_refused() {
    let data = Builtin::new(1, Split::Train, 11);
    let sampler = RankSampler::new(data.len(), 2, 0, 2, 7).unwrap();
    let error = Batches::new(&data, sampler, 3, Device::flex()).unwrap_err().to_string();
    assert!(error.contains("found 11 records, wanted at least one global batch of 12"), "{error}");
}
