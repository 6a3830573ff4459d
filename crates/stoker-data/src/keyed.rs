//! Random streams addressed by what they are for.
//!
//! A stream is keyed by (seed, purpose, position), never by how much was drawn before. That is what lets any record be
//! drawn on any rank, and any epoch be shuffled after a resume, with the same outcome. Drawing in a range is spelled
//! out here rather than taken from `rand`, whose algorithms may change between versions: a checkpoint that resumes in
//! the middle of an epoch depends on the permutation staying what it was.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What a stream is for; the numbers are part of the key and so must never be reused.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// The order of an epoch.
    Shuffle = 1,
    /// The labels of a block of built-in records.
    Labels = 2,
    /// The picture of one built-in record.
    Picture = 3,
}

/// A deterministic stream of random numbers.
#[derive(Debug)]
pub(crate) struct Keyed(ChaCha8Rng);

impl Keyed {
    pub(crate) fn new(seed: u64, purpose: Purpose, part: u64, position: u64) -> Self {
        let mut key = [0u8; 32];
        let words = [seed, purpose as u64, part, position];
        for (slot, word) in key.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        Self(ChaCha8Rng::from_seed(key))
    }

    /// A number in `0..bound`, each equally likely; 0 when `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // Lemire's method: the high word of a 64 x 64 bit product, redrawn in the few cases that would bias it.
        let reject_below = bound.wrapping_neg().checked_rem(bound).unwrap_or(0);
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(bound);
            let low = product as u64;
            if low >= reject_below {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number in `[0, 1)`.
    pub(crate) fn unit(&mut self) -> f32 {
        // 24 bits are exactly what an f32 holds.
        (self.0.next_u32() >> 8) as f32 / 16_777_216.0
    }

    /// A number in `[low, high)`.
    pub(crate) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// Puts `items` in a random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            // `below(last + 1)` is at most `last`, which is in bounds.
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_in_every_part_of_their_key() {
        let first = |seed, purpose, part, position| Keyed::new(seed, purpose, part, position).below(u64::MAX);
        let one = first(1, Purpose::Shuffle, 1, 1);
        assert_eq!(one, first(1, Purpose::Shuffle, 1, 1));
        for other in [
            first(2, Purpose::Shuffle, 1, 1),
            first(1, Purpose::Labels, 1, 1),
            first(1, Purpose::Shuffle, 2, 1),
            first(1, Purpose::Shuffle, 1, 2),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn numbers_stay_in_range_and_reach_all_of_it() {
        let mut stream = Keyed::new(7, Purpose::Shuffle, 0, 0);
        let mut seen = [0u32; 6];
        for _ in 0..6_000 {
            seen[stream.below(6) as usize] += 1;
            let unit = stream.unit();
            assert!((0.0..1.0).contains(&unit));
        }
        assert!(seen.iter().all(|count| (850..1150).contains(count)), "{seen:?}");
        assert_eq!(stream.below(0), 0);
        assert_eq!(stream.below(1), 0);
    }

    #[test]
    fn the_order_of_a_shuffle_is_a_fixed_format() {
        let mut items: Vec<u32> = (0..10).collect();
        Keyed::new(42, Purpose::Shuffle, 0, 0).shuffle(&mut items);
        // Resumed runs rely on it: this line may change only together with the checkpoint format.
        assert_eq!(items, FIXED);
    }

    const FIXED: [u32; 10] = [8, 2, 7, 0, 4, 6, 9, 3, 1, 5];
}
