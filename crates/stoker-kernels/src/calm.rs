//! Spans of a shard in which no flush can happen.
//!
//! [Note: Calm] Denormals are kept out of the arithmetic by comparing and masking its operands ([Note: Denormals]), which is
//! two fifths of what Adam computes for an element. In f32 that is hidden by the wait for memory. With moments in bf16 there
//! is less to wait for. So a rule may say how large its inputs must be for the comparisons of inputs to change nothing. A
//! span of a shard is looked through once (which costs a third of what it saves); if it is calm, its elements are computed
//! with [`Calm`] numbers, which leave those comparisons out. The results are the same bits either way.
//!
//! Looking through a span before it is computed parts the wait for memory from the computing, so what comes next is asked
//! for in advance.

use crate::real::Real;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The least magnitudes of a calm element's inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CalmFrom<const N: usize> {
    /// Of the parameter.
    pub(crate) parameter: f32,
    /// Of the accumulated gradient.
    pub(crate) gradient: f32,
    /// Of the state.
    pub(crate) state: [f32; N],
}

/// A number of a calm element.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Calm<F>(pub(crate) F);

macro_rules! delegate {
    ($($operation:ident $name:ident),*) => {$(
        impl<F: Real> $operation for Calm<F> {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                Self(self.0.$name(other.0))
            }
        }
    )*};
}

delegate!(Add add, Sub sub, Mul mul, Div div);

impl<F: Real> Neg for Calm<F> {
    type Output = Self;

    #[inline(always)]
    fn neg(self) -> Self {
        Self(-self.0)
    }
}

impl<F: Real> Real for Calm<F> {
    #[inline(always)]
    fn of(value: f32) -> Self {
        Self(F::of(value))
    }

    #[inline(always)]
    fn value(self) -> f32 {
        self.0.value()
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Self(self.0.sqrt())
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Self(self.0.abs())
    }

    #[inline(always)]
    fn flushed(self, least: f32) -> Self {
        Self(self.0.flushed(least))
    }

    #[inline(always)]
    fn flushed_above(self, least: f32) -> Self {
        Self(self.0.flushed_above(least))
    }

    #[inline(always)]
    fn input_flushed(self, _: f32) -> Self {
        self
    }

    #[inline(always)]
    fn input_flushed_above(self, _: f32) -> Self {
        self
    }
}
