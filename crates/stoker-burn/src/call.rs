//! One call of a unit.

use crate::boundary::Link;
use crate::current;
use crate::flow::{FloatMap, Flow};
use crate::ops::{depth, gather, leave, mark};
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
    let output = current::within(&unit.shared, || forward(&live, input));
    // Nothing but the graph may keep views of the slab from here on.
    drop(live);
    with_engine!(&mut *unit.shared.engine(), engine => engine.end_call(unit.id));
    let mut leaving = Leaving { unit, depth: 0 };
    let output = output.map_floats(&mut leaving);
    unit.shared.reached(leaving.depth);
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
    let input = input.map_floats(&mut WithoutAutodiff);
    let output = current::within(&unit.shared, || forward(&live, input));
    drop(live);
    with_engine!(&mut *unit.shared.engine(), engine => engine.end_call(unit.id));
    output
}

/// The call's mark: as deep as its deepest float input, or as the output of the unit before.
fn mark_input<I: Flow>(unit: &UnitHandle, input: &I) -> Tensor<1> {
    let mut deepest = Deepest(None);
    // The map hands every tensor back as it is.
    let _ = input.clone().map_floats(&mut deepest);
    let depth = deepest.0.unwrap_or_else(|| unit.shared.depth_reached());
    let device = &unit.shared.device;
    let leaf = Tensor::zeros([1], device).require_grad();
    mark(leaf, unit.shared.ladder.rung(depth, device), unit.clone())
}

struct Deepest(Option<usize>);

impl FloatMap for Deepest {
    fn map<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        self.0 = self.0.max(Some(depth(tensor.clone())));
        tensor
    }
}

struct Leaving<'a> {
    unit: &'a UnitHandle,
    depth: usize,
}

impl FloatMap for Leaving<'_> {
    fn map<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        let output = leave(tensor, self.unit.clone());
        self.depth = self.depth.max(depth(output.clone()));
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
