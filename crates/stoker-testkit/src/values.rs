//! Values that look random and are the same in every run.

use std::ops::Range;
use stoker_core::buffer::Element;
use stoker_core::half::{bf16, f16};
use stoker_core::{DType, HostBuffer};

/// Every type that a buffer can hold.
pub const DTYPES: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// The next number of a sequence that starts with any `state` (splitmix64).
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Numbers of both signs and of magnitudes from 2^-10 to 2^10: their sum depends on the order of its terms.
pub fn numbers<T: Number>(seed: u64, count: usize) -> Vec<T> {
    let mut state = seed;
    let number = |_| {
        let bits = next(&mut state);
        // Put together from sign, exponent (1023 is that of 1) and fraction.
        let (sign, exponent, fraction) = (bits << 63, 1013 + (bits >> 1) % 20, bits >> 12);
        T::from_f64(f64::from_bits(sign | exponent << 52 | fraction))
    };
    (0..count).map(number).collect()
}

/// Elements of any bits, NaN of all kinds, infinities and subnormals among them: for what moves them and no more.
pub fn any_bits(dtype: DType, seed: u64, elements: usize) -> HostBuffer {
    let (mut state, mut buffer) = (seed, HostBuffer::zeros_of(dtype, elements));
    for bytes in buffer.as_mut_bytes().chunks_mut(8) {
        bytes.copy_from_slice(&next(&mut state).to_le_bytes()[..bytes.len()]);
    }
    buffer
}

/// A copy of these elements.
pub fn part(of: &HostBuffer, range: Range<usize>) -> HostBuffer {
    let mut copy = HostBuffer::zeros_of(of.dtype(), range.len());
    copy.copy_elements(0, of, range);
    copy
}

/// An element type with the little arithmetic that references need.
pub trait Number: Element + PartialEq + std::fmt::Debug + std::ops::Add<Output = Self> {
    /// The largest finite number.
    const MAX: Self;

    /// The smallest above zero, a subnormal.
    const LEAST: Self;

    /// From 1 to the next number.
    const EPSILON: f64;

    /// Rounds.
    fn from_f64(value: f64) -> Self;

    /// The same number.
    fn to_f64(self) -> f64;

    /// The bits, so that comparisons see signs of zero and NaN.
    fn bits(self) -> u64;

    /// From `size` to the next number, both taken to be normal: a unit in the last place.
    fn last_place(size: f64) -> f64 {
        // Without its fraction it is the power of two that all numbers up to the next one share.
        f64::from_bits(size.to_bits() >> 52 << 52) * Self::EPSILON
    }
}

macro_rules! number {
    ($type:ty, $from:expr, $to:expr, $epsilon:expr) => {
        impl Number for $type {
            const MAX: Self = <$type>::MAX;
            const LEAST: Self = <$type>::from_bits(1);
            const EPSILON: f64 = $epsilon;

            fn from_f64(value: f64) -> Self {
                $from(value)
            }

            fn to_f64(self) -> f64 {
                $to(self)
            }

            fn bits(self) -> u64 {
                self.to_bits().into()
            }
        }
    };
}

// By way of f32: how `half` rounds an f64 itself depends on the processor.
number!(f16, |value| f16::from_f32(value as f32), f16::to_f64, 1.0 / 1024.0);
number!(bf16, |value| bf16::from_f32(value as f32), bf16::to_f64, 1.0 / 128.0);
number!(f32, |value| value as f32, f64::from, f32::EPSILON as f64);
number!(f64, |value| value, |value| value, f64::EPSILON);

/// Panics unless both are the same bits.
#[track_caller]
pub fn assert_same_bits<T: Number>(found: &[T], wanted: &[T], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}: length");
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(found.bits(), wanted.bits(), "{what}: element {at} is {found:?}, {wanted:?} is right");
    }
}

/// Panics unless both buffers hold the same bits of the same type.
#[track_caller]
pub fn assert_same(found: &HostBuffer, wanted: &HostBuffer, what: &str) {
    assert_eq!((found.dtype(), found.len()), (wanted.dtype(), wanted.len()), "{what}: type and length");
    let size = wanted.dtype().size();
    let both = found.as_bytes().chunks_exact(size).zip(wanted.as_bytes().chunks_exact(size));
    for (at, (found, wanted)) in both.enumerate() {
        assert_eq!(found, wanted, "{what}: bytes of element {at}, and what is right");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law<T: Number>(digits: i32) {
        let one = T::from_f64(1.0);
        assert_eq!(T::from_f64(1.0 + T::EPSILON).bits(), one.bits() + 1);
        assert_eq!(T::last_place(1.0), T::EPSILON);
        assert_eq!(T::EPSILON, 2f64.powi(-digits));
        assert_eq!(T::last_place(1027.5), 1024.0 * T::EPSILON);
        assert_eq!(T::last_place(0.0), 0.0);
        assert!(T::from_f64(T::MAX.to_f64() * 2.0).to_f64().is_infinite());
        assert_eq!((T::LEAST.bits(), T::from_f64(T::LEAST.to_f64())), (1, T::LEAST));
        assert_eq!(T::from_f64(-0.0).to_f64().to_bits(), (-0.0f64).to_bits());
        let numbers = numbers::<T>(1, 1000);
        assert!(numbers.iter().all(|number| (2f64.powi(-10)..=1024.0).contains(&number.to_f64().abs())));
        assert!(numbers.iter().any(|number| number.to_f64() < 0.0));
    }

    #[test]
    fn numbers_of_every_type() {
        law::<f16>(10);
        law::<bf16>(7);
        law::<f32>(23);
        law::<f64>(52);
    }

    #[test]
    fn any_bits_are_the_same_again_and_of_all_kinds() {
        for dtype in DTYPES {
            assert_same(&any_bits(dtype, 3, 1001), &any_bits(dtype, 3, 1001), "the same seed");
            assert_ne!(any_bits(dtype, 3, 9).as_bytes(), any_bits(dtype, 4, 9).as_bytes());
        }
        let found = any_bits(DType::F16, 1, 5000);
        assert!(found.as_slice::<f16>().iter().any(|value| value.is_nan()));
        assert!(found.as_slice::<f16>().iter().any(|value| !value.is_normal() && value.is_finite()));
        assert_same(&part(&found, 3..5), &HostBuffer::from_slice(&found.as_slice::<f16>()[3..5]), "a part");
    }

    #[test]
    #[should_panic(expected = "a copy: bytes of element 1, and what is right")]
    fn one_wrong_bit_is_found() {
        assert_same(&HostBuffer::from_slice(&[0.0f32, 0.0]), &HostBuffer::from_slice(&[0.0f32, -0.0]), "a copy");
    }
}
