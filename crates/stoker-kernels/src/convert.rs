//! Between f32 and the narrow types, rounding to nearest, ties to even.
//!
//! What does not fit an f16 becomes infinite; what is too small for one becomes denormal or zero. NaN stays NaN.

use crate::{Level, same_length};
use half::bf16;
use half::slice::HalfFloatSliceExt;
use stoker_core::{Values, ValuesMut};

/// `into` becomes `from`, exactly.
///
/// # Panics
/// When the slices are not equally long.
pub fn to_f32(into: &mut [f32], from: Values<'_>) {
    same_length("what is converted", from.len(), into.len());
    Level::best().run(
        #[inline(always)]
        || widen(into, from),
    );
}

/// `into` becomes `from`, rounded.
///
/// # Panics
/// When the slices are not equally long.
pub fn from_f32(into: ValuesMut<'_>, from: &[f32]) {
    same_length("what is converted", from.len(), into.look().len());
    Level::best().run(
        #[inline(always)]
        || narrow(into, from),
    );
}

/// [`to_f32`] within a kernel, with the kernel's instructions.
#[inline(always)]
pub(crate) fn widen(into: &mut [f32], from: Values<'_>) {
    match from {
        // Has instructions of its own, which `half` finds.
        Values::F16(from) => from.convert_to_f32_slice(into),
        Values::BF16(from) => {
            for (into, from) in into.iter_mut().zip(from) {
                *into = f32::from_bits(u32::from(from.to_bits()) << 16);
            }
        }
        Values::F32(from) => into.copy_from_slice(from),
    }
}

/// [`from_f32`] within a kernel, with the kernel's instructions.
#[inline(always)]
pub(crate) fn narrow(into: ValuesMut<'_>, from: &[f32]) {
    match into {
        ValuesMut::F16(into) => into.convert_from_f32_slice(from),
        ValuesMut::BF16(into) => {
            for (into, from) in into.iter_mut().zip(from) {
                *into = nearest(*from);
            }
        }
        ValuesMut::F32(into) => into.copy_from_slice(from),
    }
}

/// `half` has this with branches, which do not vectorise.
#[inline(always)]
fn nearest(value: f32) -> bf16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    // The payload of a NaN may not run over.
    let bits = if value.is_nan() { bits | 0x40_0000 } else { rounded };
    bf16::from_bits((bits >> 16) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;
    use proptest::prelude::*;

    fn f32_to_bf16(into: &mut [bf16], from: &[f32]) {
        from_f32(ValuesMut::BF16(into), from);
    }

    fn f32_to_f16(into: &mut [f16], from: &[f32]) {
        from_f32(ValuesMut::F16(into), from);
    }

    /// Rounds to nearest, ties to even, by the definition: the one of the two neighbours that is closer.
    fn nearest(value: f32, down: f32, up: f32, down_is_even: bool) -> f32 {
        let (below, above) = (f64::from(value) - f64::from(down), f64::from(up) - f64::from(value));
        if below < above || (below == above && down_is_even) { down } else { up }
    }

    proptest! {
        #[test]
        fn bf16_is_the_nearest(bits in any::<u32>()) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite() && value.abs() < 3e38);
            let mut found = [bf16::ZERO];
            f32_to_bf16(&mut found, &[value]);
            let toward_zero = bits & 0xffff_0000;
            let (near, far) = (f32::from_bits(toward_zero), f32::from_bits(toward_zero + 0x1_0000));
            let wanted = nearest(value.abs(), near.abs(), far.abs(), toward_zero & 0x1_0000 == 0).copysign(value);
            prop_assert_eq!(found[0].to_f32().to_bits(), wanted.to_bits());
        }

        #[test]
        fn bf16_is_that_of_half(values in proptest::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..70)) {
            let mut found = vec![bf16::ZERO; values.len()];
            f32_to_bf16(&mut found, &values);
            for (found, value) in found.iter().zip(values) {
                prop_assert_eq!(found.to_bits(), bf16::from_f32(value).to_bits());
            }
        }

        #[test]
        fn narrow_values_return_unchanged(bits in any::<u16>()) {
            let (mut wide, mut back) = ([0.0], [f16::ZERO]);
            to_f32(&mut wide, Values::F16(&[f16::from_bits(bits)]));
            f32_to_f16(&mut back, &wide);
            prop_assert!(back[0].to_bits() == bits || wide[0].is_nan() && back[0].is_nan());
            let mut back = [bf16::ZERO];
            to_f32(&mut wide, Values::BF16(&[bf16::from_bits(bits)]));
            f32_to_bf16(&mut back, &wide);
            prop_assert!(back[0].to_bits() == bits || wide[0].is_nan() && back[0].is_nan());
        }
    }

    #[test]
    fn f16_rounds_ties_to_even_and_overflows() {
        let mut found = [f16::ZERO; 6];
        f32_to_f16(&mut found, &[2049.0, 2051.0, 65_519.0, 65_520.0, f32::NAN, 1e-8]);
        assert_eq!(
            found[..4].iter().map(|v| v.to_f32()).collect::<Vec<_>>(),
            [2048.0, 2052.0, 65_504.0, f32::INFINITY]
        );
        assert!(found[4].is_nan());
        assert_eq!(found[5].to_f32(), 0.0);
    }

    #[test]
    #[should_panic(expected = "what is converted has 1 elements, 2 were wanted")]
    fn unequal_slices_are_a_mistake() {
        f32_to_bf16(&mut [bf16::ZERO; 2], &[0.0]);
    }
}
