//! A lookup table whose graph keeps the table's shape, not the table.
//!
//! Burn's own embedding stores the weight in its backward state under every checkpointing strategy, although it needs
//! nothing of it but the shape; under an engine that would keep the slab of the largest unit of many models from the
//! beginning of forward to the end of backward.

#[cfg(feature = "libtorch")]
use burn::backend::LibTorch;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::module::{Module, Param};
use burn::tensor::{Int, Shape, Tensor};

/// [`burn::nn::Embedding`] with the same field, path and record; make it from one with `from`.
///
/// ```
/// use burn::nn::EmbeddingConfig;
/// use burn::tensor::{Device, Tensor};
/// use stoker_burn::nn::Embedding;
/// let device = Device::flex();
/// let embedding = Embedding::from(EmbeddingConfig::new(10, 4).init(&device));
/// assert_eq!(embedding.forward(Tensor::from_data([[1, 2, 3]], &device)).dims(), [1, 3, 4]);
/// ```
#[derive(Module, Debug)]
pub struct Embedding {
    /// `[n_embedding, d_model]`.
    pub weight: Param<Tensor<2>>,
}

impl From<burn::nn::Embedding> for Embedding {
    fn from(embedding: burn::nn::Embedding) -> Self {
        Self { weight: embedding.weight }
    }
}

impl Embedding {
    /// The rows of the table that `input`, `[batch, length]`, names: `[batch, length, d_model]`.
    pub fn forward(&self, input: Tensor<2, Int>) -> Tensor<3> {
        let weight = self.weight.val().into_dispatch();
        Tensor::from_dispatch(<Dispatch as EmbeddingOps>::lookup(weight, input.into_dispatch()))
    }
}

#[backend_extension(Flex, LibTorch: cfg(feature = "libtorch"), Autodiff)]
pub(crate) trait EmbeddingOps: Backend {
    /// The rows of `weight` that `indices` names.
    fn lookup(weight: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self>;
}

impl EmbeddingOps for Flex {
    fn lookup(weight: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self> {
        <Self as burn::backend::ops::ModuleOps<Self>>::embedding(weight, indices)
    }
}

#[cfg(feature = "libtorch")]
impl EmbeddingOps for LibTorch {
    fn lookup(weight: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self> {
        <Self as burn::backend::ops::ModuleOps<Self>>::embedding(weight, indices)
    }
}

#[derive(Debug)]
struct LookupBackward;

impl<B: Backend> Backward<B, 1> for LookupBackward {
    type State = (B::FloatTensorPrimitive, IntTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (shaped, indices) = ops.state;
        unary::<B, _>(ops.parents, ops.node, gradients, |gradient| B::embedding_backward(shaped, gradient, indices));
    }
}

impl<B: EmbeddingOps, C: CheckpointStrategy> EmbeddingOps for Autodiff<B, C> {
    fn lookup(weight: FloatTensor<Self>, indices: IntTensor<Self>) -> FloatTensor<Self> {
        match Backward::<B, 1>::prepare::<C>(LookupBackward, [weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                // One element that looks like the weight: its shape is all that backward asks for.
                let (shape, dtype, device) = (weight.shape(), weight.dtype(), weight.primitive().device());
                let one = B::float_zeros(Shape::new([1, 1]), &device, dtype.into());
                let shaped = B::float_expand(one, shape);
                let rows = B::lookup(weight.into_primitive(), indices.clone());
                prep.finish((shaped, indices), rows)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::lookup(weight.into_primitive(), indices)),
        }
    }
}
