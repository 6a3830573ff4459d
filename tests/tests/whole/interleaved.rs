//! Evaluation, training and accumulation in any order.

use stoker_testkit::values;
use stoker_tests::Setup;
use stoker_tests::odd::Odd;

const BATCH: usize = 12;

/// What happens between two updates.
#[derive(Debug, Clone, Copy)]
struct Act {
    micro_batches: usize,
    /// How often the model is evaluated before each micro-batch and before the update.
    evaluations: usize,
    flushes: bool,
}

fn acts(seed: u64, disturbed: bool) -> Vec<Act> {
    let mut state = seed;
    let act = |_| {
        let bits = values::next(&mut state);
        let micro_batches = [1, 1, 2, 3][(bits % 4) as usize];
        let evaluations = if disturbed { (bits >> 8) % 3 } else { 0 };
        Act { micro_batches, evaluations: evaluations as usize, flushes: disturbed && (bits >> 16).is_multiple_of(5) }
    };
    (0..300).map(act).collect()
}

fn losses(setup: &Setup, acts: &[Act]) -> Vec<f64> {
    let results = setup.run(|rank| {
        let device = rank.device();
        let plain = device.clone().without_autodiff();
        let model = rank.build(|device| Odd::new(true, device), None).unwrap();
        let share = BATCH / setup.world;
        let rows = rank.communicator().rank() * share..(rank.communicator().rank() + 1) * share;
        let mut losses = Vec::new();
        for (step, act) in acts.iter().enumerate() {
            let evaluate = || {
                for _ in 0..act.evaluations {
                    let loss = rank.evaluate(|| model.loss(step + 1, BATCH, 0..3, &plain).into_scalar::<f32>());
                    assert!(loss.unwrap().is_finite());
                }
            };
            for micro_batch in 0..act.micro_batches {
                evaluate();
                let loss = rank.accumulate(|| model.loss(step * 3 + micro_batch, BATCH, rows.clone(), &device));
                losses.push(loss.unwrap());
            }
            evaluate();
            rank.update(0.02).unwrap();
            if act.flushes {
                rank.flush().unwrap();
            }
        }
        losses
    });
    results.into_iter().next().unwrap()
}

#[test]
fn three_hundred_steps_are_not_disturbed_by_evaluations() {
    for (world, stage, pool_bytes) in [(1, 3, 1), (2, 0, 1 << 20), (2, 2, 1 << 20), (2, 3, 1), (3, 3, 200)] {
        let mut setup = Setup::new(world, stage);
        setup.settings.pool_bytes = pool_bytes;
        let seed = u64::from(stage) + world as u64;
        let wanted = losses(&setup, &acts(seed, false));
        setup.delays = Some(seed);
        assert_eq!(losses(&setup, &acts(seed, true)), wanted, "{world} ranks at stage {stage}");
    }
}
