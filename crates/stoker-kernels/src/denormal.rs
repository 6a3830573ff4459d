//! Denormals count as zero.
//!
//! [Note: Denormals] Arithmetic with denormals is up to a hundred times slower, and moments of weights that get no
//! gradient decay into them and stay there. So a gradient below 2^-63 counts as 0 for its square, and a moment below the
//! smallest normal number counts as 0. This is a comparison and a select, not the CPU's flush-to-zero mode, which would
//! be a property of the thread: NaN and infinity pass through it.

/// Below this a gradient's square is not a normal f32.
pub(crate) const SMALLEST_SQUARED: f32 = 1.0 / (1u64 << 63) as f32;

/// `value`, or 0 in place of a denormal.
#[inline]
pub(crate) fn normal(value: f32) -> f32 {
    if value.abs() < f32::MIN_POSITIVE { 0.0 } else { value }
}

/// `value`, or 0 if its square were a denormal.
#[inline]
pub(crate) fn squarable(value: f32) -> f32 {
    if value.abs() < SMALLEST_SQUARED { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_stay() {
        let (smallest, edge) = (f32::MIN_POSITIVE, SMALLEST_SQUARED);
        assert_eq!(edge * edge, smallest);
        assert_eq!([smallest, -smallest].map(normal), [smallest, -smallest]);
        assert_eq!([edge, -edge].map(squarable), [edge, -edge]);
        assert_eq!([smallest / 2.0, -smallest / 2.0].map(normal), [0.0, 0.0]);
        assert_eq!([edge * 0.999, -edge * 0.999].map(squarable), [0.0, 0.0]);
        assert!(normal(f32::NAN).is_nan() && squarable(f32::NAN).is_nan());
    }
}
