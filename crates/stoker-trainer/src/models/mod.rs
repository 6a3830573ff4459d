//! Models for pictures of 3 x 32 x 32: ordinary Burn modules whose layers are units.

mod lenet;
mod moe;
mod moe_lenet;
mod routing;
mod seednet;

pub use lenet::{LeNet, LeNetConfig};
pub use moe::{Mixed, Mixture, MixtureConfig};
pub use moe_lenet::{MoeLeNet, MoeLeNetConfig};
pub use seednet::{SeedNet, SeedNetConfig};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Bool, DType, Device, Int, Tensor};
use stoker_config::ModelName;

/// A model that tells what is on pictures.
pub trait Classifier {
    /// Turns pictures, `[records, channels, rows, columns]`, into logits, `[records, classes]`.
    fn forward(&self, images: Tensor<4>) -> Tensor<2>;

    /// As [`forward`](Self::forward), with what the model adds to the loss that it is trained by, in f32: zero, unless it
    /// has a wish of its own, as a mixture of experts has that all of them be used.
    fn forward_with_loss(&self, images: Tensor<4>) -> (Tensor<2>, Tensor<1>) {
        let logits = self.forward(images);
        let nothing = Tensor::zeros([1], (&logits.device(), DType::F32));
        (logits, nothing)
    }
}

/// What can be done with a model of any type.
pub(crate) trait WithModel {
    /// What comes of it.
    type Output;

    /// Does it with the model that `make` makes.
    fn run<M: Module + Classifier + 'static>(self, make: impl FnOnce(&Device) -> M) -> Self::Output;
}

/// Does something with the model of the settings.
pub(crate) fn with_model<W: WithModel>(settings: &stoker_config::Model, work: W) -> W::Output {
    match settings.name {
        ModelName::LeNet => work.run(|device| LeNetConfig::new().init(device)),
        ModelName::SeedNet => work.run(|device| SeedNetConfig::new(settings.width_divisor).init(device)),
        ModelName::MoeLeNet => {
            let &stoker_config::Model { experts, top_k, capacity_factor, load_balance, .. } = settings;
            work.run(|device| MoeLeNetConfig { experts, top_k, capacity_factor, load_balance }.init(device))
        }
    }
}

/// The model of the settings, with the divisor of its widths or its experts if it has them.
pub(crate) fn title(settings: &stoker_config::Model) -> String {
    match settings.name {
        ModelName::LeNet => "lenet".to_owned(),
        ModelName::SeedNet => format!("seednet/{}", settings.width_divisor),
        ModelName::MoeLeNet => format!("moe-lenet/{} top-{}", settings.experts, settings.top_k),
    }
}

/// Numbers in a model's tensors, without making any of them.
pub(crate) fn count<M: Module>(model: &M) -> u64 {
    struct Count(u64);

    impl ModuleVisitor for Count {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0 += param.lazy_shape().num_elements() as u64;
        }

        fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
            self.0 += param.lazy_shape().num_elements() as u64;
        }

        fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
            self.0 += param.lazy_shape().num_elements() as u64;
        }
    }

    let mut count = Count(0);
    model.visit(&mut count);
    count.0
}
