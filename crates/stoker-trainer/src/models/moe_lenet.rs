//! LeNet whose second linear layer is a mixture of experts.

use super::Classifier;
use super::moe::{Mixed, Mixture, MixtureConfig};
use burn::module::Module;
use burn::nn::conv::Conv2dConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use stoker_burn::Unit;
use stoker_burn::nn::{Conv2d, relu};
use stoker_data::{CHANNELS, CLASSES};

/// Makes a [`MoeLeNet`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MoeLeNetConfig {
    /// Number of experts; at least one.
    pub experts: usize,
    /// Experts that a picture chooses: 1 as in the Switch Transformer, 2 as in GShard; at most all of them.
    pub top_k: usize,
    /// Rows of an expert, relative to its fair share: 1 drops pictures as soon as routing is uneven.
    pub capacity_factor: f64,
    /// Weight of the load-balancing loss.
    pub load_balance: f64,
}

impl Default for MoeLeNetConfig {
    /// Four experts of which one is chosen, with the Switch Transformer's capacity factor of 1.25 and weight of 0.01.
    fn default() -> Self {
        Self { experts: 4, top_k: 1, capacity_factor: 1.25, load_balance: 0.01 }
    }
}

/// [`LeNet`](super::LeNet) with a [`Mixture`] of layers in the place of `fc2`: router, experts and the other layers are
/// units.
///
/// There is no way around the mixture (it makes 84 features of 120): a picture that finds no row in any of its experts
/// reaches the last layer as zeros, which is to say with nothing but that layer's bias.
#[derive(Module, Debug)]
pub struct MoeLeNet {
    conv1: Unit<Conv2d>,
    conv2: Unit<Conv2d>,
    fc1: Unit<Linear>,
    fc2: Mixture,
    fc3: Unit<Linear>,
    pool: MaxPool2d,
    load_balance: f64,
}

impl MoeLeNetConfig {
    /// The model on `device`; its parameters are drawn when they are first used. Numbers out of range become the nearest
    /// in it.
    pub fn init(&self, device: &Device) -> MoeLeNet {
        let mixture = MixtureConfig {
            input: 120,
            output: 84,
            experts: self.experts,
            top_k: self.top_k,
            capacity_factor: self.capacity_factor,
        };
        MoeLeNet {
            conv1: Unit::new(Conv2d::from(Conv2dConfig::new([CHANNELS, 6], [5, 5]).init(device))),
            conv2: Unit::new(Conv2d::from(Conv2dConfig::new([6, 16], [5, 5]).init(device))),
            fc1: Unit::new(LinearConfig::new(16 * 5 * 5, 120).init(device)),
            fc2: mixture.init(device),
            fc3: Unit::new(LinearConfig::new(84, CLASSES).init(device)),
            pool: MaxPool2dConfig::new([2, 2]).init(),
            load_balance: self.load_balance,
        }
    }
}

impl MoeLeNet {
    /// How many of these pictures have each expert as their first choice.
    pub fn loads(&self, images: Tensor<4>) -> Vec<usize> {
        self.mixed(images).loads
    }

    fn mixed(&self, images: Tensor<4>) -> Mixed {
        let x = relu(self.conv1.call(images, |conv, x| conv.forward(x)));
        let x = self.pool.forward(x);
        let x = relu(self.conv2.call(x, |conv, x| conv.forward(x)));
        let x = self.pool.forward(x).flatten(1, 3);
        let x = relu(self.fc1.call(x, |fc, x| fc.forward(x)));
        self.fc2.forward(x)
    }
}

impl Classifier for MoeLeNet {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.forward_with_loss(images).0
    }

    fn forward_with_loss(&self, images: Tensor<4>) -> (Tensor<2>, Tensor<1>) {
        let Mixed { output, load_balance, .. } = self.mixed(images);
        (self.fc3.call(output, |fc, x| fc.forward(x)), load_balance * self.load_balance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::count;

    #[test]
    fn it_is_lenet_with_experts() {
        let device = Device::flex();
        let config = MoeLeNetConfig { load_balance: 0.5, ..MoeLeNetConfig::default() };
        let model = config.init(&device);
        // LeNet has one layer of 120 to 84 features; this has four, and a router.
        assert_eq!(count(&model), 62_006 + 3 * (120 * 84 + 84) + 120 * 4 + 4);
        let (logits, loss) = model.forward_with_loss(Tensor::zeros([3, 3, 32, 32], &device));
        assert_eq!(logits.dims(), [3, 10]);
        // Equal pictures choose the same expert: 0.5 * 4 * 1 * its probability, which is more than 1 in 4 and not 1.
        let loss = loss.into_scalar::<f32>();
        assert!(loss > 0.5 && loss < 2.0, "{loss}");
        let mut loads = model.loads(Tensor::zeros([3, 3, 32, 32], &device));
        loads.sort_unstable();
        assert_eq!(loads, [0, 0, 0, 3]);
    }
}
