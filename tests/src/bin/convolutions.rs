//! What a convolution costs through Burn's module and through ours: `cargo xtask bench --features libtorch
//! convolutions [seednet|lenet] [cpu|cuda] [f32|bf16|f16] [ROUNDS]`; STOKER_TEST_BACKEND chooses what `cpu` is.
//!
//! Each layer's forward, and its backward to input and weight (the first has no input gradient), in ms: medians, in turn.
//! lenet also as a whole with our rectifiers, forward and backward, of 64 images. `tests/peers/convolutions.py` prints the same of PyTorch.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench reports by panicking")]

use burn::nn::conv::{Conv2d as Plain, Conv2dConfig};
use burn::nn::pool::MaxPool2dConfig;
use burn::nn::{LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Distribution, FloatDType, Tensor, activation};
use std::time::Instant;
use stoker_burn::nn::{Conv2d, relu};
use stoker_tests::median;

/// A layer: channels in and out, kernel, padding, side of the image.
type Layer = (usize, usize, usize, usize, usize);

const SEEDNET: [Layer; 4] =
    [(3, 1024, 3, 1, 32), (1024, 2048, 3, 1, 32), (2048, 3072, 3, 1, 16), (3072, 4096, 3, 1, 16)];
const LENET: [Layer; 2] = [(3, 6, 5, 0, 32), (6, 16, 5, 0, 14)];

fn device(name: &str) -> Device {
    match name {
        "cpu" => stoker_tests::device(),
        #[cfg(feature = "libtorch")]
        #[allow(deprecated, reason = "burn-tch is deprecated upstream; 0.22 is its last release, which we pin")]
        "cuda" => Device::libtorch_cuda(0usize),
        other => panic!("no device {other} in this build"),
    }
}

fn plain((from, to, kernel, padding, _): Layer, dtype: FloatDType, device: &Device) -> Plain {
    let padding = PaddingConfig2d::Explicit(padding, padding, padding, padding);
    let mut module = Conv2dConfig::new([from, to], [kernel, kernel]).with_padding(padding).init(device);
    let cast = |tensor: Tensor<4>| tensor.cast(dtype).detach().require_grad();
    module.weight = module.weight.map(cast);
    module.bias = module.bias.map(|bias| bias.map(|tensor| tensor.cast(dtype).detach().require_grad()));
    module
}

fn timed<T>(device: &Device, work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let done = work();
    device.sync().unwrap();
    (done, start.elapsed().as_secs_f64() * 1e3)
}

/// Medians in ms of forward and of backward, whose gradient of the output is all ones.
fn measure<const D: usize>(device: &Device, rounds: usize, forward: &dyn Fn() -> Tensor<D>) -> [f64; 2] {
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..rounds + 2 {
        let (output, forward) = timed(device, forward);
        let (_gradients, backward) = timed(device, || output.backward());
        // The first ones choose algorithms and touch memory.
        if round >= 2 {
            took[0].push(forward);
            took[1].push(backward);
        }
    }
    took.map(median)
}

/// For what convolutions give, and linear layers.
type Rectifiers = (fn(Tensor<4>) -> Tensor<4>, fn(Tensor<2>) -> Tensor<2>);

/// lenet over the given convolutions and rectifiers.
fn lenet(
    one: impl Fn(Tensor<4>) -> Tensor<4>,
    two: impl Fn(Tensor<4>) -> Tensor<4>,
    relu: Rectifiers,
    images: &Tensor<4>,
) -> impl Fn() -> Tensor<1> {
    let device = images.device();
    let pool = MaxPool2dConfig::new([2, 2]).init();
    let linear = [(400, 120), (120, 84), (84, 10)].map(|(from, to)| LinearConfig::new(from, to).init(&device));
    move || {
        let x = pool.forward(relu.0(one(images.clone())));
        let x = pool.forward(relu.0(two(x))).flatten::<2>(1, 3);
        let x = relu.1(linear[0].forward(x));
        linear[2].forward(relu.1(linear[1].forward(x))).square().mean()
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let network = arguments.next().unwrap_or_else(|| "lenet".to_owned());
    let device = device(&arguments.next().unwrap_or_else(|| "cpu".to_owned())).autodiff();
    let dtype = match arguments.next().as_deref() {
        None | Some("f32") => FloatDType::F32,
        Some("bf16") => FloatDType::BF16,
        Some("f16") => FloatDType::F16,
        Some(other) => panic!("no type {other}"),
    };
    let rounds = arguments.next().map_or(20, |text| text.parse().unwrap());
    let (layers, batch): (&[Layer], usize) = if network == "seednet" { (&SEEDNET, 128) } else { (&LENET, 64) };
    println!("{network}, batch {batch}, {dtype:?}, ms (medians of {rounds})");
    println!("layer                  forward: Burn's  ours   backward: Burn's   ours");
    for (at, layer) in layers.iter().enumerate() {
        let (from, to, _, _, side) = *layer;
        let module = plain(*layer, dtype, &device);
        let ours = Conv2d::from(module.clone());
        let images = Tensor::<4>::random([batch, from, side, side], Distribution::Normal(0.0, 1.0), &device);
        let images = images.cast(dtype).detach();
        let images = if at == 0 { images } else { images.require_grad() };
        let burns = measure(&device, rounds, &|| module.forward(images.clone()));
        let ours = measure(&device, rounds, &|| ours.forward(images.clone()));
        println!("{from:5} -> {to:5} at {side:3} {:16.3} {:7.3} {:18.3} {:7.3}", burns[0], ours[0], burns[1], ours[1]);
    }
    if network == "lenet" {
        let images = Tensor::<4>::random([batch, 3, 32, 32], Distribution::Normal(0.0, 1.0), &device).detach();
        let [one, two] = LENET.map(|layer| plain(layer, FloatDType::F32, &device));
        let [ours1, ours2] = [Conv2d::from(one.clone()), Conv2d::from(two.clone())];
        let burns = lenet(|x| one.forward(x), |x| two.forward(x), (activation::relu, activation::relu), &images);
        let ours = lenet(|x| ours1.forward(x), |x| ours2.forward(x), (relu, relu), &images);
        let pairs = (0..9).map(|_| {
            let whole = |forward: &dyn Fn() -> Tensor<1>| measure(&device, rounds, forward).iter().sum::<f64>();
            (whole(&burns), whole(&ours))
        });
        let pairs: Vec<_> = pairs.collect();
        println!(
            "lenet, forward and backward: Burn's {:.2}, ours {:.2}; {:.2} times as fast (median of {} pairs)",
            median(pairs.iter().map(|pair| pair.0).collect()),
            median(pairs.iter().map(|pair| pair.1).collect()),
            median(pairs.iter().map(|(burns, ours)| burns / ours).collect()),
            pairs.len()
        );
    }
}
