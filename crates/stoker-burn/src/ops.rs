//! What a unit's call adds to the graph, as operations of Burn's autodiff.
//!
//! - **mark** makes a one-element tensor as deep as the call's input (see [Note: The order of backward] in `depth`); its
//!   backward says that the call's gradients are complete.
//! - **gather** gives a parameter out of the gathered unit, in forward and, if asked for again, in backward; its backward
//!   hands the gradient to the engine.
//! - **token** makes a one-element tensor as deep as the call's output; its backward says that the call's backward is
//!   about to begin.
//! - **join** ties a token to the loss, so that backward comes by every call, also by one whose output nobody used: every
//!   rank then tells its engine of the same calls in the same order.

use crate::depth::depth_of;
use crate::raise::or_raise;
use crate::shared::{CallHandle, ParameterHandle};
#[cfg(feature = "libtorch")]
use burn::backend::LibTorch;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::retro_forward::RetroForward;
use burn::backend::autodiff::checkpoint::state::BackwardStates;
use burn::backend::autodiff::checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

#[backend_extension(Flex, LibTorch: cfg(feature = "libtorch"), Autodiff)]
pub(crate) trait UnitOps: Backend {
    /// `leaf`, one element, just above the depth of `rung`.
    fn mark(leaf: FloatTensor<Self>, rung: FloatTensor<Self>, call: CallHandle) -> FloatTensor<Self>;
    /// A parameter out of the gathered unit.
    fn gather(mark: FloatTensor<Self>, parameter: ParameterHandle) -> FloatTensor<Self>;
    /// `mark`, just above the depth of `rung`.
    fn token(mark: FloatTensor<Self>, rung: FloatTensor<Self>, call: CallHandle) -> FloatTensor<Self>;
    /// `loss` itself.
    fn join(loss: FloatTensor<Self>, token: FloatTensor<Self>) -> FloatTensor<Self>;
    /// `rung` itself, one deeper.
    fn rung_above(rung: FloatTensor<Self>) -> FloatTensor<Self>;
    /// `tensor` itself; its place is stored in `place`.
    fn place(tensor: FloatTensor<Self>, place: Arc<Mutex<Place>>) -> FloatTensor<Self>;
}

/// Where a tensor lies in its graph.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// 0 for leaves, and without autodiff.
    pub(crate) depth: usize,
    /// Whether backward may come by.
    pub(crate) tracked: bool,
}

impl UnitOps for Flex {
    fn mark(leaf: FloatTensor<Self>, _rung: FloatTensor<Self>, _call: CallHandle) -> FloatTensor<Self> {
        leaf
    }

    fn gather(_mark: FloatTensor<Self>, parameter: ParameterHandle) -> FloatTensor<Self> {
        parameter.flex()
    }

    fn token(mark: FloatTensor<Self>, _rung: FloatTensor<Self>, _call: CallHandle) -> FloatTensor<Self> {
        mark
    }

    fn join(loss: FloatTensor<Self>, _token: FloatTensor<Self>) -> FloatTensor<Self> {
        loss
    }

    fn rung_above(rung: FloatTensor<Self>) -> FloatTensor<Self> {
        rung
    }

    fn place(tensor: FloatTensor<Self>, _place: Arc<Mutex<Place>>) -> FloatTensor<Self> {
        tensor
    }
}

#[cfg(feature = "libtorch")]
impl UnitOps for LibTorch {
    fn mark(leaf: FloatTensor<Self>, _rung: FloatTensor<Self>, _call: CallHandle) -> FloatTensor<Self> {
        leaf
    }

    fn gather(_mark: FloatTensor<Self>, parameter: ParameterHandle) -> FloatTensor<Self> {
        parameter.libtorch()
    }

    fn token(mark: FloatTensor<Self>, _rung: FloatTensor<Self>, _call: CallHandle) -> FloatTensor<Self> {
        mark
    }

    fn join(loss: FloatTensor<Self>, _token: FloatTensor<Self>) -> FloatTensor<Self> {
        loss
    }

    fn rung_above(rung: FloatTensor<Self>) -> FloatTensor<Self> {
        rung
    }

    fn place(tensor: FloatTensor<Self>, _place: Arc<Mutex<Place>>) -> FloatTensor<Self> {
        tensor
    }
}

#[derive(Debug)]
struct MarkBackward;

impl<B: Backend> Backward<B, 2> for MarkBackward {
    type State = CallHandle;

    fn backward(self, ops: Ops<CallHandle, 2>, _gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        // Neither gathers nor token gave the mark a gradient, and the leaf wants none.
        ops.state.backward_done();
    }
}

#[derive(Debug)]
struct TokenBackward;

impl<B: Backend> Backward<B, 2> for TokenBackward {
    type State = CallHandle;

    fn backward(self, ops: Ops<CallHandle, 2>, _gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        ops.state.before_backward();
    }
}

#[derive(Debug)]
struct JoinBackward;

impl<B: Backend> Backward<B, 2> for JoinBackward {
    type State = ();

    fn backward(self, ops: Ops<(), 2>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        if let [Some(loss), _] = ops.parents {
            gradients.register::<B>(loss.id, gradient);
        }
    }
}

#[derive(Debug)]
struct GatherBackward;

impl<B: Backend> Backward<B, 1> for GatherBackward {
    type State = ParameterHandle;

    fn backward(self, ops: Ops<ParameterHandle, 1>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        ops.state.land(Box::new(gradients.consume::<B>(&ops.node)));
    }
}

#[derive(Debug)]
struct RetroGather<B> {
    mark: NodeId,
    parameter: ParameterHandle,
    backend: PhantomData<fn() -> B>,
}

impl<B: UnitOps> RetroForward for RetroGather<B> {
    fn forward(&self, states: &mut BackwardStates, out: NodeId) {
        let mark = states.get_state::<B::FloatTensorPrimitive>(&self.mark);
        states.save(out, B::gather(mark, self.parameter.clone()));
    }
}

/// Rungs are untracked, so it never runs; Burn wants one to make a node.
#[derive(Debug)]
struct RungBackward;

impl<B: Backend> Backward<B, 1> for RungBackward {
    type State = ();

    fn backward(self, _ops: Ops<(), 1>, _gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {}
}

impl<B: UnitOps, C: CheckpointStrategy> UnitOps for Autodiff<B, C> {
    fn mark(leaf: FloatTensor<Self>, rung: FloatTensor<Self>, call: CallHandle) -> FloatTensor<Self> {
        let prepared = Backward::<B, 2>::prepare::<C>(MarkBackward, [leaf.node(), rung.node()]);
        match prepared.compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let mark = B::mark(leaf.into_primitive(), rung.into_primitive(), call.clone());
                prep.finish(call, mark)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::mark(leaf.into_primitive(), rung.into_primitive(), call)),
        }
    }

    fn gather(mark: FloatTensor<Self>, parameter: ParameterHandle) -> FloatTensor<Self> {
        let retro = RetroGather::<B> { mark: mark.id(), parameter: parameter.clone(), backend: PhantomData };
        // The strategy named here is the operation's own: a gather is made again under every strategy of the device.
        let prepared = Backward::<B, 1>::prepare::<BalancedCheckpointing>(GatherBackward, [mark.node()]);
        match prepared.memory_bound().retro_forward(retro).parents([&mark]).stateful() {
            OpsKind::Tracked(prep) => {
                let value = B::gather(mark.into_primitive(), parameter.clone());
                prep.finish(parameter, value)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::gather(mark.into_primitive(), parameter)),
        }
    }

    fn token(mark: FloatTensor<Self>, rung: FloatTensor<Self>, call: CallHandle) -> FloatTensor<Self> {
        let prepared = Backward::<B, 2>::prepare::<C>(TokenBackward, [mark.node(), rung.node()]);
        match prepared.compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let token = B::token(mark.into_primitive(), rung.into_primitive(), call.clone());
                prep.finish(call, token)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::token(mark.into_primitive(), rung.into_primitive(), call)),
        }
    }

    fn join(loss: FloatTensor<Self>, token: FloatTensor<Self>) -> FloatTensor<Self> {
        let prepared = Backward::<B, 2>::prepare::<C>(JoinBackward, [loss.node(), token.node()]);
        prepared.compute_bound().stateless(B::join(loss.into_primitive(), token.into_primitive()))
    }

    fn rung_above(rung: FloatTensor<Self>) -> FloatTensor<Self> {
        let prepared = Backward::<B, 1>::prepare::<C>(RungBackward, [rung.node()]);
        prepared.compute_bound().stateless(B::rung_above(rung.into_primitive()))
    }

    fn place(tensor: FloatTensor<Self>, place: Arc<Mutex<Place>>) -> FloatTensor<Self> {
        let found = Place { depth: or_raise(depth_of(&tensor.node())), tracked: tensor.is_tracked() };
        *place.lock().unwrap_or_else(PoisonError::into_inner) = found;
        tensor
    }
}

/// A mark that deep: see [`UnitOps::mark`].
pub(crate) fn mark(leaf: Tensor<1>, rung: Tensor<1>, call: CallHandle) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::mark(leaf.into_dispatch(), rung.into_dispatch(), call))
}

/// See [`UnitOps::gather`]. Without autodiff on `mark`, the parameter comes without a graph.
pub(crate) fn gather<const D: usize>(mark: Tensor<1>, parameter: ParameterHandle) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::gather(mark.into_dispatch(), parameter))
}

/// See [`UnitOps::token`].
pub(crate) fn token(mark: Tensor<1>, rung: Tensor<1>, call: CallHandle) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::token(mark.into_dispatch(), rung.into_dispatch(), call))
}

/// See [`UnitOps::join`].
pub(crate) fn join(loss: Tensor<1>, token: Tensor<1>) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::join(loss.into_dispatch(), token.into_dispatch()))
}

/// See [`UnitOps::rung_above`].
pub(crate) fn rung_above(rung: Tensor<1>) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::rung_above(rung.into_dispatch()))
}

/// Where the tensor lies in its graph.
pub(crate) fn place<const D: usize>(tensor: Tensor<D>) -> Place {
    let place = Arc::new(Mutex::new(Place::default()));
    let _same = <Dispatch as UnitOps>::place(tensor.into_dispatch(), place.clone());
    *place.lock().unwrap_or_else(PoisonError::into_inner)
}
