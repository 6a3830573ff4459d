//! Which records a rank trains on at each step.
//!
//! Every rank shuffles the same way, from the seed and the epoch alone, so no rank has to tell another. The global
//! batch number `k` is records `k * B .. (k + 1) * B` of that order, and each rank takes its contiguous part of it.
//! What a step sees is therefore the same for any number of ranks with the same global batch `B`, which is what makes
//! runs of different world sizes comparable. The records after the last whole global batch are left out of that epoch:
//! every rank runs equally many batches of equal size, as collective operations demand. The next epoch leaves out
//! others.
//!
//! Gradient accumulation over `a` batches changes nothing in this: `a` consecutive global batches of `B / a` are
//! together the same records as one of `B`.

use std::iter::FusedIterator;

use crate::error::SamplerError;
use crate::keyed::{Keyed, Purpose};

/// The share of one rank in a training set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankSampler {
    len: usize,
    world: usize,
    rank: usize,
    micro_batch: usize,
    seed: u64,
}

impl RankSampler {
    /// The share of `rank` when each of `world` ranks takes `micro_batch` of `len` records at a time.
    ///
    /// # Errors
    ///
    /// When the rank is not below the world size, the batch is empty, or the set is smaller than one global batch.
    pub fn new(len: usize, world: usize, rank: usize, micro_batch: usize, seed: u64) -> Result<Self, SamplerError> {
        if rank >= world {
            return Err(SamplerError::Rank { rank, world });
        }
        if micro_batch == 0 {
            return Err(SamplerError::EmptyBatch);
        }
        let batch = micro_batch.checked_mul(world).ok_or(SamplerError::BatchOverflow { micro_batch, world })?;
        if len < batch {
            return Err(SamplerError::TooFewRecords { len, batch });
        }
        Ok(Self { len, world, rank, micro_batch, seed })
    }

    /// As [`new`](Self::new), with the batch given for all ranks together.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and when `global_batch` is not a multiple of `world`.
    pub fn with_global_batch(
        len: usize,
        world: usize,
        rank: usize,
        global_batch: usize,
        seed: u64,
    ) -> Result<Self, SamplerError> {
        if rank >= world {
            return Err(SamplerError::Rank { rank, world });
        }
        if !global_batch.is_multiple_of(world) {
            return Err(SamplerError::NotDivisible { batch: global_batch, world });
        }
        // `world` is above `rank`, so it is not 0.
        Self::new(len, world, rank, global_batch / world, seed)
    }

    /// Records that this rank takes at a time.
    pub fn micro_batch(&self) -> usize {
        self.micro_batch
    }

    /// Records that all ranks together take at a time.
    pub fn global_batch(&self) -> usize {
        self.micro_batch * self.world
    }

    /// Batches of one epoch, the same on every rank; at least 1.
    pub fn batches(&self) -> usize {
        self.len / self.global_batch()
    }

    /// This rank's batches of records in `epoch`.
    pub fn epoch(&self, epoch: u64) -> Epoch {
        let mut order: Vec<usize> = (0..self.len).collect();
        Keyed::new(self.seed, Purpose::Shuffle, 0, epoch).shuffle(&mut order);
        // Only this rank's part is kept; the shuffle of the whole is what makes the parts fit together.
        let parts = order.chunks_exact(self.global_batch()).flat_map(|global| {
            global.chunks_exact(self.micro_batch).nth(self.rank).unwrap_or_default().iter().copied()
        });
        Epoch { records: parts.collect(), micro_batch: self.micro_batch, next: 0 }
    }
}

/// The batches of one rank in one epoch, each a list of record numbers.
///
/// `nth` and `skip` cost nothing, so a resumed run goes straight to its place.
#[derive(Debug, Clone)]
pub struct Epoch {
    records: Vec<usize>,
    micro_batch: usize,
    next: usize,
}

impl Iterator for Epoch {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        self.nth(0)
    }

    fn nth(&mut self, skipped: usize) -> Option<Vec<usize>> {
        let wanted = self.next.saturating_add(skipped);
        let batch = self.records.chunks_exact(self.micro_batch).nth(wanted).map(<[usize]>::to_vec);
        self.next = wanted.saturating_add(1);
        batch
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.records.len() / self.micro_batch).saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Epoch {}
impl FusedIterator for Epoch {}

#[cfg(test)]
mod tests;
