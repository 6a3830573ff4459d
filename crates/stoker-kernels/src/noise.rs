//! Rounding state to bf16 at random.
//!
//! [Note: Noise] Rounded to nearest, a moment that changes by less than half of a unit in its last place in each update
//! does not change at all: with 8 bits and a decay of 0.999 none of them would. So the part that is cut off decides with
//! what probability it is rounded up, and the mean of many updates is right (Gupta et al., "Deep Learning with Limited
//! Numerical Precision", 2015). One rounding is wrong by up to 2^-7 of the value, by none on average, and by 2^-8 or less
//! of it as a standard deviation.
//!
//! The chance is a hash of the element's updated parameter and of the number of the update. It needs no generator and no
//! place: any split, any number of threads and of ranks gives the same bits, and equal elements stay equal.

use half::bf16;

/// What the number of an update adds to the hash.
#[inline(always)]
pub(crate) fn salt(update: u64) -> u32 {
    // By itself no more than another multiple; with the multiplier of `chance` a step of the golden ratio squared.
    (update as u32).wrapping_mul(0x85eb_ca6b)
}

/// 16 random bits for an element whose parameter has just become `parameter`.
#[inline(always)]
pub(crate) fn chance(parameter: f32, salt: u32) -> u32 {
    // Multiplicative hashing: every bit of the sum reaches the upper half of the product. Over updates of a parameter
    // that stays the same the chances are a Weyl sequence, which is more even than random numbers are.
    parameter.to_bits().wrapping_add(salt).wrapping_mul(0x9e37_79b9) >> 16
}

/// `value` as one of its two neighbours, the nearer the likelier; `chance` is 16 random bits, none of them set for a NaN,
/// whose payload could run over. A NaN is a result of arithmetic, and so a quiet one: it stays one without its last bits.
#[inline(always)]
pub(crate) fn rounded(value: f32, chance: u32) -> bf16 {
    bf16::from_bits((value.to_bits().wrapping_add(chance) >> 16) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_a_neighbour(bits in any::<u32>(), chance in 0u32..0x1_0000) {
            let value = f32::from_bits(bits);
            let found = rounded(value, if value.is_nan() { 0 } else { chance });
            if value.is_nan() {
                prop_assert!(found.is_nan() || bits & 0x40_0000 == 0);
            } else {
                let below = (bits >> 16) as u16;
                let wanted = if bits & 0xffff == 0 { vec![below] } else { vec![below, below + 1] };
                prop_assert!(wanted.contains(&found.to_bits()), "{value:e} {found:e}");
            }
        }
    }

    #[test]
    fn the_mean_is_right() {
        // Each of these lies `part` of the way from one bf16 to the next.
        for part in [0.01f32, 0.25, 0.5, 0.9] {
            for base in [1f32, -3e-12, 7e20] {
                let (here, next) = (bf16::from_f32(base), bf16::from_bits(bf16::from_f32(base).to_bits() + 1));
                let value = here.to_f32() + (next.to_f32() - here.to_f32()) * part;
                // The same parameter in many updates.
                let up = (1..=100_000u64).filter(|update| rounded(value, chance(0.3, salt(*update))) == next).count();
                let found = up as f64 / 1e5;
                // Four standard deviations of 100,000 throws.
                assert!((found - f64::from(part)).abs() < 4.0 * 0.5 / 316.0, "{value:e}: {found} of {part}");
            }
        }
    }

    #[test]
    fn neighbouring_parameters_have_unlike_chances() {
        // All parameters between two bf16, in one update: every bit is set half of the time, and as often as not where
        // it is set in the neighbour.
        let drawn: Vec<u32> = (0..0x1_0000u32).map(|low| chance(f32::from_bits(0x3f80_0000 | low), salt(77))).collect();
        for bit in 0..16 {
            let set = drawn.iter().filter(|drawn| **drawn >> bit & 1 == 1).count() as f64 / 65_536.0;
            assert!((set - 0.5).abs() < 4.0 * 0.5 / 256.0, "bit {bit}: {set}");
        }
        let mean = drawn.iter().map(|drawn| f64::from(*drawn)).sum::<f64>() / 65_536.0;
        let differences = drawn.windows(2).map(|pair| f64::from(pair[0]) - f64::from(pair[1]));
        assert!((mean - 32_767.5).abs() < 300.0, "{mean}");
        assert!(differences.map(f64::abs).sum::<f64>() / 65_535.0 > 10_000.0);
    }
}
