//! A model of fewer than a hundred numbers with everything that goes wrong in engines: a weight that two units share, a
//! frozen unit, odd, single and empty parameters, one that is never used and a unit that is never called.

use burn::module::{Module, Param, ParamId};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{DType, Device, Distribution, Shape, Tensor, TensorData, activation};
use stoker_burn::Unit;

const INPUT: usize = 5;
const WIDTH: usize = 3;

/// A matrix, and a parameter of no elements.
#[derive(Module, Debug)]
pub struct Projection {
    weight: Param<Tensor<2>>,
    nothing: Param<Tensor<1>>,
}

/// A linear layer with a scale of one element, and a parameter that nobody uses.
#[derive(Module, Debug)]
pub struct Scaled {
    linear: Linear,
    scale: Param<Tensor<1>>,
    unused: Param<Tensor<1>>,
}

/// The model, sharded or not.
#[derive(Module, Debug)]
pub struct Odd {
    embed: Unit<Projection>,
    frozen: Unit<Linear>,
    middle: Unit<Scaled>,
    /// Shares its weight with `embed`.
    unembed: Option<Unit<Tied>>,
    never: Unit<Linear>,
}

/// The embedding's weight, used again.
#[derive(Module, Debug)]
pub struct Tied {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

fn parameter<const D: usize>(shape: [usize; D], device: &Device) -> Param<Tensor<D>> {
    let make = move |device: &Device, require_grad: bool| {
        Tensor::random(shape, Distribution::Uniform(-0.7, 0.7), device).set_require_grad(require_grad)
    };
    Param::uninitialized(ParamId::new(), make, device.clone(), true, Shape::from(shape.to_vec()))
}

impl Odd {
    /// `tied`: whether the last unit is there.
    pub fn new(tied: bool, device: &Device) -> Self {
        let linear = || LinearConfig::new(WIDTH, WIDTH).init(device);
        let embed = Projection { weight: parameter([INPUT, WIDTH], device), nothing: parameter([0], device) };
        let shared = embed.weight.clone();
        Self {
            embed: Unit::new(embed),
            frozen: Unit::new(linear().no_grad()),
            middle: Unit::new(Scaled {
                linear: linear(),
                scale: parameter([1], device),
                unused: parameter([4], device),
            }),
            unembed: tied.then(|| Unit::new(Tied { weight: shared, bias: parameter([INPUT], device) })),
            never: Unit::new(linear()),
        }
    }

    /// The mean squared error of records `rows` of a batch of `batch` that belongs to `step`.
    pub fn loss(&self, step: usize, batch: usize, rows: std::ops::Range<usize>, device: &Device) -> Tensor<1> {
        let number = |i: usize| ((i * 7919 + step * 104_729) % 1009) as f32 / 504.5 - 1.0;
        let data = |from: usize| {
            let values: Vec<f32> = (rows.start * INPUT..rows.end * INPUT).map(|i| number(from + i)).collect();
            Tensor::<2>::from_data(TensorData::new(values, [rows.len(), INPUT]), device)
        };
        let x = self.embed.call(data(0), |embed, x| activation::tanh(x.matmul(embed.weight.val())));
        let x = self.frozen.call(x, |linear, x| activation::tanh(linear.forward(x)));
        let x = self
            .middle
            .call(x, |middle, x| activation::tanh(middle.linear.forward(x) * middle.scale.val().reshape([1, 1])));
        let target = data(batch * INPUT);
        match &self.unembed {
            Some(unembed) => {
                let y =
                    unembed.call(x, |tied, x| x.matmul(tied.weight.val().transpose()) + tied.bias.val().unsqueeze());
                (y.cast(DType::F32) - target).square().mean()
            }
            None => (x.cast(DType::F32) - target.slice([0..rows.len(), 0..WIDTH])).square().mean(),
        }
    }
}
