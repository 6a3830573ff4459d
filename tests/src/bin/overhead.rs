//! What the engine costs where it is not needed: lenet, batch 64, one rank, everything resident, against the same loop in
//! plain Burn. Pairs of runs in turn, so that a machine whose speed drifts does not decide; prints the ratios.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a bench reports by panicking")]

use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor};
use std::time::Instant;
use stoker_burn::init;
use stoker_tests::pictures::pictures;
use stoker_tests::{Setup, median};
use stoker_trainer::models::{LeNet, LeNetConfig};
use stoker_trainer::{Classifier, cross_entropy};

const BATCH: usize = 64;
const STEPS: usize = 60;
const PAIRS: usize = 9;

type Batch = (Tensor<4>, Tensor<1, Int>);

fn make(device: &Device) -> LeNet {
    LeNetConfig::new().init(device)
}

/// Images a second of plain Burn.
fn plain(batches: &[Batch], device: &Device) -> f64 {
    let mut model = init::initialise(make(device), 7);
    let mut optimizer = AdamWConfig::new().init();
    let start = Instant::now();
    for (images, labels) in batches {
        let loss = cross_entropy(model.forward(images.clone()), labels.clone());
        let _value = loss.clone().into_scalar::<f32>();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
    }
    (batches.len() * BATCH) as f64 / start.elapsed().as_secs_f64()
}

/// Images a second of one rank at this stage.
fn engine(batches: &[Batch], stage: u8) -> f64 {
    let setup = Setup { target: "gpu-only", ..Setup::new(1, stage) };
    let rates = setup.run(|rank| {
        let model = rank.build(make, None).unwrap();
        let start = Instant::now();
        for (images, labels) in batches {
            rank.step(1e-3, || cross_entropy(model.forward(images.clone()), labels.clone())).unwrap();
        }
        rank.flush().unwrap();
        (batches.len() * BATCH) as f64 / start.elapsed().as_secs_f64()
    });
    rates[0]
}

fn main() {
    let device = stoker_tests::device().autodiff();
    let batches: Vec<Batch> = (0..STEPS).map(|step| pictures(step, BATCH, 0..BATCH, &device)).collect();
    plain(&batches, &device);
    for stage in [0, 3] {
        let mut ratios = Vec::new();
        let mut rates = Vec::new();
        for _ in 0..PAIRS {
            let plain = plain(&batches, &device);
            let engine = engine(&batches, stage);
            ratios.push(engine / plain);
            rates.push((plain, engine));
        }
        let (plain, engine) = (
            median(rates.iter().map(|(plain, _)| *plain).collect()),
            median(rates.iter().map(|(_, engine)| *engine).collect()),
        );
        let (least, most) = ratios.iter().fold((f64::MAX, 0f64), |(least, most), r| (least.min(*r), most.max(*r)));
        println!(
            "lenet, batch {BATCH}, stage {stage}, one rank, all resident: plain Burn {plain:.0} images/s, stoker {engine:.0}; \
             ratio {:.3} (median of {PAIRS} pairs; {least:.3} to {most:.3})",
            median(ratios)
        );
    }
}
