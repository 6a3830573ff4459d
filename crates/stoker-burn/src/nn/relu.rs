//! A rectifier whose graph keeps what it gives, not what it gets.
//!
//! Both tell where the gradient is zero. Burn's keeps its input, and whatever uses the output keeps that too: two
//! tensors where one does. What ours gives is all that is left, and if nobody else has its input, it is made in place.

#[cfg(feature = "libtorch")]
use burn::backend::LibTorch;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::ops::ActivationOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;

/// [`burn::tensor::activation::relu`], with the same values and gradients, in half of the memory or less: for a
/// convolution or a linear layer before it, and anything that keeps its input after it.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use stoker_burn::nn::relu;
/// let x = Tensor::<1>::from_data([-1.0, 0.5], &Device::flex());
/// assert_eq!(relu(x).into_data().try_to_vec::<f32>().unwrap(), [0.0, 0.5]);
/// ```
pub fn relu<const D: usize>(input: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as ReluOps>::rectify(input.into_dispatch()))
}

#[backend_extension(Flex, LibTorch: cfg(feature = "libtorch"), Autodiff)]
pub(crate) trait ReluOps: Backend {
    /// Zero where `input` is less.
    fn rectify(input: FloatTensor<Self>) -> FloatTensor<Self> {
        <Self as ActivationOps<Self>>::relu(input)
    }

    /// `gradient`, but zero where `output` is not more.
    fn rectify_backward(output: FloatTensor<Self>, gradient: FloatTensor<Self>) -> FloatTensor<Self> {
        <Self as ActivationOps<Self>>::relu_backward(output, gradient)
    }
}

impl ReluOps for Flex {}

#[cfg(feature = "libtorch")]
impl ReluOps for LibTorch {
    /// In one pass and, if nobody else has the gradient, in place: burn-tch makes a mask and fills by it, which on a CPU
    /// takes ten times as long.
    fn rectify_backward(output: FloatTensor<Self>, gradient: FloatTensor<Self>) -> FloatTensor<Self> {
        let output = output.tensor;
        gradient.unary_ops(
            |gradient| output.threshold_backward_grad_input(&gradient, &gradient, 0),
            |gradient| output.threshold_backward(gradient, 0),
        )
    }
}

#[derive(Debug)]
struct ReluBackward;

impl<B: ReluOps> Backward<B, 1> for ReluBackward {
    /// The output.
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let output = ops.state;
        unary::<B, _>(ops.parents, ops.node, gradients, |gradient| B::rectify_backward(output, gradient));
    }
}

impl<B: ReluOps, C: CheckpointStrategy> ReluOps for Autodiff<B, C> {
    fn rectify(input: FloatTensor<Self>) -> FloatTensor<Self> {
        match Backward::<B, 1>::prepare::<C>(ReluBackward, [input.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let output = B::rectify(input.into_primitive());
                prep.finish(output.clone(), output)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::rectify(input.into_primitive())),
        }
    }
}

#[cfg(all(test, feature = "libtorch"))]
mod tests {
    use super::*;
    use burn::backend::tensor::FloatTensor;
    use burn_tch::TchTensor;
    use std::sync::Arc;

    type Graph = Autodiff<LibTorch>;

    /// How many have the memory of the input of `of` beside this function and the test's own graph, once `of` is done.
    fn holders(of: impl Fn(FloatTensor<Graph>) -> FloatTensor<Graph>) -> usize {
        let values = TchTensor::new(tch::Tensor::from_slice(&[-1.0f32, 0.0, 2.0]));
        let leaf = <Graph as burn::backend::AutodiffBackend>::from_inner(values);
        let leaf = <Graph as burn::backend::ops::FloatTensorOps<Graph>>::float_set_require_grad(leaf, true);
        let input = <Graph as burn::backend::ops::FloatTensorOps<Graph>>::float_mul_scalar(leaf, 2.0.into());
        let memory = input.primitive().storage.buffer_ref().clone();
        let _output = of(input);
        Arc::strong_count(&memory) - 1
    }

    #[test]
    fn the_graph_does_not_keep_the_input() {
        assert_eq!(holders(<Graph as ReluOps>::rectify), 0);
        assert_eq!(holders(<Graph as ActivationOps<Graph>>::relu), 1, "Burn's does not keep it either: ours can go");
    }
}
