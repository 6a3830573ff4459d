//! Work of the computation's stream.

use crate::memory::{Place, Tensor, set};
use crate::streams::{Shared, Stream, lock};
use std::ops::Range;
use std::sync::Arc;
use stoker_core::DType;

/// What is made of the numbers of each input.
type Function = Box<dyn FnOnce(&[Vec<f32>]) -> Vec<f32> + Send>;

/// Numbers that will be computed from others, once they are asked for. It reads what is there when its turn has come.
pub(crate) struct Computation {
    reads: Vec<Arc<Tensor>>,
    function: Function,
}

impl Computation {
    /// What `function` makes of the numbers of each of these.
    pub(crate) fn of(reads: &[&Arc<Tensor>], function: impl FnOnce(&[Vec<f32>]) -> Vec<f32> + Send + 'static) -> Self {
        Self { reads: reads.iter().map(|read| Arc::clone(read)).collect(), function: Box::new(function) }
    }

    /// Asks for it, in new memory of f32.
    pub(crate) fn ask(self, device: &Shared, elements: usize) -> Arc<Tensor> {
        let result = Tensor::new(device, DType::F32, elements);
        self.ask_into(&result, 0..elements);
        result
    }

    /// Asks for it, in elements `range` of a tensor.
    pub(crate) fn ask_into(self, target: &Tensor, range: Range<usize>) {
        let (places, function, target_place) = (places(&self.reads), self.function, target.place);
        lock(&target.device).ask(Stream::Computation, move |blocks| {
            let inputs: Vec<_> = places.into_iter().map(|place| blocks.numbers(place)).collect();
            let values = function(&inputs);
            blocks.with(target_place, |buffer| set(buffer, range, &values));
            None
        });
        // What was read may be given to somebody else from here on.
    }
}

fn places(tensors: &[Arc<Tensor>]) -> Vec<Place> {
    tensors.iter().map(|tensor| tensor.place).collect()
}

impl From<Vec<f32>> for Computation {
    /// Numbers of the host's.
    fn from(values: Vec<f32>) -> Self {
        Self::of(&[], |_| values)
    }
}
