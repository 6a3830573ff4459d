//! Values that look random and are the same in every run.

use stoker_core::buffer::Element;

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

/// An element type with the little arithmetic that references need.
pub trait Number: Element + PartialEq + std::fmt::Debug + std::ops::Add<Output = Self> {
    /// Rounds.
    fn from_f64(value: f64) -> Self;

    /// The bits, so that comparisons see signs of zero and NaN.
    fn bits(self) -> u64;
}

impl Number for f32 {
    fn from_f64(value: f64) -> Self {
        value as f32
    }

    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Number for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }

    fn bits(self) -> u64 {
        self.to_bits()
    }
}

/// Panics unless both are the same bits.
#[track_caller]
pub fn assert_same_bits<T: Number>(found: &[T], wanted: &[T], what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}: length");
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert_eq!(found.bits(), wanted.bits(), "{what}: element {at} is {found:?}, {wanted:?} is right");
    }
}
