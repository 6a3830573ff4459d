//! Narrow types, loss scales and gradients that are not finite.

use burn::tensor::{DType as BurnType, Tensor};
use stoker_burn::{Rank, init};
use stoker_core::{DType, Place, Role};
use stoker_engine::{DynamicLossScale, LossScale, Outcome};
use stoker_tests::models::{Chain, Kind};
use stoker_tests::odd::Odd;
use stoker_tests::plain::Values;
use stoker_tests::{Setup, relative_distance};

const BATCH: usize = 12;
const TYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

fn scale_of(compute: DType) -> LossScale {
    match compute {
        DType::F16 => LossScale::Dynamic(DynamicLossScale { initial_power: 10, hysteresis: 1, ..Default::default() }),
        _ => LossScale::None,
    }
}

fn setup(world: usize, stage: u8, compute: DType) -> Setup {
    let mut setup = Setup { eps: 1e-3, ..Setup::new(world, stage) };
    setup.device.compute = compute;
    setup.settings.loss_scale = scale_of(compute);
    setup.settings.pool_bytes = 1;
    setup
}

fn rows(rank: &Rank, world: usize) -> std::ops::Range<usize> {
    let (number, share) = (rank.communicator().rank(), BATCH / world);
    number * share..(number + 1) * share
}

fn saved(rank: &Rank, model: &Odd, directory: &std::path::Path) -> Values {
    let file = directory.join("model.safetensors");
    rank.save(model, &file).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let values = |view: &safetensors::tensor::TensorView<'_>| {
        assert_eq!(view.dtype(), safetensors::Dtype::F32, "master parameters are f32");
        view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    tensors.tensors().iter().map(|(name, view)| (name.clone(), values(view))).collect()
}

/// One rank's gradient has an infinity: no rank changes anything but its counters, and goes on.
#[test]
fn an_infinity_on_one_rank_skips_the_step_on_all() {
    for compute in TYPES {
        for stage in 0..4 {
            for overlap in [true, false] {
                let directory = tempfile::tempdir().unwrap();
                let mut setup = setup(2, stage, compute);
                setup.settings.overlap = overlap;
                setup.run(|rank| {
                    let device = rank.device();
                    let model = rank.build(|device| Odd::new(true, device), None).unwrap();
                    let rows = rows(rank, 2);
                    let train = |step: usize, factor: f32| {
                        rank.step(1e-2, || model.loss(step, BATCH, rows.clone(), &device) * factor).unwrap().report
                    };
                    let report = train(0, 1.0);
                    assert_eq!((report.outcome, report.updates), (Outcome::Updated, 1));
                    let before = saved(rank, &model, directory.path());
                    let bad = if rank.communicator().rank() == 1 { f32::INFINITY } else { 1.0 };
                    let report = train(1, bad);
                    let what = format!("{compute} stage {stage}");
                    assert_eq!(
                        (report.outcome, report.updates, report.consecutive_skips),
                        (Outcome::Skipped, 1, 1),
                        "{what}"
                    );
                    assert_eq!(rank.skipped().unwrap(), 1, "{what}");
                    let after = saved(rank, &model, directory.path());
                    assert!(after.values().flatten().all(|value| value.is_finite()), "{what}");
                    assert_eq!(after, before, "{what}: a skipped step changed parameters");
                    let report = train(2, 1.0);
                    assert_eq!((report.outcome, report.updates, report.consecutive_skips), (Outcome::Updated, 2, 0));
                    assert!(report.gradient_norm.is_finite() && report.gradient_norm > 0.0);
                    if compute == DType::F16 {
                        assert_eq!(report.loss_scale, 512.0, "the scale is halved by the overflow");
                    }
                    // Moments that an infinity had reached would make the next update NaN.
                    let next = saved(rank, &model, directory.path());
                    assert!(next.values().flatten().all(|value| value.is_finite()), "{what}: moments were touched");
                    assert_ne!(next, after, "{what}: nothing is trained after a skip");
                });
            }
        }
    }
}

/// A run with a skipped step ends with the same bits as one without that step: nothing of it is left, in moments and
/// counters neither. (Running statistics are the forward's own: what a batch norm has seen it has seen.)
#[test]
fn a_skipped_step_leaves_no_trace() {
    for compute in TYPES {
        for stage in 0..4 {
            let train = |steps: &'static [usize]| {
                let directory = tempfile::tempdir().unwrap();
                let mut setup = setup(2, stage, compute);
                // A scale that an overflow changes would change what f16 rounds.
                setup.settings.loss_scale = LossScale::Static(1024.0);
                let values = setup.run(|rank| {
                    let device = rank.device();
                    let model = rank.build(|device| Odd::new(true, device), None).unwrap();
                    for &step in steps {
                        let bad = step == BAD && rank.communicator().rank() == 1;
                        let factor = if bad { f32::NEG_INFINITY } else { 1.0 };
                        rank.step(1e-2, || model.loss(step, BATCH, rows(rank, 2), &device) * factor).unwrap();
                    }
                    assert_eq!(rank.skipped().unwrap(), steps.iter().filter(|step| **step == BAD).count() as u64);
                    saved(rank, &model, directory.path())
                });
                values.into_iter().next().unwrap()
            };
            assert_eq!(train(&[0, 1, BAD, BAD, 2, 3]), train(&[0, 1, 2, 3]), "{compute} stage {stage}");
        }
    }
}

const BAD: usize = 99;

/// The story is the same on every rank, and names parameter and rank.
#[test]
fn too_many_skips_end_the_run() {
    for (stage, culprit) in [(0, 0), (3, 1)] {
        let mut setup = setup(2, stage, DType::F16);
        setup.settings.max_consecutive_skips = 3;
        let errors = setup.run(|rank| {
            let device = rank.device();
            let model = rank.build(|device| Odd::new(true, device), None).unwrap();
            let bad = if rank.communicator().rank() == culprit { f32::NAN } else { 1.0 };
            let step = |_: u32| rank.step(1e-2, || model.loss(0, BATCH, rows(rank, 2), &device) * bad);
            assert_eq!(step(0).unwrap().report.outcome, Outcome::Skipped);
            assert_eq!(step(1).unwrap().report.consecutive_skips, 2);
            step(2).unwrap_err().to_string()
        });
        for error in errors {
            for part in
                ["the last 3 steps were skipped", "`embed.weight` is not finite", &format!("on rank {culprit}"), "256"]
            {
                assert!(error.contains(part), "`{part}` is missing: {error}");
            }
        }
    }
}

/// Losses of `steps` steps, over all ranks.
fn losses(setup: &Setup, steps: usize) -> Vec<f64> {
    let world = setup.world;
    let results = setup.run(|rank| {
        let device = rank.device();
        let model = rank.build(|device| Odd::new(true, device), None).unwrap();
        let step = |step| {
            let loss = rank.step(2e-2, || model.loss(step, BATCH, rows(rank, world), &device)).unwrap().loss;
            rank.sum("loss", &[loss]).unwrap()[0] / world as f64
        };
        (0..steps).map(step).collect::<Vec<_>>()
    });
    results.into_iter().next().unwrap()
}

#[test]
fn narrow_training_follows_wide_training_and_is_the_same_at_every_stage() {
    let wanted = losses(&setup(1, 0, DType::F32), 40);
    for compute in [DType::BF16, DType::F16] {
        let tolerance = if compute == DType::BF16 { 1e-2 } else { 2e-3 };
        for world in [1, 2, 3] {
            for gradients in [Some(DType::F32), None] {
                let mut same: Option<Vec<f64>> = None;
                for stage in 0..4 {
                    let mut setup = setup(world, stage, compute);
                    setup.settings.gradients = gradients;
                    setup.delays = Some(u64::from(stage));
                    let found = losses(&setup, 40);
                    for (found, wanted) in found.iter().zip(&wanted) {
                        let far = (found - wanted).abs();
                        assert!(far < tolerance, "{compute} {gradients:?} ranks {world} stage {stage}: {far}");
                    }
                    let same = same.get_or_insert_with(|| found.clone());
                    assert_eq!(*same, found, "{compute} {gradients:?} ranks {world}: stage {stage} is not stage 0");
                }
            }
        }
    }
}

/// Adding a thousandth of an ulp a thousand times moves a master parameter, and never a narrow one.
#[test]
fn small_updates_reach_master_parameters() {
    for compute in [DType::BF16, DType::F16] {
        let directory = tempfile::tempdir().unwrap();
        let setup = Setup { optimizer: "sgd", ..setup(1, 3, compute) };
        setup.run(|rank| {
            let device = rank.device();
            let model = rank.build(|device| Odd::new(true, device), None).unwrap();
            let before = saved(rank, &model, directory.path());
            for step in 0..50 {
                rank.step(1e-5, || model.loss(step % 3, BATCH, 0..BATCH, &device)).unwrap();
            }
            let after = saved(rank, &model, directory.path());
            let distance = relative_distance(&after["embed.weight"], &before["embed.weight"]);
            assert!(distance > 1e-6 && distance < 1e-3, "{compute}: {distance:e}");
        });
    }
}

/// Gradients that f16 cannot hold without it: with a loss scale they arrive, without they are zero.
#[test]
fn a_loss_scale_keeps_small_gradients() {
    let norm = |scale: LossScale, compute: DType| {
        let mut setup = setup(1, 3, compute);
        setup.settings.loss_scale = scale;
        let norms = setup.run(|rank| {
            let device = rank.device();
            let model = rank.build(|device| Odd::new(true, device), None).unwrap();
            let step = rank.step(0.0, || model.loss(0, BATCH, 0..BATCH, &device) * 1e-7).unwrap();
            assert!((step.loss - 1e-7).abs() < 1e-6, "the reported loss is not scaled");
            step.report.gradient_norm
        });
        norms[0]
    };
    let wanted = norm(LossScale::None, DType::F32);
    let scaled = norm(LossScale::Static(f64::from(1 << 20)), DType::F16);
    assert!((scaled / wanted - 1.0).abs() < 1e-2, "{scaled:e} instead of {wanted:e}");
    let lost = norm(LossScale::None, DType::F16);
    assert!((lost / wanted - 1.0).abs() > 0.1, "{lost:e} is right without a scale: the test shows nothing");
}

#[test]
fn a_unit_takes_the_bytes_of_its_type() {
    let bytes = |compute: DType| {
        let setup = setup(1, 3, compute);
        let peaks = setup.run(|rank| {
            let device = rank.device();
            let make = |device: &burn::tensor::Device| Chain::new(Kind::Linear, 4, 64, None, device);
            let chain = rank.build(make, None).unwrap();
            rank.step(1e-3, || chain.flat(Tensor::ones([2, 64], &device)).cast(BurnType::F32).square().mean()).unwrap();
            rank.ledger().unwrap().peaks()
        });
        let of = |place: Place, role: Role| {
            let found = peaks[0].iter().find(|peak| peak.place == place && peak.role == Some(role));
            found.map_or(0, |peak| peak.bytes)
        };
        [
            of(Place::Device, Role::Slab),
            of(Place::Host, Role::Parameters),
            of(Place::Host, Role::MasterParameters),
            of(Place::Host, Role::OptimizerState),
        ]
    };
    let [slab, parameters, master, state] = bytes(DType::F32);
    assert_eq!(master, 0);
    assert_eq!(bytes(DType::BF16), [slab / 2, parameters / 2, parameters, state]);
}

/// A model that holds some parameters in bf16 keeps them so, as the plain model does.
#[test]
fn parameters_of_several_types() {
    use burn::module::Module;
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;
    use stoker_burn::Unit;

    #[derive(Module, Debug)]
    struct Mixed {
        both: Unit<(Linear, Linear)>,
    }
    fn narrow(linear: Linear) -> Linear {
        let cast = |tensor: Tensor<2>| tensor.cast(BurnType::BF16).detach().require_grad();
        Linear {
            weight: linear.weight.map(cast),
            bias: linear.bias.map(|bias| bias.map(|t| t.cast(BurnType::BF16).detach().require_grad())),
        }
    }
    fn make(device: &Device) -> Mixed {
        let linear = || LinearConfig::new(4, 4).init(device);
        let mut narrow = narrow(init::initialise(linear(), 3));
        narrow.weight.id = burn::module::ParamId::new();
        Mixed { both: Unit::new((linear(), narrow)) }
    }
    let loss = |model: &Mixed, device: &Device| {
        let x = Tensor::<1>::from_floats([0.5, -0.25, 1.0, 0.125, 0.75, -1.0, 0.25, 0.5], device).reshape([2, 4]);
        let y = model.both.call(x, |(wide, narrow), x| narrow.forward(wide.forward(x).cast(BurnType::BF16)));
        y.cast(BurnType::F32).square().mean()
    };
    let device = stoker_tests::device().autodiff();
    let reference = loss(&init::initialise(make(&device), 7), &device).into_scalar::<f32>();
    for stage in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("model.safetensors");
        let setup = Setup::new(2, stage);
        setup.run(|rank| {
            let device = rank.device();
            let model = rank.build(make, None).unwrap();
            let losses = [0; 5].map(|_| rank.step(1e-2, || loss(&model, &device)).unwrap().loss);
            assert!((losses[0] - f64::from(reference)).abs() < 1e-6, "{losses:?} {reference}");
            assert!(losses[4] < losses[0], "{losses:?}");
            rank.save(&model, &file).unwrap();
        });
        let bytes = std::fs::read(&file).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(tensors.tensor("both.0.weight").unwrap().dtype(), safetensors::Dtype::F32);
        assert_eq!(tensors.tensor("both.1.weight").unwrap().dtype(), safetensors::Dtype::BF16);
    }
}

#[test]
fn burns_batch_norm_is_refused_in_narrow_types() {
    let setup = setup(1, 3, DType::BF16);
    let errors = setup.run(|rank| {
        let make = |device: &burn::tensor::Device| Chain::new(Kind::Convolution, 1, 4, None, device);
        rank.build(make, None).map(drop).unwrap_err().to_string()
    });
    assert!(
        errors[0].contains("blocks.0.batch_norm.running_mean") && errors[0].contains("SyncBatchNorm"),
        "{}",
        errors[0]
    );
}
