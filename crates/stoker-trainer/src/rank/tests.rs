use super::*;
use crate::models::{LeNet, LeNetConfig};
use crate::{Classifier, cross_entropy, launch};
use stoker_cpu_offload as _;
use stoker_data::{Builtin, Split};
use stoker_optimizers as _;
use stoker_partitioners as _;
use stoker_threads as _;

fn settings(overrides: &[&str]) -> Settings {
    let overrides = overrides.iter().map(|&text| text.to_owned()).collect();
    Settings::load(&stoker_config::Sources { overrides, ..Default::default() }).unwrap().0
}

fn lenet(rank: &Rank) -> Result<LeNet> {
    rank.build(|device| LeNetConfig::new().init(device))
}

#[test]
fn a_validation_is_that_of_the_plain_model_whatever_the_ranks() {
    // With 3 ranks and 7 records some batches are short and some are empty.
    let data = Builtin::new(3, Split::Valid, 7);
    let plain = stoker_burn::init::initialise(LeNetConfig::new().init(&Device::flex()), 42);
    let mut expected = [0.0; 2];
    for record in 0..data.len() {
        let item = data.get(record).unwrap();
        let pixels = burn::tensor::TensorData::new(item.to_f32(), [1, 3, 32, 32]);
        let logits = plain.forward(Tensor::from_data(pixels, &Device::flex()));
        let log_softmax = log_softmax(logits, 1).into_data();
        let log_likelihood = log_softmax.as_slice::<f32>().unwrap();
        let told = (0..10).max_by(|&a, &b| log_likelihood[a].total_cmp(&log_likelihood[b])).unwrap();
        let label = usize::from(item.label);
        expected[0] -= f64::from(log_likelihood[label]) / 7.0;
        expected[1] += f64::from(u8::from(told == label)) / 7.0;
    }
    for (ranks, batch) in [(1, 7), (1, 4), (3, 6)] {
        let settings = settings(&[&format!("run.ranks={ranks}"), &format!("train.batch_size={batch}")]);
        let validations = launch(&settings, |rank| {
            let model = lenet(rank)?;
            rank.validate(&data, |images| model.forward(images))
        });
        for validation in validations.unwrap() {
            assert_eq!(validation.records, 7);
            assert!((validation.loss - expected[0]).abs() < 1e-5, "{ranks} ranks: {validation:?}, {expected:?}");
            assert!((validation.accuracy - expected[1]).abs() < 1e-12, "{ranks} ranks: {validation:?}, {expected:?}");
        }
    }
}

#[test]
fn steps_take_the_learning_rates_of_the_schedule() {
    let settings = settings(&[
        "run.ranks=2",
        "train.batch_size=8",
        "train.max_steps=3",
        "train.epochs=2",
        "learning_rate.schedule=linear",
        "learning_rate.base=0.5",
        "learning_rate.end=0.25",
    ]);
    let data = Builtin::new(3, Split::Train, 16);
    let rates = launch(&settings, |rank| {
        let model = lenet(rank)?;
        let batches = rank.batches(&data)?;
        assert_eq!((batches.len(), batches.per_epoch(), batches.global_batch()), (3, 2, 8));
        batches
            .map(|batch| {
                let batch = batch?;
                let step = rank.step(|| cross_entropy(model.forward(batch.images), batch.labels))?;
                assert!(step.loss.is_finite());
                Ok(step.report.learning_rate)
            })
            .collect::<Result<Vec<_>>>()
    });
    assert_eq!(rates.unwrap(), [[0.5, 0.375, 0.25]; 2]);
}

#[test]
fn a_skipped_step_does_not_use_up_its_learning_rate() {
    let settings = settings(&[
        "run.ranks=2",
        "train.batch_size=8",
        "train.epochs=2",
        "learning_rate.schedule=linear",
        "learning_rate.base=0.5",
        "learning_rate.end=0.125",
    ]);
    let data = Builtin::new(3, Split::Train, 16);
    let steps = launch(&settings, |rank| {
        let model = lenet(rank)?;
        let steps = rank.batches(&data)?.enumerate().map(|(number, batch)| {
            let batch = batch?;
            // The second step is spoilt on one rank.
            let factor = if number == 1 && rank.number() == 1 { f32::INFINITY } else { 1.0 };
            let step = rank.step(|| cross_entropy(model.forward(batch.images), batch.labels) * factor)?;
            Ok((step.report.learning_rate, step.report.outcome, step.report.updates))
        });
        steps.collect::<Result<Vec<_>>>()
    });
    let (updated, skipped) = (Outcome::Updated, Outcome::Skipped);
    let wanted = [(0.5, updated, 1), (0.375, skipped, 1), (0.375, updated, 2), (0.25, updated, 3)];
    assert_eq!(steps.unwrap(), [wanted; 2]);
}

#[test]
fn a_step_over_micro_batches_has_their_mean_loss_and_one_update() {
    let data = Builtin::new(3, Split::Train, 24);
    // At a learning rate of 0 the weights stay, so that losses and gradients can be compared.
    let steps = |accumulation: usize, ranks: usize| {
        let settings = settings(&[
            "train.batch_size=12",
            &format!("run.ranks={ranks}"),
            &format!("train.accumulation={accumulation}"),
            "learning_rate.base=0",
        ]);
        let reports = launch(&settings, |rank| {
            let model = lenet(rank)?;
            let steps = rank.batches(&data)?.steps().map(|micro_batches| {
                assert_eq!(micro_batches.len(), accumulation);
                let loss = |batch: crate::Batch| cross_entropy(model.forward(batch.images), batch.labels);
                let step = rank.step_over(micro_batches, loss)?;
                let loss = rank.sum("loss", &[step.loss])?[0] / rank.world() as f64;
                Ok((loss, step.report.gradient_norm, step.report.updates))
            });
            steps.collect::<Result<Vec<_>>>()
        });
        reports.unwrap().remove(0)
    };
    let whole = steps(1, 1);
    assert_eq!(whole.iter().map(|step| step.2).collect::<Vec<_>>(), [1, 2]);
    for (accumulation, ranks) in [(3, 1), (2, 2), (4, 3)] {
        for (one, other) in whole.iter().zip(&steps(accumulation, ranks)) {
            assert!((one.0 - other.0).abs() < 1e-6, "{accumulation} x {ranks}: {one:?} {other:?}");
            assert!((one.1 / other.1 - 1.0).abs() < 1e-5, "{accumulation} x {ranks}: {one:?} {other:?}");
            assert_eq!(one.2, other.2);
        }
    }
}

#[test]
fn a_batch_is_no_step_where_gradients_are_accumulated() {
    let settings = settings(&["train.accumulation=2"]);
    let error = launch(&settings, |rank| rank.step(|| panic!("it is never called")).map(|_| ())).unwrap_err();
    assert!(error.chain().contains("call `Rank::step_over` for each step"), "{}", error.chain());
}

#[test]
fn a_step_of_nothing_is_refused() {
    let error = launch(&settings(&[]), |rank| {
        lenet(rank)?;
        rank.step_over(std::iter::empty::<Result<()>>(), |()| panic!("it is never called")).map(|_| ())
    });
    assert!(error.unwrap_err().chain().contains("a step without micro-batches has no gradient"));
}

#[test]
fn a_panic_in_a_step_names_rank_and_unit() {
    let settings = settings(&["run.ranks=2"]);
    let error = launch(&settings, |rank| {
        let model = lenet(rank)?;
        let rows = if rank.number() == 1 { 31 } else { 32 };
        rank.step(|| {
            let images = Tensor::zeros([2, 3, 32, rows], &rank.device());
            cross_entropy(model.forward(images), Tensor::zeros([2], &rank.device()))
        })
    });
    let error = error.unwrap_err();
    // 31 columns become 6 and not 5 x 5: the first linear layer cannot take them.
    assert!(error.chain().starts_with("rank 1 failed: panic during forward of unit `fc1`: "), "{}", error.chain());
    assert_eq!(error.exit_code(), crate::exit::RANK_LOST);
}

#[test]
fn too_few_records_are_refused() {
    let data = Builtin::new(3, Split::Train, 7);
    let error = launch(&settings(&["train.batch_size=8"]), |rank| rank.batches(&data).map(|_| ())).unwrap_err();
    assert!(error.chain().contains("found 7 records, wanted at least one global batch of 8"), "{}", error.chain());
    assert_eq!(error.exit_code(), crate::exit::USAGE);
}
