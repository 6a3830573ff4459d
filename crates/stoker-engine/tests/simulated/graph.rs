//! The computation of one micro-batch: what it sees of every slab, in forward and in backward, goes into what comes after
//! it, so that a stale, mixed-up or unfinished slab changes everything from there on.

use crate::computation::Computation;
use crate::device::SimulatedDevice;
use crate::memory::Tensor;
use crate::model::Model;
use std::sync::Arc;
use stoker_engine::{Engine, Error};

/// Numbers that go from unit to unit.
const WIDTH: usize = 4;

/// A forward, and what it keeps for its backward.
pub(crate) struct Graph<'a> {
    model: &'a Model,
    /// Calls, with the input of each and a view of its slab if the graph keeps one.
    calls: Vec<(usize, Arc<Tensor>, Option<Arc<Tensor>>)>,
    output: Option<Arc<Tensor>>,
}

impl<'a> Graph<'a> {
    /// Calls units in this order. `start` makes the inputs differ; `tracked`: a backward follows.
    pub(crate) fn forward(
        model: &'a Model,
        engine: &mut Engine<SimulatedDevice>,
        calls: &[usize],
        start: usize,
        tracked: bool,
    ) -> Result<Self, Error> {
        let mut graph = Self { model, calls: Vec::new(), output: None };
        for &unit in calls {
            engine.begin_call(unit, tracked)?;
            let slab = engine.slab(unit)?.tensor.clone();
            let input = graph.output.take().unwrap_or_else(|| {
                let values: Vec<f32> = (0..WIDTH).map(|i| ((start * 7 + i * 5) % 11) as f32 / 11.0).collect();
                Computation::from(values).ask(&slab.device, WIDTH)
            });
            graph.output = Some(Computation::of(&[&input, &slab], forward).ask(&slab.device, WIDTH));
            if tracked {
                let view = model.units[unit].kept.then_some(slab);
                graph.calls.push((unit, input, view));
            }
            engine.end_call(unit);
        }
        Ok(graph)
    }

    /// The result of the forward, for whoever waits for it.
    pub(crate) fn output(&self) -> Arc<Tensor> {
        self.output.clone().unwrap()
    }

    /// Gives the engine every gradient of the calls, which is larger by `shift` and multiplied by the loss scale.
    pub(crate) fn backward(self, engine: &mut Engine<SimulatedDevice>, shift: f32) -> Result<(), Error> {
        let scale = engine.loss_scale() as f32;
        let Some(output) = self.output else { return Ok(()) };
        let loss = move |inputs: &[Vec<f32>]| inputs[0].iter().map(|y| (y - 0.5) * scale).collect();
        let mut error = Computation::of(&[&output], loss).ask(&output.device, WIDTH);
        drop(output);
        for (unit, input, view) in self.calls.into_iter().rev() {
            engine.before_backward(unit)?;
            let slab = match view {
                Some(view) => view,
                None => engine.slab(unit)?.tensor.clone(),
            };
            let before = Computation::of(&[&error, &input, &slab], backward).ask(&slab.device, WIDTH);
            for parameter in 0..self.model.units[unit].used {
                let range = engine.parameter(unit, parameter).unwrap().range.clone();
                let gradient = Computation::of(&[&error, &input, &slab], move |inputs| {
                    let at = |at: usize| {
                        let chain = inputs[0][at % WIDTH] * inputs[1][at % WIDTH] / 8.0;
                        chain + (inputs[2][at] * 0.5 + 0.25 + shift) * scale
                    };
                    range.map(at).collect()
                });
                engine.land(unit, parameter, gradient)?;
            }
            error = before;
            // The graph lets go of the call before the engine hears that it is done.
            drop((slab, input));
            engine.backward_done(unit)?;
        }
        Ok(())
    }
}

/// Of `values` with factors that differ from element to element and from output to output. Padding, which is zero, does
/// not count.
fn mixed(values: &[f32], output: usize) -> f32 {
    let factor = |at: usize| ((output * 3 + at * 5) % 7) as f32 / 3.0 - 1.0;
    values.iter().enumerate().map(|(at, value)| value * factor(at)).sum::<f32>() / 32.0
}

fn forward(inputs: &[Vec<f32>]) -> Vec<f32> {
    let [input, slab] = inputs else { panic!("a forward reads its input and its slab") };
    let output = |(at, x): (usize, &f32)| {
        let sum = x * 0.5 + mixed(slab, at);
        sum / (1.0 + sum.abs())
    };
    input.iter().enumerate().map(output).collect()
}

fn backward(inputs: &[Vec<f32>]) -> Vec<f32> {
    let [error, input, slab] = inputs else { panic!("a backward reads an error, its input and its slab") };
    (0..WIDTH).map(|at| error[at] * 0.5 + error[(at + 1) % WIDTH] * input[at] * mixed(slab, at)).collect()
}
