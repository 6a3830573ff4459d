//! `SyncBatchNorm` on several ranks gives what one plain Burn model with `BatchNorm` gives on the whole batch.

use burn::module::{Module, ModuleDisplay, ModuleVisitor, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData, activation};
use burn_store::{ModuleSnapshot, SafetensorsStore};
use std::ops::Range;
use stoker_burn::nn::SyncBatchNorm;
use stoker_burn::{Checkpointing, Unit, init};
use stoker_tests::plain::{self, Values};
use stoker_tests::{Setup, relative_distance};

const BATCH: usize = 12;
const CHANNELS: usize = 5;
const SIDE: usize = 4;
const STEPS: usize = 5;
/// A shift between two norms hardly matters: its gradient is small, and a smaller eps would make much of its rounding.
const EPS: f64 = 1e-2;
const RATE: f64 = 1e-2;

trait Norm: Module + ModuleDisplay {
    fn new(channels: usize, device: &Device) -> Self;
    fn apply<const D: usize>(&self, x: Tensor<D>) -> Tensor<D>;
}

impl Norm for BatchNorm {
    fn new(channels: usize, device: &Device) -> Self {
        BatchNormConfig::new(channels).init(device)
    }

    fn apply<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        self.forward(x)
    }
}

impl Norm for SyncBatchNorm {
    fn new(channels: usize, device: &Device) -> Self {
        BatchNormConfig::new(channels).init(device).into()
    }

    fn apply<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        self.forward(x)
    }
}

#[derive(Module, Debug)]
struct Layer<N> {
    convolution: Conv2d,
    norm: N,
}

#[derive(Module, Debug)]
struct Head<N> {
    linear: Linear,
    norm: N,
}

#[derive(Module, Debug)]
struct Net<N: Module + ModuleDisplay> {
    first: Unit<Layer<N>>,
    second: Unit<Layer<N>>,
    head: Unit<Head<N>>,
}

impl<N: Norm> Layer<N> {
    fn new(device: &Device) -> Self {
        let padding = PaddingConfig2d::Explicit(1, 1, 1, 1);
        // A norm takes a bias away again: its gradient would be nothing but rounding errors, which AdamW makes much of.
        let convolution = Conv2dConfig::new([CHANNELS, CHANNELS], [3, 3]).with_padding(padding).with_bias(false);
        Self { convolution: convolution.init(device), norm: N::new(CHANNELS, device) }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        activation::gelu(self.norm.apply(self.convolution.forward(x)))
    }
}

impl<N: Norm> Net<N> {
    fn new(device: &Device) -> Self {
        let linear = LinearConfig::new(CHANNELS * SIDE * SIDE, 3).with_bias(false).init(device);
        let head = Head { linear, norm: N::new(3, device) };
        Self { first: Unit::new(Layer::new(device)), second: Unit::new(Layer::new(device)), head: Unit::new(head) }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let x = self.first.call(x, Layer::forward);
        let x = self.second.call(x, Layer::forward);
        self.head.call(x, |head, x| head.norm.apply(head.linear.forward(x.flatten(1, 3))))
    }
}

fn pictures(step: usize, rows: Range<usize>, device: &Device) -> Tensor<4> {
    let size = CHANNELS * SIDE * SIDE;
    // Far from zero mean, and other values in each row: a rank's own statistics are not those of all.
    let value = |i: usize| ((i * 7919 + step * 104_729) % 1009) as f32 / 504.5 + (i / size) as f32 * 0.2;
    let values: Vec<f32> = (rows.start * size..rows.end * size).map(value).collect();
    Tensor::from_data(TensorData::new(values, [rows.len(), CHANNELS, SIDE, SIDE]), device)
}

/// This rank's part of the mean over the batch, so that the mean over ranks is the whole mean for unequal parts too.
fn loss<N: Norm>(net: &Net<N>, step: usize, rows: Range<usize>, world: usize, device: &Device) -> Tensor<1> {
    let targets: Vec<f32> =
        rows.clone().flat_map(|row| (0..3).map(move |i| ((row * 5 + i) % 7) as f32 / 3.0)).collect();
    let targets = Tensor::<2>::from_data(TensorData::new(targets, [rows.len(), 3]), device);
    let errors = net.forward(pictures(step, rows, device)) - targets;
    errors.square().sum() * (world as f64 / (BATCH * 3) as f64)
}

struct Wanted {
    values: Values,
    losses: Vec<f64>,
    gradient_norm: f64,
    /// What evaluation gives in the end.
    evaluated: Vec<f32>,
}

struct SumOfSquares<'a>(&'a Gradients, f64);

impl ModuleVisitor for SumOfSquares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = param.val().grad(self.0) {
            self.1 += gradient.into_data().iter::<f64>().map(|g| g * g).sum::<f64>();
        }
    }
}

fn reference() -> Wanted {
    let device = stoker_tests::device().autodiff();
    let model = init::initialise(Net::<BatchNorm>::new(&device), 7);
    let first = init::initialise(Net::<BatchNorm>::new(&device), 7);
    let gradients = loss(&first, 0, 0..BATCH, 1, &device).backward();
    let mut squares = SumOfSquares(&gradients, 0.0);
    first.visit(&mut squares);
    let (model, losses) =
        plain::train(model, EPS, 0.01, RATE, STEPS, |net, step| loss(net, step, 0..BATCH, 1, &device));
    // Burn keeps the last update of running statistics back; `valid` makes it.
    let model = model.valid();
    let evaluated = evaluate(&model, &device.without_autodiff());
    Wanted { values: plain::values(&model), losses, gradient_norm: squares.1.sqrt(), evaluated }
}

fn evaluate<N: Norm>(net: &Net<N>, device: &Device) -> Vec<f32> {
    net.forward(pictures(99, 0..3, device)).into_data().try_to_vec().unwrap()
}

struct Found {
    values: Values,
    losses: Vec<f64>,
    gradient_norm: f64,
    evaluated: Vec<f32>,
    /// Every rank's running means of the first layer.
    running_means: Vec<Vec<f32>>,
}

/// Trains on ranks of `parts` records.
fn train(setup: &Setup, parts: &[usize]) -> Found {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("model.safetensors");
    let results = setup.run(|rank| {
        let device = rank.device();
        let net = rank.build(Net::<SyncBatchNorm>::new, None).unwrap();
        let number = rank.communicator().rank();
        let start: usize = parts[..number].iter().sum();
        let mut losses = Vec::new();
        let mut norms = Vec::new();
        for step in 0..STEPS {
            let rows = start..start + parts[number];
            let step = rank.step(RATE, || loss(&net, step, rows, parts.len(), &device)).unwrap();
            losses.push(step.loss);
            norms.push(step.report.gradient_norm);
        }
        rank.save(&net, &file).unwrap();
        let evaluated = rank.evaluate(|| evaluate(&net, &device.without_autodiff())).unwrap();
        let mut mean = Vec::new();
        rank.evaluate(|| {
            let read = |layer: &Layer<SyncBatchNorm>, ()| {
                mean = layer.norm.norm.running_mean.value().into_data().try_to_vec::<f32>().unwrap();
            };
            net.first.call((), read);
        })
        .unwrap();
        (losses, norms[0], evaluated, mean)
    });
    // What a plain model with Burn's batch norm reads.
    let mut plain = Net::<BatchNorm>::new(&stoker_tests::device());
    plain.load_from(&mut SafetensorsStore::from_file(&file)).unwrap();
    let world = parts.len() as f64;
    let losses = (0..STEPS).map(|step| results.iter().map(|result| result.0[step]).sum::<f64>() / world).collect();
    Found {
        values: plain::values(&plain),
        losses,
        gradient_norm: results[0].1,
        evaluated: results[0].2.clone(),
        running_means: results.into_iter().map(|result| result.3).collect(),
    }
}

fn check(wanted: &Wanted, setup: &Setup, parts: &[usize]) -> f64 {
    let found = train(setup, parts);
    let about = format!("stage {:?} parts {parts:?} {:?}", setup.settings.stage, setup.device.checkpointing);
    assert_eq!(found.values.keys().collect::<Vec<_>>(), wanted.values.keys().collect::<Vec<_>>());
    let mut farthest = 0.0f64;
    for (path, wanted) in &wanted.values {
        let distance = relative_distance(&found.values[path], wanted);
        assert!(distance <= 1e-5, "{about} {path}: {distance:e}");
        farthest = farthest.max(distance);
    }
    for (found, wanted) in found.losses.iter().zip(&wanted.losses) {
        assert!((found / wanted - 1.0).abs() < 1e-5, "{about}: loss {found} instead of {wanted}");
    }
    let norm = found.gradient_norm / wanted.gradient_norm - 1.0;
    assert!(norm.abs() < 1e-5, "{about}: gradient norm off by {norm:e}");
    assert!(relative_distance(&found.evaluated, &wanted.evaluated) < 1e-5, "{about}: evaluation");
    for mean in &found.running_means {
        assert_eq!(mean, &found.values["first.norm.running_mean"], "{about}: every rank has the same statistics");
    }
    farthest
}

#[test]
fn ranks_of_any_parts_give_the_whole_batch() {
    let wanted = reference();
    let mut farthest = 0.0f64;
    for parts in [&[12][..], &[6, 6], &[4, 4, 4], &[5, 7], &[1, 9, 2]] {
        for stage in [0, 3] {
            let mut setup = Setup { eps: EPS, ..Setup::new(parts.len(), stage) };
            // Nothing fits together: gathers come between the sums.
            setup.settings.pool_bytes = 1;
            farthest = farthest.max(check(&wanted, &setup, parts));
        }
    }
    println!("farthest from plain Burn: {farthest:e}");
}

#[test]
fn checkpointing_changes_nothing() {
    let wanted = reference();
    for (parts, stage) in [(&[12][..], 0), (&[5, 7], 1), (&[6, 6], 2), (&[5, 7], 3)] {
        let mut setup = Setup { eps: EPS, ..Setup::new(parts.len(), stage) };
        setup.device.checkpointing = Checkpointing::Balanced;
        check(&wanted, &setup, parts);
    }
}

#[test]
fn each_ranks_own_statistics_would_be_others() {
    // Else the tests above could not fail.
    let device = stoker_tests::device().autodiff();
    let net = init::initialise(Net::<BatchNorm>::new(&device), 7);
    let whole = loss(&net, 0, 0..BATCH, 1, &device).into_scalar::<f32>();
    let parts = [0..6, 6..BATCH].map(|rows| loss(&net, 0, rows, 2, &device).into_scalar::<f32>());
    assert!((whole - (parts[0] + parts[1]) / 2.0).abs() > 1e-2 * whole, "{whole} {parts:?}");
}

#[test]
fn a_file_of_burns_batch_norm_begins_a_run() {
    let device = stoker_tests::device().autodiff();
    let trained = init::initialise(Net::<BatchNorm>::new(&device), 3);
    let (trained, _) = plain::train(trained, EPS, 0.01, RATE, 2, |net, step| loss(net, step, 0..BATCH, 1, &device));
    let trained = trained.valid();
    let directory = tempfile::tempdir().unwrap();
    let (file, saved) = (directory.path().join("plain.safetensors"), directory.path().join("saved.safetensors"));
    trained.save_into(&mut SafetensorsStore::from_file(&file)).unwrap();
    Setup::new(2, 3).run(|rank| {
        let net = rank.build(Net::<SyncBatchNorm>::new, Some(file.as_path())).unwrap();
        rank.save(&net, &saved).unwrap();
    });
    let mut back = Net::<BatchNorm>::new(&stoker_tests::device());
    back.load_from(&mut SafetensorsStore::from_file(&saved)).unwrap();
    assert_eq!(plain::values(&back), plain::values(&trained));
    assert_ne!(plain::values(&back)["first.norm.running_mean"], vec![0.0; CHANNELS]);
}

#[test]
fn bf16_goes_through_and_statistics_stay_f32() {
    // Burn's batch norm in f32, on values that went through bf16.
    let device = stoker_tests::device().autodiff();
    let x = |rows: Range<usize>, device: &Device| pictures(1, rows, device).cast(DType::BF16);
    let burn = BatchNormConfig::new(CHANNELS).init(&device);
    let y = burn.forward(x(0..BATCH, &device).cast(DType::F32)).cast(DType::BF16).cast(DType::F32);
    let wanted: Vec<f32> = y.into_data().try_to_vec().unwrap();
    let wanted_mean: Vec<f32> = burn.running_mean.value_sync().into_data().try_to_vec().unwrap();

    let results = Setup::new(2, 3).run(|rank| {
        let device = rank.device();
        let unit = rank.build(|device| Unit::new(SyncBatchNorm::new(CHANNELS, device)), None).unwrap();
        let first = rank.communicator().rank() * 6;
        let (mut values, mut mean) = (Vec::new(), Vec::new());
        rank.step(0.0, || {
            let y = unit.call(x(first..first + 6, &device), |norm, x| {
                let y = norm.forward(x);
                let running = norm.norm.running_mean.value();
                assert_eq!((y.dtype(), running.dtype()), (DType::BF16, DType::F32));
                mean = running.into_data().try_to_vec::<f32>().unwrap();
                y
            });
            let y = y.cast(DType::F32);
            values = y.clone().into_data().try_to_vec::<f32>().unwrap();
            y.square().mean()
        })
        .unwrap();
        (values, mean)
    });
    let found: Vec<f32> = results.iter().flat_map(|result| result.0.clone()).collect();
    // One bf16 step where rounding falls the other way.
    assert!(relative_distance(&found, &wanted) < 1e-3);
    assert!(relative_distance(&results[0].1, &wanted_mean) < 1e-6);
}

#[test]
fn a_rank_that_leaves_the_norm_out_is_told_of_it() {
    let errors = Setup::new(2, 3).run(|rank| {
        let device = rank.device();
        let net = rank.build(Net::<SyncBatchNorm>::new, None).unwrap();
        let skips = rank.communicator().rank() == 1;
        let step = rank.step(RATE, || {
            let x = net.first.call(pictures(0, 0..4, &device), |layer, x| {
                let x = layer.convolution.forward(x);
                if skips { x } else { layer.norm.forward(x) }
            });
            net.second.call(x, Layer::forward).square().mean()
        });
        step.unwrap_err().to_string()
    });
    assert!(errors.iter().any(|error| error.contains("sums of a batch norm in forward of unit `first`")), "{errors:?}");
}
