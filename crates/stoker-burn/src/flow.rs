//! What may go in and out of a unit call.

use burn::tensor::{Bool, Int, Tensor};

/// A change to float tensors of any rank.
pub trait FloatMap {
    /// Changes one.
    fn map<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D>;
}

/// Inputs and outputs of a unit call: values whose float tensors the engine can reach.
///
/// Implemented for tensors, tuples, `Vec`, `Option` and arrays of them; implement it for a struct of your own by passing
/// the map on to its fields.
pub trait Flow: Clone {
    /// Passes every float tensor through `map`, in a fixed order.
    fn map_floats<M: FloatMap>(self, map: &mut M) -> Self;
}

impl<const D: usize> Flow for Tensor<D> {
    fn map_floats<M: FloatMap>(self, map: &mut M) -> Self {
        map.map(self)
    }
}

impl<const D: usize> Flow for Tensor<D, Int> {
    fn map_floats<M: FloatMap>(self, _map: &mut M) -> Self {
        self
    }
}

impl<const D: usize> Flow for Tensor<D, Bool> {
    fn map_floats<M: FloatMap>(self, _map: &mut M) -> Self {
        self
    }
}

impl<T: Flow> Flow for Vec<T> {
    fn map_floats<M: FloatMap>(self, map: &mut M) -> Self {
        self.into_iter().map(|value| value.map_floats(map)).collect()
    }
}

impl<T: Flow> Flow for Option<T> {
    fn map_floats<M: FloatMap>(self, map: &mut M) -> Self {
        self.map(|value| value.map_floats(map))
    }
}

impl<T: Flow, const N: usize> Flow for [T; N] {
    fn map_floats<M: FloatMap>(self, map: &mut M) -> Self {
        self.map(|value| value.map_floats(map))
    }
}

impl Flow for () {
    fn map_floats<M: FloatMap>(self, _map: &mut M) -> Self {}
}

macro_rules! tuples {
    ($($name:ident $value:ident),+) => {
        impl<$($name: Flow),+> Flow for ($($name,)+) {
            fn map_floats<Map: FloatMap>(self, map: &mut Map) -> Self {
                let ($($value,)+) = self;
                ($($value.map_floats(map),)+)
            }
        }
    };
}

tuples!(A a);
tuples!(A a, B b);
tuples!(A a, B b, C c);
tuples!(A a, B b, C c, D d);
tuples!(A a, B b, C c, D d, E e);
tuples!(A a, B b, C c, D d, E e, F f);
