//! Gather, mark and leave as operations of Burn's autodiff.
//!
//! [Note: The order of backward] Burn runs backward steps by depth. A gather that hung from a leaf would have depth 1, so
//! all gradients would wait until the whole model's backward is done. Instead each call makes a one-element **mark** from
//! a leaf and the call's input, and its gathers hang from the mark: their depth is just above the input's, so they run
//! right after the unit's own operations. The mark's own backward runs when they all have: the unit's gradients are
//! complete. **Leave**, an identity on the call's output, marks the opposite moment: the unit's backward is about to
//! begin.

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
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Shape, Tensor};
use std::marker::PhantomData;

/// What a mark's backward does besides passing zeros on.
#[derive(Debug, Clone)]
pub(crate) enum MarkEvent {
    /// All gradients of the call have landed.
    Completes(UnitHandle),
    /// Nothing: it only carries depth.
    None,
}

#[allow(deprecated, reason = "burn-tch is deprecated upstream; 0.22 is its last release, which we pin")]
#[backend_extension(Flex, LibTorch: cfg(feature = "libtorch"), Autodiff)]
pub(crate) trait UnitOps: Backend {
    /// `leaf`, one element, made to depend on `input`.
    fn mark(leaf: FloatTensor<Self>, input: FloatTensor<Self>, event: MarkEvent) -> FloatTensor<Self>;
    /// A parameter out of the gathered unit.
    fn gather(mark: FloatTensor<Self>, parameter: ParameterHandle) -> FloatTensor<Self>;
    /// `output` itself.
    fn leave(output: FloatTensor<Self>, unit: UnitHandle) -> FloatTensor<Self>;
}

impl UnitOps for Flex {
    fn mark(leaf: FloatTensor<Self>, _input: FloatTensor<Self>, _event: MarkEvent) -> FloatTensor<Self> {
        leaf
    }

    fn gather(_mark: FloatTensor<Self>, parameter: ParameterHandle) -> FloatTensor<Self> {
        parameter.flex()
    }

    fn leave(output: FloatTensor<Self>, _unit: UnitHandle) -> FloatTensor<Self> {
        output
    }
}

#[cfg(feature = "libtorch")]
#[allow(deprecated, reason = "burn-tch is deprecated upstream; 0.22 is its last release, which we pin")]
impl UnitOps for LibTorch {
    fn mark(leaf: FloatTensor<Self>, _input: FloatTensor<Self>, _event: MarkEvent) -> FloatTensor<Self> {
        leaf
    }

    fn gather(_mark: FloatTensor<Self>, parameter: ParameterHandle) -> FloatTensor<Self> {
        parameter.libtorch()
    }

    fn leave(output: FloatTensor<Self>, _unit: UnitHandle) -> FloatTensor<Self> {
        output
    }
}

#[derive(Debug)]
struct MarkBackward;

#[derive(Debug, Clone)]
struct MarkState<D> {
    event: MarkEvent,
    shape: Shape,
    dtype: DType,
    device: D,
}

impl<B: Backend> Backward<B, 2> for MarkBackward {
    type State = MarkState<B::Device>;

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let MarkState { event, shape, dtype, device } = ops.state;
        let [_leaf, input] = ops.parents;
        if let Some(input) = input {
            // Being a parent, the input is part of this backward even if the unit made no use of it, and Burn panics
            // on a node that nobody gave a gradient. One element, expanded: no memory of the input's size.
            let zero = B::float_zeros(Shape::new([1]), &device, dtype.into());
            let zero = B::float_reshape(zero, Shape::from(vec![1; shape.num_dims()]));
            gradients.register::<B>(input.id, B::float_expand(zero, shape));
        }
        if let MarkEvent::Completes(unit) = event {
            unit.backward_done();
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
    fn mark(leaf: FloatTensor<Self>, input: FloatTensor<Self>, event: MarkEvent) -> FloatTensor<Self> {
        let state = MarkState {
            event: event.clone(),
            shape: input.shape(),
            dtype: input.dtype(),
            device: input.primitive().device(),
        };
        match Backward::<B, 2>::prepare::<C>(MarkBackward, [leaf.node(), input.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let mark = B::mark(leaf.into_primitive(), input.into_primitive(), event);
                prep.finish(state, mark)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::mark(leaf.into_primitive(), input.into_primitive(), event)),
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
}

/// See [`UnitOps::mark`].
pub(crate) fn mark<const D: usize>(leaf: Tensor<1>, input: Tensor<D>, event: MarkEvent) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::mark(leaf.into_dispatch(), input.into_dispatch(), event))
}

/// See [`UnitOps::gather`]. Without autodiff on `mark`, the parameter comes without a graph.
pub(crate) fn gather<const D: usize>(mark: Tensor<1>, parameter: ParameterHandle) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::gather(mark.into_dispatch(), parameter))
}

/// See [`UnitOps::leave`].
pub(crate) fn leave<const D: usize>(output: Tensor<D>, unit: UnitHandle) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as UnitOps>::leave(output.into_dispatch(), unit))
}
