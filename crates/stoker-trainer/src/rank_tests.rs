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
