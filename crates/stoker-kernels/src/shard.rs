//! What an update rule is given.

use crate::same_length;
use stoker_core::{DType, Values, ValuesMut};

/// Slices of equal length, with `N` of state.
#[derive(Debug)]
pub struct Shard<'a, const N: usize> {
    /// Master parameters, updated in place.
    pub parameters: &'a mut [f32],
    /// The accumulated gradient.
    pub gradient: Values<'a>,
    /// State, updated in place: all f32, or all bf16, which is rounded at random (see [`crate::noise`]).
    pub state: [ValuesMut<'a>; N],
    /// Becomes the updated parameters, rounded to nearest, ties to even.
    pub rounded: Option<ValuesMut<'a>>,
}

impl<'a, const N: usize> Shard<'a, N> {
    /// Of f32 throughout, without rounded parameters.
    pub fn of_f32(parameters: &'a mut [f32], gradient: &'a [f32], state: [&'a mut [f32]; N]) -> Self {
        Self { parameters, gradient: Values::F32(gradient), state: state.map(ValuesMut::F32), rounded: None }
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.parameters.len()
    }

    /// # Panics
    /// When the slices are not equally long, or the state is of another type.
    pub(crate) fn check(&self) {
        same_length("the gradient", self.gradient.len(), self.len());
        for state in &self.state {
            same_length("a state", state.look().len(), self.len());
        }
        let of = |dtype| self.state.iter().all(|state| state.look().dtype() == dtype);
        assert!(of(DType::F32) || of(DType::BF16), "state is f32 or bf16: the caller checks this");
        if let Some(rounded) = &self.rounded {
            same_length("the rounded parameters", rounded.look().len(), self.len());
        }
    }

    /// The first `middle` elements and the others.
    pub(crate) fn split_at(self, middle: usize) -> (Self, Self) {
        let length = self.len();
        let (one, other) = self.parameters.split_at_mut(middle);
        let gradient = (self.gradient.part(0..middle), self.gradient.part(middle..length));
        let mut tails = [const { None }; N];
        let mut tail = tails.iter_mut();
        let heads = self.state.map(|state| {
            let (head, rest) = state.split_at(middle);
            if let Some(tail) = tail.next() {
                *tail = Some(rest);
            }
            head
        });
        let (first, second) = match self.rounded.map(|rounded| rounded.split_at(middle)) {
            Some((first, second)) => (Some(first), Some(second)),
            None => (None, None),
        };
        let tails = tails.map(|tail| tail.unwrap_or(ValuesMut::F32(&mut [])));
        (
            Self { parameters: one, gradient: gradient.0, state: heads, rounded: first },
            Self { parameters: other, gradient: gradient.1, state: tails, rounded: second },
        )
    }
}
