//! Sums of squares whose bits depend on nothing but the data.

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
    pub fn push(&mut self, mut values: &[f32]) {
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

#[inline]
fn square(value: f32) -> f64 {
    let value = f64::from(value);
    value * value
}
