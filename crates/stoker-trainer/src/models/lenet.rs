//! LeNet-5 (LeCun et al., 1998), with max-pooling and ReLU, for colour pictures.

use super::Classifier;
use burn::module::Module;
use burn::nn::conv::Conv2dConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use stoker_burn::Unit;
use stoker_burn::nn::{Conv2d, relu};
use stoker_data::{CHANNELS, CLASSES};

/// Makes a [`LeNet`].
#[derive(Debug, Clone, Copy, Default)]
pub struct LeNetConfig;

/// Two convolutions and three linear layers, each a unit.
#[derive(Module, Debug)]
pub struct LeNet {
    conv1: Unit<Conv2d>,
    conv2: Unit<Conv2d>,
    fc1: Unit<Linear>,
    fc2: Unit<Linear>,
    fc3: Unit<Linear>,
    pool: MaxPool2d,
}

impl LeNetConfig {
    /// The only LeNet there is.
    pub fn new() -> Self {
        Self
    }

    /// The model on `device`; its parameters are drawn when they are first used.
    pub fn init(&self, device: &Device) -> LeNet {
        LeNet {
            conv1: Unit::new(Conv2d::from(Conv2dConfig::new([CHANNELS, 6], [5, 5]).init(device))),
            conv2: Unit::new(Conv2d::from(Conv2dConfig::new([6, 16], [5, 5]).init(device))),
            fc1: Unit::new(LinearConfig::new(16 * 5 * 5, 120).init(device)),
            fc2: Unit::new(LinearConfig::new(120, 84).init(device)),
            fc3: Unit::new(LinearConfig::new(84, CLASSES).init(device)),
            pool: MaxPool2dConfig::new([2, 2]).init(),
        }
    }
}

impl Classifier for LeNet {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = relu(self.conv1.call(images, |conv, x| conv.forward(x)));
        let x = self.pool.forward(x);
        let x = relu(self.conv2.call(x, |conv, x| conv.forward(x)));
        let x = self.pool.forward(x).flatten(1, 3);
        let x = relu(self.fc1.call(x, |fc, x| fc.forward(x)));
        let x = relu(self.fc2.call(x, |fc, x| fc.forward(x)));
        self.fc3.call(x, |fc, x| fc.forward(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::count;

    #[test]
    fn it_is_lenet() {
        let device = Device::flex();
        let model = LeNetConfig::new().init(&device);
        assert_eq!(count(&model), 62_006);
        assert_eq!(model.forward(Tensor::zeros([2, 3, 32, 32], &device)).dims(), [2, 10]);
    }
}
