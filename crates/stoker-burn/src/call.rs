//! One call of a unit.

use crate::Error;
use crate::boundary::{Link, current as current_unit};
use crate::current;
use crate::flow::{FloatMap, Flow};
use crate::ops::{Place, gather, mark, place, token};
use crate::raise::raise;
use crate::shared::{CallHandle, Mode, UnitLink};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor};
use std::sync::Arc;

/// Runs `forward` on the unit's module: as it is if the unit belongs to no engine, else gathered.
pub(crate) fn call<M: Module, I: Flow, O: Flow>(
    link: &Link,
    template: &M,
    input: I,
    forward: impl FnOnce(&M, I) -> O,
) -> O {
    match link.get() {
        None => forward(template, input),
        Some(link) => match link.call.shared.mode() {
            Mode::Training => train(link, template, input, forward),
            Mode::Evaluating => evaluate(link, template, input, forward),
        },
    }
}

/// Takes the unit's part in what the other ranks do together, without running it.
pub(crate) fn skip<M: Module>(link: &Link, template: &M) {
    let Some(unit) = link.get() else { return };
    let mut nested = Nested { link, found: false };
    template.visit(&mut nested);
    if nested.found {
        raise(Error::Misuse("a unit that holds other units cannot be skipped as a whole: skip each of them"));
    }
    let call = &unit.call;
    match call.shared.mode() {
        Mode::Training if has_backward(unit, Place::default()) => {
            call.begin(true);
            let depth = call.shared.depth_reached();
            let mark = tracked_mark(call, depth);
            call.end();
            end(call, mark, depth + GATHERED);
        }
        Mode::Training | Mode::Evaluating => {
            call.begin(false);
            call.end();
        }
    }
}

fn train<M: Module, I: Flow, O: Flow>(link: &UnitLink, template: &M, input: I, forward: impl FnOnce(&M, I) -> O) -> O {
    let call = &link.call;
    let input = cast(input, link.input);
    let place = deepest(&input);
    if !has_backward(link, place) {
        // Nothing in it has a gradient: no graph is made, and nothing is kept.
        return untracked(link, template, input, forward);
    }
    call.begin(true);
    let depth = place.depth.max(call.shared.depth_reached());
    let mark = tracked_mark(call, depth);
    let live = template.clone().map(&mut Live { link, mark: mark.clone() });
    let output = run(call, live, input, forward);
    // Deeper than the calls of units inside it as well, also where nobody uses their outputs.
    let depth = deepest(&output).depth.max(depth + GATHERED).max(call.shared.depth_reached());
    end(call, mark, depth);
    output
}

/// Whether backward comes by a call. Where ranks work together they must all say the same, so that their inputs, which may
/// be made in different ways, do not count: only whether any call before it has a backward.
fn has_backward(link: &UnitLink, input: Place) -> bool {
    link.trainable || input.tracked || !link.call.shared.is_alone() && link.call.shared.depth_reached() > 0
}

/// A call of frozen parameters, on inputs that have no gradient either.
fn untracked<M: Module, I: Flow, O: Flow>(
    link: &UnitLink,
    template: &M,
    input: I,
    forward: impl FnOnce(&M, I) -> O,
) -> O {
    let call = &link.call;
    call.begin(false);
    let live = template.clone().map(&mut Live { link, mark: Tensor::zeros([1], &call.shared.device) });
    run(call, live, input, forward)
}

fn evaluate<M: Module, I: Flow, O: Flow>(
    link: &UnitLink,
    template: &M,
    input: I,
    forward: impl FnOnce(&M, I) -> O,
) -> O {
    let call = &link.call;
    call.begin(false);
    let device = call.shared.device.clone().without_autodiff();
    let mark = Tensor::<1>::zeros([1], &device);
    // `valid` turns training behaviour off: batch-norm uses its running statistics, dropout does nothing.
    let live = template.clone().map(&mut Live { link, mark }).valid();
    let input = cast(input.map_floats(&mut WithoutAutodiff), link.input);
    run(call, live, input, forward)
}

/// Runs `forward` on the module with its parameters at hand, and ends the call.
fn run<M, I, O>(call: &CallHandle, live: M, input: I, forward: impl FnOnce(&M, I) -> O) -> O {
    let output = current::within(&call.shared, || forward(&live, input));
    // Nothing but the graph may keep views of the slab from here on.
    drop(live);
    call.end();
    output
}

/// How much deeper than a call's input its gathered parameters are: the mark, and the gather.
const GATHERED: usize = 2;

/// A mark just above `depth`. Calls that begin before this one has ended are inside of it, and deeper.
fn tracked_mark(call: &CallHandle, depth: usize) -> Tensor<1> {
    let shared = &call.shared;
    shared.reached(depth + GATHERED);
    let leaf = Tensor::zeros([1], &shared.device).require_grad();
    mark(leaf, shared.ladder.rung(depth, &shared.device), call.clone())
}

/// Ends a tracked call whose output lies at `depth`.
fn end(call: &CallHandle, mark: Tensor<1>, depth: usize) {
    let shared = &call.shared;
    let token = token(mark, shared.ladder.rung(depth, &shared.device), call.clone());
    shared.call_ended(token, depth + 1);
}

fn cast<F: Flow>(flow: F, dtype: Option<DType>) -> F {
    match dtype {
        Some(dtype) => flow.map_floats(&mut Cast(dtype)),
        None => flow,
    }
}

/// Of the deepest float tensor; tracked if any is.
fn deepest<F: Flow>(flow: &F) -> Place {
    let mut deepest = Deepest(Place::default());
    // The map hands every tensor back as it is.
    let _ = flow.clone().map_floats(&mut deepest);
    deepest.0
}

struct Deepest(Place);

impl FloatMap for Deepest {
    fn map<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        let Place { depth, tracked } = place(tensor.clone());
        self.0 = Place { depth: self.0.depth.max(depth), tracked: self.0.tracked || tracked };
        tensor
    }
}

struct Cast(DType);

impl FloatMap for Cast {
    fn map<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        if tensor.dtype() == self.0 { tensor } else { tensor.cast(self.0) }
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
        let Some(parameter) = self.link.parameter(param.id.val()) else { return param };
        let mark = self.mark.clone();
        let (device, shape) = (mark.device(), param.lazy_shape());
        Param::uninitialized(param.id, move |_, _| gather(mark, parameter), device, true, shape)
    }
}

/// Whether other units' parameters lie inside a unit.
struct Nested<'a> {
    link: &'a Link,
    found: bool,
}

impl ModuleVisitor for Nested<'_> {
    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
        // The template is visited from outside its own unit.
        self.found |= current_unit().is_some_and(|unit| !Arc::ptr_eq(&unit, self.link));
    }
}
