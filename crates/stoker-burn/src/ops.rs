//! Gather, mark and leave as operations of Burn's autodiff.
//!
//! - **mark** makes a one-element tensor as deep as a unit's input (see [Note: The order of backward] in `depth`); its
//!   backward says that the unit's gradients are complete.
//! - **gather** gives a parameter out of the gathered unit, in forward and, if asked for again, in backward; its backward
//!   hands the gradient to the engine.
//! - **leave** is an identity on the unit's output; its backward says that the unit's backward is about to begin.

use crate::depth::depth_of;
use crate::raise::or_raise;
use crate::shared::{ParameterHandle, UnitHandle};
#[cfg(feature = "libtorch")]
#[allow(deprecated, reason = "burn-tch is deprecated upstream; 0.22 is its last release, which we pin")]
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
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[allow(deprecated, reason = "burn-tch is deprecated upstream; 0.22 is its last release, which we pin")]
#[backend_extension(Flex, LibTorch: cfg(feature = "libtorch"), Autodiff)]
pub(crate) trait UnitOps: Backend {
    /// `leaf`, one element, just above the depth of `rung`.
    fn mark(leaf: FloatTensor<Self>, rung: FloatTensor<Self>, unit: UnitHandle) -> FloatTensor<Self>;
    /// A parameter out of the gathered unit.
    fn gather(mark: FloatTensor<Self>, parameter: ParameterHandle) -> FloatTensor<Self>;
    /// `output` itself.
    fn leave(output: FloatTensor<Self>, unit: UnitHandle) -> FloatTensor<Self>;
    /// `rung` itself, one deeper.
    fn rung_above(rung: FloatTensor<Self>) -> FloatTensor<Self>;
    /// `tensor` itself; its depth is stored in `depth`.
    fn depth(tensor: FloatTensor<Self>, depth: Arc<AtomicUsize>) -> FloatTensor<Self>;
}

impl UnitOps for Flex {
    fn mark(leaf: FloatTensor<Self>, _rung: FloatTensor<Self>, _unit: UnitHandle) -> FloatTensor<Self> {
        leaf
    }

    fn gather(_mark: FloatTensor<Self>, parameter: ParameterHandle) -> FloatTensor<Self> {
        parameter.flex()
    }

    fn leave(output: FloatTensor<Self>, _unit: UnitHandle) -> FloatTensor<Self> {
        output
    }

    fn rung_above(rung: FloatTensor<Self>) -> FloatTensor<Self> {
        rung
    }

    fn depth(tensor: FloatTensor<Self>, _depth: Arc<AtomicUsize>) -> FloatTensor<Self> {
        tensor
    }
}

#[cfg(feature = "libtorch")]
#[allow(deprecated, reason = "burn-tch is deprecated upstream; 0.22 is its last release, which we pin")]
impl UnitOps for LibTorch {
    fn mark(leaf: FloatTensor<Self>, _rung: FloatTensor<Self>, _unit: UnitHandle) -> FloatTensor<Self> {
        leaf
    }

    fn gather(_mark: FloatTensor<Self>, parameter: ParameterHandle) -> FloatTensor<Self> {
        parameter.libtorch()
    }

    fn leave(output: FloatTensor<Self>, _unit: UnitHandle) -> FloatTensor<Self> {
        output
    }

    fn rung_above(rung: FloatTensor<Self>) -> FloatTensor<Self> {
        rung
    }

    fn depth(tensor: FloatTensor<Self>, _depth: Arc<AtomicUsize>) -> FloatTensor<Self> {
        tensor
    }
}

#[derive(Debug)]
struct MarkBackward;

impl<B: Backend> Backward<B, 2> for MarkBackward {
    type State = UnitHandle;

    fn backward(self, ops: Ops<UnitHandle, 2>, _gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        // The gathers gave the mark no gradient, and the leaf wants none.
        ops.state.backward_done();
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

#[derive(Debug)]
struct LeaveBackward;

impl<B: Backend> Backward<B, 1> for LeaveBackward {
    type State = UnitHandle;

    fn backward(self, ops: Ops<UnitHandle, 1>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        ops.state.before_backward();
        let gradient = gradients.consume::<B>(&ops.node);
        if let [Some(output)] = ops.parents {
            gradients.register::<B>(output.id, gradient);
        }
    }
}

#[derive(Debug)]
struct RetroLeave<B> {
    output: NodeId,
    backend: PhantomData<fn() -> B>,
}

impl<B: Backend> RetroForward for RetroLeave<B> {
    fn forward(&self, states: &mut BackwardStates, out: NodeId) {
        let output = states.get_state::<B::FloatTensorPrimitive>(&self.output);
        states.save(out, output);
    }
}

impl<B: UnitOps, C: CheckpointStrategy> UnitOps for Autodiff<B, C> {
    fn mark(leaf: FloatTensor<Self>, rung: FloatTensor<Self>, unit: UnitHandle) -> FloatTensor<Self> {
        let prepared = Backward::<B, 2>::prepare::<C>(MarkBackward, [leaf.node(), rung.node()]);
        match prepared.compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let mark = B::mark(leaf.into_primitive(), rung.into_primitive(), unit.clone());
                prep.finish(unit, mark)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::mark(leaf.into_primitive(), rung.into_primitive(), unit)),
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

    fn leave(output: FloatTensor<Self>, unit: UnitHandle) -> FloatTensor<Self> {
        let retro = RetroLeave::<B> { output: output.id(), backend: PhantomData };
        let prepared = Backward::<B, 1>::prepare::<C>(LeaveBackward, [output.node()]);
        match prepared.memory_bound().retro_forward(retro).parents([&output]).stateful() {
            OpsKind::Tracked(prep) => {
                let same = B::leave(output.into_primitive(), unit.clone());
                prep.finish(unit, same)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::leave(output.into_primitive(), unit)),
        }
    }

    fn rung_above(rung: FloatTensor<Self>) -> FloatTensor<Self> {
        let prepared = Backward::<B, 1>::prepare::<C>(RungBackward, [rung.node()]);
        prepared.compute_bound().stateless(B::rung_above(rung.into_primitive()))
    }

    fn depth(tensor: FloatTensor<Self>, depth: Arc<AtomicUsize>) -> FloatTensor<Self> {
        depth.store(or_raise(depth_of(&tensor.node())), Ordering::Relaxed);
        tensor
    }
}

/// A mark that deep: see [`UnitOps::mark`].
pub(crate) fn mark(leaf: Tensor<1>, rung: Tensor<1>, unit: UnitHandle) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::mark(leaf.into_dispatch(), rung.into_dispatch(), unit))
}

/// See [`UnitOps::gather`]. Without autodiff on `mark`, the parameter comes without a graph.
pub(crate) fn gather<const D: usize>(mark: Tensor<1>, parameter: ParameterHandle) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::gather(mark.into_dispatch(), parameter))
}

/// See [`UnitOps::leave`].
pub(crate) fn leave<const D: usize>(output: Tensor<D>, unit: UnitHandle) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::leave(output.into_dispatch(), unit))
}

/// See [`UnitOps::rung_above`].
pub(crate) fn rung_above(rung: Tensor<1>) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::rung_above(rung.into_dispatch()))
}

/// The tensor's depth in its graph; 0 without autodiff.
pub(crate) fn depth<const D: usize>(tensor: Tensor<D>) -> usize {
    let depth = Arc::new(AtomicUsize::new(0));
    let _same = <Dispatch as UnitOps>::depth(tensor.into_dispatch(), depth.clone());
    depth.load(Ordering::Relaxed)
}
