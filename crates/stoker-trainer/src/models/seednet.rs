//! The network of Determined AI's example `cifar10_cpu_offloading`: it does not fit where its example runs it.

use super::Classifier;
use burn::module::Module;
use burn::nn::conv::Conv2dConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Tensor};
use stoker_burn::Unit;
use stoker_burn::nn::{Conv2d, relu};
use stoker_data::{CHANNELS, CLASSES, HEIGHT, WIDTH};

/// Channels of the convolutions.
const CHANNELS_OUT: [usize; 4] = [1024, 2048, 3072, 4096];
/// Features of the hidden linear layers.
const FEATURES: [usize; 3] = [1_000, 10_000, 10_000];
/// A hidden layer narrower than the classes could not tell them apart.
const LEAST_FEATURES: usize = 10;

/// Makes a [`SeedNet`].
#[derive(Debug, Clone, Copy)]
pub struct SeedNetConfig {
    width_divisor: usize,
}

/// Four convolutions and four linear layers, each a unit.
#[derive(Module, Debug)]
pub struct SeedNet {
    conv1_1: Unit<Conv2d>,
    conv1_2: Unit<Conv2d>,
    conv2_1: Unit<Conv2d>,
    conv2_2: Unit<Conv2d>,
    fc1: Unit<Linear>,
    fc2: Unit<Linear>,
    fc3: Unit<Linear>,
    fc4: Unit<Linear>,
    pool: MaxPool2d,
}

impl SeedNetConfig {
    /// All widths are divided by `width_divisor` and rounded down; 1 is the original, of 561,046,578 parameters.
    ///
    /// No layer vanishes: at least one channel and ten features are left.
    pub fn new(width_divisor: usize) -> Self {
        Self { width_divisor: width_divisor.max(1) }
    }

    /// The model on `device`; its parameters are drawn when they are first used.
    pub fn init(&self, device: &Device) -> SeedNet {
        let conv = |from, to| {
            let padding = PaddingConfig2d::Explicit(1, 1, 1, 1);
            Unit::new(Conv2d::from(Conv2dConfig::new([from, to], [3, 3]).with_padding(padding).init(device)))
        };
        let linear = |from, to| Unit::new(LinearConfig::new(from, to).init(device));
        let [c1, c2, c3, c4] = CHANNELS_OUT.map(|channels| (channels / self.width_divisor).max(1));
        let [f1, f2, f3] = FEATURES.map(|features| (features / self.width_divisor).max(LEAST_FEATURES));
        SeedNet {
            conv1_1: conv(CHANNELS, c1),
            conv1_2: conv(c1, c2),
            conv2_1: conv(c2, c3),
            conv2_2: conv(c3, c4),
            // Two poolings by 2 came before it.
            fc1: linear(c4 * (HEIGHT / 4) * (WIDTH / 4), f1),
            fc2: linear(f1, f2),
            fc3: linear(f2, f3),
            fc4: linear(f3, CLASSES),
            pool: MaxPool2dConfig::new([2, 2]).init(),
        }
    }
}

impl Classifier for SeedNet {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = relu(self.conv1_1.call(images, |conv, x| conv.forward(x)));
        let x = relu(self.conv1_2.call(x, |conv, x| conv.forward(x)));
        let x = self.pool.forward(x);
        let x = relu(self.conv2_1.call(x, |conv, x| conv.forward(x)));
        let x = relu(self.conv2_2.call(x, |conv, x| conv.forward(x)));
        let x = self.pool.forward(x).flatten(1, 3);
        let x = relu(self.fc1.call(x, |fc, x| fc.forward(x)));
        let x = relu(self.fc2.call(x, |fc, x| fc.forward(x)));
        let x = relu(self.fc3.call(x, |fc, x| fc.forward(x)));
        self.fc4.call(x, |fc, x| fc.forward(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::count;
    use burn::module::{ModuleVisitor, Param};

    /// Names and shapes, without making a tensor.
    #[derive(Default)]
    struct Shapes(Vec<String>, Vec<(String, Vec<usize>)>);

    impl ModuleVisitor for Shapes {
        fn enter_module(&mut self, name: &str, _container: &str) {
            self.0.push(name.to_owned());
        }

        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.0.pop();
        }

        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push((self.0.join("."), param.lazy_shape().as_slice().to_vec()));
        }
    }

    #[test]
    fn full_width_is_the_original() {
        let model = SeedNetConfig::new(1).init(&Device::flex());
        assert_eq!(count(&model), 561_046_578);
        let mut shapes = Shapes::default();
        model.visit(&mut shapes);
        let weights: Vec<_> = shapes.1.into_iter().filter(|(name, _)| name.ends_with("weight")).collect();
        let expected: [(&str, &[usize]); 8] = [
            ("conv1_1.weight", &[1024, 3, 3, 3]),
            ("conv1_2.weight", &[2048, 1024, 3, 3]),
            ("conv2_1.weight", &[3072, 2048, 3, 3]),
            ("conv2_2.weight", &[4096, 3072, 3, 3]),
            ("fc1.weight", &[262_144, 1_000]),
            ("fc2.weight", &[1_000, 10_000]),
            ("fc3.weight", &[10_000, 10_000]),
            ("fc4.weight", &[10_000, 10]),
        ];
        assert_eq!(weights, expected.map(|(name, shape)| (name.to_owned(), shape.to_vec())));
    }

    #[test]
    fn a_divided_one_runs_and_no_layer_vanishes() {
        let device = Device::flex();
        let images = || Tensor::zeros([1, 3, 32, 32], &device);
        let model = SeedNetConfig::new(64).init(&device);
        assert_eq!(model.forward(images()).dims(), [1, 10]);
        // 16, 32, 48, 64 channels; 15, 156, 156 features.
        let convolutions = 16 * 28 + 32 * (16 * 9 + 1) + 48 * (32 * 9 + 1) + 64 * (48 * 9 + 1);
        let linears = 15 * (64 * 64 + 1) + 156 * (15 + 1) + 156 * (156 + 1) + 10 * (156 + 1);
        assert_eq!(count(&model), convolutions + linears);
        assert_eq!(SeedNetConfig::new(1024).init(&device).forward(images()).dims(), [1, 10]);
    }
}
