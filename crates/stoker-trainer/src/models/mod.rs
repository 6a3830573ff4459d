//! Models for pictures of 3 x 32 x 32: ordinary Burn modules whose layers are units.

mod lenet;
mod seednet;

pub use lenet::{LeNet, LeNetConfig};
pub use seednet::{SeedNet, SeedNetConfig};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Tensor};

/// A model that tells what is on pictures.
pub trait Classifier {
    /// Turns pictures, `[records, channels, rows, columns]`, into logits, `[records, classes]`.
    fn forward(&self, images: Tensor<4>) -> Tensor<2>;
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
