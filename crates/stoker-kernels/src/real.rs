//! What update rules compute with.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// An f32; in tests also one that watches what it meets.
pub(crate) trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// This value.
    fn of(value: f32) -> Self;
    /// The value that it is.
    fn value(self) -> f32;
    /// Its root.
    fn sqrt(self) -> Self;
    /// Its magnitude.
    fn abs(self) -> Self;

    /// The value, or 0 if it is below `least`: [`flushed`](Self::flushed) for values that are not negative.
    #[inline(always)]
    fn flushed_above(self, least: f32) -> Self {
        if self < Self::of(least) { Self::of(0.0) } else { self }
    }

    /// The value, or 0 if its magnitude is below `least`: a comparison and a mask. NaN stays.
    #[inline(always)]
    fn flushed(self, least: f32) -> Self {
        if self.abs() < Self::of(least) { Self::of(0.0) } else { self }
    }

    /// [`flushed`](Self::flushed), of what cannot be so small in a calm element.
    #[inline(always)]
    fn input_flushed(self, least: f32) -> Self {
        self.flushed(least)
    }

    /// [`flushed_above`](Self::flushed_above), of what cannot be so small in a calm element.
    #[inline(always)]
    fn input_flushed_above(self, least: f32) -> Self {
        self.flushed_above(least)
    }
}

impl Real for f32 {
    #[inline(always)]
    fn of(value: f32) -> Self {
        value
    }

    #[inline(always)]
    fn value(self) -> f32 {
        self
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        self.sqrt()
    }

    #[inline(always)]
    fn abs(self) -> Self {
        self.abs()
    }
}

/// An f32 that panics where a multiplication, a division or a root takes or gives a denormal.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Watched(pub(crate) f32);

#[cfg(test)]
mod watched {
    use super::{Real, Watched};
    use std::ops::{Add, Div, Mul, Neg, Sub};

    fn seen(operation: &str, values: [f32; 3]) -> Watched {
        let [one, other, result] = values;
        assert!(values.iter().all(|value| !value.is_subnormal()), "{one:e} {operation} {other:e} = {result:e}");
        Watched(result)
    }

    impl Real for Watched {
        fn of(value: f32) -> Self {
            Self(value)
        }

        fn value(self) -> f32 {
            self.0
        }

        fn sqrt(self) -> Self {
            seen("root", [self.0, 0.0, self.0.sqrt()])
        }

        fn abs(self) -> Self {
            Self(self.0.abs())
        }
    }

    impl Add for Watched {
        type Output = Self;
        fn add(self, other: Self) -> Self {
            Self(self.0 + other.0)
        }
    }

    impl Sub for Watched {
        type Output = Self;
        fn sub(self, other: Self) -> Self {
            Self(self.0 - other.0)
        }
    }

    impl Mul for Watched {
        type Output = Self;
        fn mul(self, other: Self) -> Self {
            seen("*", [self.0, other.0, self.0 * other.0])
        }
    }

    impl Div for Watched {
        type Output = Self;
        fn div(self, other: Self) -> Self {
            seen("/", [self.0, other.0, self.0 / other.0])
        }
    }

    impl Neg for Watched {
        type Output = Self;
        fn neg(self) -> Self {
            Self(-self.0)
        }
    }
}
