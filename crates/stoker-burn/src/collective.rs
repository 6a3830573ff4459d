//! A sum over ranks as an operation of Burn's autodiff, for modules that talk to the other ranks from inside a unit call.
//!
//! What every rank adds to the sum is used by all of them, so the gradient of what one rank added is the sum of all
//! ranks' gradients: backward is a sum over ranks as well. Both are collectives, which all ranks must call in the same
//! order; they do, since Burn walks equal graphs in equal order.

use crate::current::current;
use crate::raise::or_raise;
use crate::shared::{Mode, Shared, with_engine};
use crate::{Error, Result};
#[cfg(feature = "libtorch")]
use burn::backend::LibTorch;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{Tensor, TensorData, try_read_sync};
use std::sync::Arc;

/// The rank of a training call and the others.
#[derive(Debug, Clone)]
pub(crate) struct Ranks(Arc<Shared>);

/// One collective: who takes part, and the name by which ranks notice that they do different things.
#[derive(Debug, Clone)]
pub(crate) struct Collective {
    ranks: Ranks,
    call: Arc<str>,
}

/// What the thread that asks is doing.
#[derive(Debug, Clone)]
pub(crate) enum Situation {
    /// No unit of a rank is being called.
    Alone,
    /// A unit is being called without a graph.
    Evaluating,
    /// A unit is being called in a step.
    Training(Ranks),
}

/// What this thread is doing.
pub(crate) fn situation() -> Situation {
    match current() {
        None => Situation::Alone,
        Some(shared) => match shared.mode() {
            Mode::Evaluating => Situation::Evaluating,
            Mode::Training => Situation::Training(Ranks(shared)),
        },
    }
}

impl Ranks {
    /// The sum of every rank's `tensor`, which all have the same shape; differentiable. `what` names it in messages.
    ///
    /// The sum is taken in f64, in the order of the ranks, and is the same to the bit on all of them. An error unwinds
    /// ([`raise`](crate::raise)).
    pub(crate) fn all_reduce<const D: usize>(&self, what: &str, tensor: Tensor<D>) -> Tensor<D> {
        let whereabouts = with_engine!(&*self.0.engine(), engine => engine.whereabouts());
        let collective = Collective { ranks: self.clone(), call: format!("{what} in {whereabouts}").into() };
        Tensor::from_dispatch(<Dispatch as CollectiveOps>::sum_over_ranks(tensor.into_dispatch(), collective))
    }
}

impl Collective {
    /// The collective of the backward.
    fn of_gradients(&self) -> Self {
        Self { ranks: self.ranks.clone(), call: format!("gradient of {}", self.call).into() }
    }

    fn sum<B: Backend>(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        or_raise(self.try_sum::<B>(tensor))
    }

    fn try_sum<B: Backend>(&self, tensor: FloatTensor<B>) -> Result<FloatTensor<B>> {
        let (device, dtype, shape) = (tensor.device(), tensor.dtype(), tensor.shape());
        let unread = Error::Misuse("a tensor that ranks are to sum cannot be read from its device");
        let Some(Ok(data)) = try_read_sync(B::float_into_data(tensor)) else { return Err(unread) };
        let numbers: Vec<f64> = data.iter::<f64>().collect();
        let summed = with_engine!(&*self.ranks.0.engine(), engine => engine.sum(&self.call, &numbers))?;
        Ok(B::float_from_data(TensorData::new(summed, shape).convert_dtype(dtype), &device))
    }
}

#[backend_extension(Flex, LibTorch: cfg(feature = "libtorch"), Autodiff)]
pub(crate) trait CollectiveOps: Backend {
    /// The sum of every rank's `tensor`.
    fn sum_over_ranks(tensor: FloatTensor<Self>, collective: Collective) -> FloatTensor<Self>;
}

impl CollectiveOps for Flex {
    fn sum_over_ranks(tensor: FloatTensor<Self>, collective: Collective) -> FloatTensor<Self> {
        collective.sum::<Self>(tensor)
    }
}

#[cfg(feature = "libtorch")]
impl CollectiveOps for LibTorch {
    fn sum_over_ranks(tensor: FloatTensor<Self>, collective: Collective) -> FloatTensor<Self> {
        collective.sum::<Self>(tensor)
    }
}

#[derive(Debug)]
struct AllReduceBackward;

impl<B: CollectiveOps> Backward<B, 1> for AllReduceBackward {
    type State = Collective;

    fn backward(self, ops: Ops<Collective, 1>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let collective = ops.state.of_gradients();
        unary::<B, _>(ops.parents, ops.node, gradients, |gradient| B::sum_over_ranks(gradient, collective));
    }
}

impl<B: CollectiveOps, C: CheckpointStrategy> CollectiveOps for Autodiff<B, C> {
    fn sum_over_ranks(tensor: FloatTensor<Self>, collective: Collective) -> FloatTensor<Self> {
        // Compute-bound, so that no checkpointing computes it again: that would be one more collective, and at a time
        // that nobody has agreed on.
        match Backward::<B, 1>::prepare::<C>(AllReduceBackward, [tensor.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let sum = B::sum_over_ranks(tensor.into_primitive(), collective.clone());
                prep.finish(collective, sum)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::sum_over_ranks(tensor.into_primitive(), collective)),
        }
    }
}
