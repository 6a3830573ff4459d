//! One call of a unit.

use crate::boundary::Link;
use crate::flow::{FloatMap, Flow};
use crate::ops::{MarkEvent, gather, leave, mark};
use crate::raise::or_raise;
use crate::shared::{Mode, UnitHandle, UnitLink, with_engine};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;

/// Runs `forward` on the unit's module: as it is if the unit belongs to no engine, else gathered.
pub(crate) fn call<M: Module, I: Flow, O: Flow>(
    link: &Link,
    template: &M,
    input: I,
    forward: impl FnOnce(&M, I) -> O,
) -> O {
    match link.get() {
        None => forward(template, input),
        Some(link) => match link.unit.shared.mode() {
            Mode::Training => train(link, template, input, forward),
            Mode::Evaluating => evaluate(link, template, input, forward),
        },
    }
}

fn train<M: Module, I: Flow, O: Flow>(link: &UnitLink, template: &M, input: I, forward: impl FnOnce(&M, I) -> O) -> O {
    let unit = &link.unit;
    or_raise(with_engine!(&mut *unit.shared.engine(), engine => engine.begin_call(unit.id, true)));
    let mark = mark_input(unit, &input);
    let live = template.clone().map(&mut Live { link, mark });
    let output = forward(&live, input);
    // Nothing but the graph may keep views of the slab from here on.
    drop(live);
    with_engine!(&mut *unit.shared.engine(), engine => engine.end_call(unit.id));
    let mut leaving = Leaving { unit, last: None };
    let output = output.map_floats(&mut leaving);
    if let Some(tail) = leaving.last {
        unit.shared.set_tail(Some(tail));
    }
    output
}

fn evaluate<M: Module, I: Flow, O: Flow>(
    link: &UnitLink,
    template: &M,
    input: I,
    forward: impl FnOnce(&M, I) -> O,
) -> O {
    let unit = &link.unit;
    or_raise(with_engine!(&mut *unit.shared.engine(), engine => engine.begin_call(unit.id, false)));
    let device = unit.shared.device.clone().without_autodiff();
    let mark = Tensor::<1>::zeros([1], &device);
    // `valid` turns training behaviour off: batch-norm uses its running statistics, dropout does nothing.
    let live = template.clone().map(&mut Live { link, mark }).valid();
    let output = forward(&live, input.map_floats(&mut WithoutAutodiff));
    drop(live);
    with_engine!(&mut *unit.shared.engine(), engine => engine.end_call(unit.id));
    output
}

/// The call's mark: hangs from every float input, or from the output of the unit before.
fn mark_input<I: Flow>(unit: &UnitHandle, input: &I) -> Tensor<1> {
    let leaf = || Tensor::<1>::zeros([1], &unit.shared.device).require_grad();
    let mut marking = Marking { mark: None, leaf: &leaf, unit };
    // The map hands every tensor back as it is.
    let _ = input.clone().map_floats(&mut marking);
    match marking.mark {
        Some(mark) => mark,
        None => {
            let before = unit.shared.tail().unwrap_or_else(|| Tensor::zeros([1], &unit.shared.device));
            mark(leaf(), before, MarkEvent::Completes(unit.clone()))
        }
    }
}

struct Marking<'a, F: Fn() -> Tensor<1>> {
    mark: Option<Tensor<1>>,
    leaf: &'a F,
    unit: &'a UnitHandle,
}

impl<F: Fn() -> Tensor<1>> FloatMap for Marking<'_, F> {
    fn map<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        // The first mark is the least deep of the chain, so its backward comes last: it completes the call.
        let (leaf, event) = match self.mark.take() {
            None => ((self.leaf)(), MarkEvent::Completes(self.unit.clone())),
            Some(mark) => (mark, MarkEvent::None),
        };
        self.mark = Some(mark(leaf, tensor.clone(), event));
        tensor
    }
}

struct Leaving<'a> {
    unit: &'a UnitHandle,
    last: Option<Tensor<1>>,
}

impl FloatMap for Leaving<'_> {
    fn map<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        let output = leave(tensor, self.unit.clone());
        let leaf = Tensor::<1>::zeros([1], &self.unit.shared.device).require_grad();
        self.last = Some(mark(leaf, output.clone(), MarkEvent::None));
        output
    }
}

struct WithoutAutodiff;

impl FloatMap for WithoutAutodiff {
    fn map<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        tensor.without_autodiff()
    }
}

/// Makes a template's parameters lazy gathers of this call.
struct Live<'a> {
    link: &'a UnitLink,
    mark: Tensor<1>,
}

impl ModuleMapper for Live<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        // Buffers stay as they are, and so do the parameters of units inside this one.
        let Some(&parameter) = self.link.parameters.get(&param.id.val()) else { return param };
        let (mark, handle) = (self.mark.clone(), self.link.unit.parameter(parameter));
        let (device, shape) = (self.mark.device(), param.lazy_shape());
        Param::uninitialized(param.id, move |_, _| gather(mark, handle), device, true, shape)
    }
}
