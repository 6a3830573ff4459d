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
use burn::tensor::{Bool, DType, Int, Tensor};

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
