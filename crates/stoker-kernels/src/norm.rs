//! Sums of squares whose bits depend on nothing but the data.

use crate::Level;

/// Elements of a chunk.
///
/// It is the default alignment of shards and parameters: under it no chunk is shared by two ranks.
pub const CHUNK: usize = 128;

/// Sums that run next to each other within a chunk, so that the loop can be vectorised.
const LANES: usize = 8;

/// The sum of the squares of `values`, in f64: see [`SquareSum`].
pub fn sum_of_squares(values: &[f32]) -> f64 {
    let mut sum = SquareSum::default();
    sum.push(values);
    sum.total()
}

/// Squares a sequence that arrives in pieces of any length, and sums them.
///
/// [Note: Norms] The order of the additions is fixed by the position in the sequence alone: element `i` of a chunk goes
/// into lane `i % 8`, the lanes of a full chunk are added from the first to the last, and the chunks one after another.
/// So the bits do not depend on how the sequence was cut. A square of an f32 is exact in f64, can neither overflow nor
/// be denormal, and NaN and infinity reach the total.
///
/// ```
/// use stoker_kernels::{SquareSum, sum_of_squares};
/// let mut sum = SquareSum::default();
/// sum.push(&[3.0]);
/// sum.push(&[4.0, 12.0]);
/// assert_eq!(sum.total(), 169.0);
/// assert_eq!(sum.total().to_bits(), sum_of_squares(&[3.0, 4.0, 12.0]).to_bits());
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SquareSum {
    chunks: f64,
    lanes: [f64; LANES],
    /// Elements of the chunk that is not full yet.
    filled: usize,
}

impl SquareSum {
    /// Appends `values` to the sequence.
    pub fn push(&mut self, values: &[f32]) {
        Level::best().run(
            #[inline(always)]
            || self.push_all(values),
        );
    }

    #[inline(always)]
    fn push_all(&mut self, mut values: &[f32]) {
        while !values.is_empty() {
            let (now, later) = values.split_at(values.len().min(CHUNK - self.filled));
            self.push_in_chunk(now);
            values = later;
        }
    }

    /// The sum so far.
    pub fn total(&self) -> f64 {
        self.chunks + self.lanes.iter().sum::<f64>()
    }

    #[inline(always)]
    fn push_in_chunk(&mut self, values: &[f32]) {
        // Up to the next multiple of LANES one by one, then a lane each, then the rest.
        let lane = self.filled % LANES;
        let (head, body) = values.split_at(values.len().min((LANES - lane) % LANES));
        for (sum, value) in self.lanes.iter_mut().skip(lane).zip(head) {
            *sum += square(*value);
        }
        let (groups, tail) = body.as_chunks::<LANES>();
        for group in groups {
            for (sum, value) in self.lanes.iter_mut().zip(group) {
                *sum += square(*value);
            }
        }
        for (sum, value) in self.lanes.iter_mut().zip(tail) {
            *sum += square(*value);
        }
        self.filled += values.len();
        if self.filled == CHUNK {
            self.chunks = self.total();
            self.lanes = [0.0; LANES];
            self.filled = 0;
        }
    }
}

#[inline(always)]
fn square(value: f32) -> f64 {
    let value = f64::from(value);
    value * value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = Vec<f32>> {
        proptest::collection::vec(prop_oneof![-1e3f32..1e3, -1e-20f32..1e-20, Just(f32::MAX)], 0..4098)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn is_the_sum_of_squares(values in values()) {
            let wanted: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
            let found = sum_of_squares(&values);
            prop_assert!((found - wanted).abs() <= 1e-12 * wanted, "{found} {wanted}");
        }

        #[test]
        fn any_split_gives_the_same_bits(values in values(), cuts in proptest::collection::vec(0usize..4098, 0..20)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(values.len())).collect();
            cuts.extend([0, values.len()]);
            cuts.sort_unstable();
            let mut sum = SquareSum::default();
            cuts.windows(2).for_each(|cut| sum.push(&values[cut[0]..cut[1]]));
            prop_assert_eq!(sum.total().to_bits(), sum_of_squares(&values).to_bits());
        }
    }

    #[test]
    fn one_by_one_gives_the_same_bits() {
        let values: Vec<f32> = (0..1000).map(|n| (n as f32).sin()).collect();
        let mut sum = SquareSum::default();
        values.iter().for_each(|value| sum.push(&[*value]));
        assert_eq!(sum.total().to_bits(), sum_of_squares(&values).to_bits());
    }

    #[test]
    fn what_is_not_finite_reaches_the_total() {
        for at in [0, 5, 127, 128, 999] {
            let mut values = vec![1.0f32; 1000];
            values[at] = f32::NEG_INFINITY;
            assert_eq!(sum_of_squares(&values), f64::INFINITY);
            values[at] = f32::NAN;
            assert!(sum_of_squares(&values).is_nan());
        }
    }

    #[test]
    fn the_largest_and_the_smallest_are_squared() {
        assert_eq!(sum_of_squares(&[f32::MAX; 4]), 4.0 * f64::from(f32::MAX) * f64::from(f32::MAX));
        let denormal = f32::from_bits(1);
        assert_eq!(sum_of_squares(&[denormal]), f64::from(denormal) * f64::from(denormal));
        assert!(sum_of_squares(&[denormal]) > 0.0);
    }
}
