//! The networks that a file can name.

use crate::error::Problem;
use crate::names::{self, Named};
use crate::spec::Spec;
use burn::module::Module;
use burn::nn::conv::Conv2dConfig;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::{Device, Tensor};
use stoker::data::{CHANNELS, CLASSES, HEIGHT, WIDTH};
use stoker::models::{LeNetConfig, SeedNetConfig};
use stoker::nn::{Conv2d, SyncBatchNorm, relu};
use stoker::{Classifier, Unit};

/// Which network.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Network {
    /// [`stoker::models::LeNet`].
    LeNet,
    /// [`stoker::models::SeedNet`].
    SeedNet(SeedNetConfig),
    /// [`BnNet`].
    BatchNormed,
}

const NAMES: &[&str] = &["lenet", "seednet", "bnnet"];

impl Network {
    /// The one that `spec` names.
    pub(crate) fn of(spec: &Spec) -> Result<Self, Problem> {
        let network = match (spec.model.as_str(), spec.width_divisor) {
            ("seednet", Some(divisor @ 1..)) => Self::SeedNet(SeedNetConfig::new(divisor)),
            ("lenet", None) => Self::LeNet,
            ("bnnet", None) => Self::BatchNormed,
            (name, divisor) if NAMES.contains(&name) => {
                let found = divisor.map_or_else(|| "not there".to_owned(), |divisor| divisor.to_string());
                let wanted = "a whole number from 1 on for seednet, nothing for others";
                return Err(Problem::Value { field: "width_divisor", found, wanted });
            }
            (name, _) => {
                let nearest = stoker::core::error::nearest(name, NAMES.iter().copied());
                return Err(Problem::Network { found: name.to_owned(), nearest, known: NAMES });
            }
        };
        Ok(network)
    }

    /// Its parameters and running statistics.
    pub(crate) fn tensors(self) -> Vec<Named> {
        let device = Device::flex();
        match self {
            Self::LeNet => names::of(&LeNetConfig::new().init(&device)),
            Self::SeedNet(config) => names::of(&config.init(&device)),
            Self::BatchNormed => names::of(&BnNet::init(&device)),
        }
    }
}

/// Two convolutions with batch norms, and a linear layer, each a unit.
#[derive(Module, Debug)]
pub(crate) struct BnNet {
    conv1: Unit<Conv2d>,
    bn1: Unit<SyncBatchNorm>,
    conv2: Unit<Conv2d>,
    bn2: Unit<SyncBatchNorm>,
    fc: Unit<Linear>,
    pool: MaxPool2d,
}

impl BnNet {
    /// The model on `device`; its parameters are drawn when they are first used.
    pub(crate) fn init(device: &Device) -> Self {
        let conv = |from, to| {
            let padding = PaddingConfig2d::Explicit(1, 1, 1, 1);
            Unit::new(Conv2d::from(Conv2dConfig::new([from, to], [3, 3]).with_padding(padding).init(device)))
        };
        let norm = |channels| {
            Unit::new(SyncBatchNorm::from(
                BatchNormConfig::new(channels).with_epsilon(1e-5).with_momentum(0.1).init(device),
            ))
        };
        Self {
            conv1: conv(CHANNELS, 8),
            bn1: norm(8),
            conv2: conv(8, 16),
            bn2: norm(16),
            // Two poolings by 2 came before it.
            fc: Unit::new(LinearConfig::new(16 * (HEIGHT / 4) * (WIDTH / 4), CLASSES).init(device)),
            pool: MaxPool2dConfig::new([2, 2]).init(),
        }
    }
}

impl Classifier for BnNet {
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.conv1.call(images, |conv, x| conv.forward(x));
        let x = self.pool.forward(relu(self.bn1.call(x, |norm, x| norm.forward(x))));
        let x = self.conv2.call(x, |conv, x| conv.forward(x));
        let x = self.pool.forward(relu(self.bn2.call(x, |norm, x| norm.forward(x))));
        self.fc.call(x.flatten(1, 3), |fc, x| fc.forward(x))
    }
}
