//! The models, with a loss for each step.

use crate::arguments::Arguments;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::gelu;
use burn::tensor::{DType, Device, Distribution, FloatDType, Int, Tensor, TensorData};
use stoker_burn::{Rank, Unit};
use stoker_data::{RECORD_BYTES, to_f32};
use stoker_tests::pictures::pictures;
use stoker_trainer::models::{LeNetConfig, SeedNetConfig};
use stoker_trainer::{Classifier, cross_entropy};

const LAYERS: usize = 16;

/// Linear layers of one width, as in `shared/peers/chain.py`.
#[derive(Module, Debug)]
struct Chain {
    layers: Vec<Unit<Linear>>,
}

impl Chain {
    fn new(width: usize, device: &Device) -> Self {
        let layer = |_| Unit::new(LinearConfig::new(width, width).init(device));
        Self { layers: (0..LAYERS).map(layer).collect() }
    }

    fn loss(&self, x: Tensor<2>) -> Tensor<1> {
        let y = self.layers.iter().fold(x, |x, layer| gelu(layer.call(x, |layer, x| layer.forward(x))));
        y.cast(FloatDType::F32).square().mean()
    }
}

pub(crate) type Loss = Box<dyn Fn(usize) -> Tensor<1>>;

/// The model, with a loss for each step, and its trained numbers.
pub(crate) fn losses(arguments: &Arguments, rank: &Rank) -> (Loss, usize) {
    let device = rank.device();
    let model = arguments.model.as_str();
    if model == "chain" {
        let width = arguments.number("width", 8192.0) as usize;
        let batch = arguments.number("batch", 2048.0) as usize;
        let chain = rank.build(|device| Chain::new(width, device), None).unwrap();
        let x = Tensor::<2>::random([batch, width], Distribution::Normal(0.0, 1.0), &device);
        let compute = if arguments.text("dtype", "bf16") == "f32" { DType::F32 } else { DType::BF16 };
        let x = x.cast(compute).detach();
        let count = LAYERS * (width * width + width);
        return (Box::new(move |_| chain.loss(x.clone())), count);
    }
    let batch = arguments.number("batch", 128.0) as usize;
    let data = images(batch, &device);
    if model == "seednet" {
        let divisor = arguments.number("divisor", 1.0) as usize;
        let net = rank.build(|device| SeedNetConfig::new(divisor).init(device), None).unwrap();
        let count = net.num_params();
        return (Box::new(move |step| loss(&net, &data[step % data.len()])), count);
    }
    let net = rank.build(|device| LeNetConfig::new().init(device), None).unwrap();
    let count = net.num_params();
    (Box::new(move |step| loss(&net, &data[step % data.len()])), count)
}

fn loss(net: &impl Classifier, (images, labels): &(Tensor<4>, Tensor<1, Int>)) -> Tensor<1> {
    cross_entropy(net.forward(images.clone()), labels.clone())
}

/// Ten batches of the records in `CIFAR_BIN`, a file of CIFAR-10's binary form, as `shared/peers/seed.py` takes it.
fn images(batch: usize, device: &Device) -> Vec<(Tensor<4>, Tensor<1, Int>)> {
    let Some(path) = std::env::var_os("CIFAR_BIN") else {
        println!("CIFAR_BIN is not set: built-in pictures");
        return (0..10).map(|step| pictures(step, batch, 0..batch, device)).collect();
    };
    let bytes = std::fs::read(path).unwrap();
    let records: Vec<_> = bytes.chunks_exact(RECORD_BYTES).collect();
    let of = |step: usize| {
        let rows: Vec<_> = (0..batch).map(|row| records[(step * batch + row) % records.len()]).collect();
        let pixels: Vec<f32> = rows.iter().flat_map(|row| &row[1..]).map(|&pixel| to_f32(pixel)).collect();
        let labels: Vec<i32> = rows.iter().map(|row| i32::from(row[0])).collect();
        (
            Tensor::from_data(TensorData::new(pixels, [batch, 3, 32, 32]), device),
            Tensor::from_data(TensorData::new(labels, [batch]), device),
        )
    };
    (0..10).map(of).collect()
}
