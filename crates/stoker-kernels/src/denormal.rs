//! Denormals count as zero.
//!
//! [Note: Denormals] Arithmetic with denormals is up to a hundred times slower on some processors, and moments of weights
//! that get no gradient decay into them and stay there. So whatever would make a denormal, or be one, where it is
//! multiplied, divided or has its root taken counts as 0 there: before each such operation the operand is compared with
//! the least magnitude that gives a normal number. This is a comparison and a mask, not the CPU's flush-to-zero mode,
//! which would be a property of the thread (and undefined behaviour in Rust): NaN and infinity pass through it, and the
//! bits are the same on every thread and every processor.
//!
//! What it does to a result: a gradient or a moment is wrong by at most the smallest normal number over the factor that
//! it meets, 1.2e-37 for a `beta1` of 0.9, and an update by as much times the learning rate over eps. A gradient whose
//! square times `1 - beta2` is below 1.2e-38 leaves Adam's second moment alone: with the usual 0.999 one below 3.5e-18.

use crate::real::Real;

/// The smallest normal number.
pub(crate) const NORMAL: f32 = f32::MIN_POSITIVE;

/// The least magnitude, itself normal, whose product with `factor` is a normal number; infinity if there is none.
pub(crate) fn least(factor: f32) -> f32 {
    least_product(factor, NORMAL)
}

/// The least magnitude, itself normal, whose product with `factor` is at least `product`; infinity if there is none.
pub(crate) fn least_product(factor: f32, product: f32) -> f32 {
    let exact = product / factor.abs();
    // Rounded to nearest it may be a little too small. NaN is no limit.
    if exact.is_finite() && exact * factor.abs() < product { exact.next_up() } else { exact.max(NORMAL) }.max(NORMAL)
}

/// The least magnitude whose square, a normal number, times `factor` is a normal number.
pub(crate) fn least_squared(factor: f32) -> f32 {
    let square = least(factor);
    let mut root = Real::sqrt(square);
    while root * root < square {
        root = root.next_up();
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::Watched;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_much_smaller_would_do(factor in prop_oneof![1e-30f32..1e-3, 1e-3f32..1.0, 1f32..1e6]) {
            let found = least(factor);
            prop_assert!(found * factor >= NORMAL && found >= NORMAL);
            // Roundings may have cost the last bit.
            let below = found.next_down().next_down();
            prop_assert!(below < NORMAL || below * factor < NORMAL, "{found:e} {factor:e}");
            let found = least_squared(factor);
            prop_assert!(found * found >= NORMAL && found * found * factor >= NORMAL);
            let below = found.next_down().next_down();
            prop_assert!(below * below < NORMAL || below * below * factor < NORMAL, "{found:e} {factor:e}");
        }
    }

    #[test]
    fn the_edges_stay() {
        assert_eq!([least(1.0), least(0.5), least(4.0)], [NORMAL, 2.0 * NORMAL, NORMAL]);
        assert_eq!([least(0.0), least(f32::NAN), least(f32::INFINITY)], [f32::INFINITY, NORMAL, NORMAL]);
        assert_eq!(least_squared(1.0), 1.0 / (1u64 << 63) as f32);
        assert_eq!([NORMAL, -NORMAL].map(|value| value.flushed(NORMAL)), [NORMAL, -NORMAL]);
        assert_eq!([NORMAL / 2.0, -NORMAL / 2.0].map(|value| value.flushed(NORMAL)), [0.0, 0.0]);
        assert!(f32::NAN.flushed(NORMAL).is_nan());
        assert_eq!(f32::INFINITY.flushed(f32::INFINITY), f32::INFINITY);
    }

    #[test]
    #[should_panic(expected = "2e-38 * 5e-1 = 1e-38")]
    fn a_denormal_is_noticed() {
        let _ = Watched(2e-38) * Watched(0.5);
    }
}
