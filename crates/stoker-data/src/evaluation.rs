//! Which records a rank validates on: each record exactly once over all ranks, with equally many batches on every rank.
//!
//! A forward pass may be collective (at stage 3 the ranks gather each layer's parameters together), so a rank that has
//! run out of records must still take part. With 9 records, 2 ranks and batches of 4, the ranks hold 5 and 4 records;
//! the first needs a second batch for its fifth record, so the second runs a second batch as well, with nothing in it.
//!
//! A model cannot in general be run on no records, nor is a batch of another shape welcome. An [`EvaluationBatch`]
//! therefore separates what counts from what is run: [`records`](EvaluationBatch::records) are the records whose
//! outcome counts, none of them twice; [`padded`](EvaluationBatch::padded) is always a whole batch, those records
//! first and then others as padding. Run the padded batch, keep the first [`len`](EvaluationBatch::len) rows of the
//! outcome, sum over batches and ranks, and divide by the number of records in the set.

use std::iter::FusedIterator;
use std::ops::Range;

use crate::error::SamplerError;

/// The share of one rank in a validation set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationSampler {
    len: usize,
    world: usize,
    rank: usize,
    micro_batch: usize,
}

impl EvaluationSampler {
    /// The share of `rank` when `world` ranks go through `len` records, at most `micro_batch` at a time on each.
    ///
    /// # Errors
    ///
    /// When the rank is not below the world size, the batch is empty or there are no records.
    pub fn new(len: usize, world: usize, rank: usize, micro_batch: usize) -> Result<Self, SamplerError> {
        if rank >= world {
            return Err(SamplerError::Rank { rank, world });
        }
        if micro_batch == 0 {
            return Err(SamplerError::EmptyBatch);
        }
        if len == 0 {
            return Err(SamplerError::NothingToEvaluate);
        }
        Ok(Self { len, world, rank, micro_batch })
    }

    /// The records of this rank. The shares of the ranks follow one another and differ by at most one record, the
    /// longer ones first; with fewer records than ranks, the last ranks have none.
    pub fn share(&self) -> Range<usize> {
        let (each, longer) = (self.len / self.world, self.len % self.world);
        let start = self.rank * each + self.rank.min(longer);
        start..start + each + usize::from(self.rank < longer)
    }

    /// Batches to run, the same on every rank; at least 1.
    pub fn batches(&self) -> usize {
        self.len.div_ceil(self.world).div_ceil(self.micro_batch)
    }

    /// This rank's batches, in the order of the records.
    pub fn iter(&self) -> EvaluationBatches {
        EvaluationBatches { share: self.share(), micro_batch: self.micro_batch, left: self.batches() }
    }
}

impl IntoIterator for &EvaluationSampler {
    type Item = EvaluationBatch;
    type IntoIter = EvaluationBatches;

    fn into_iter(self) -> EvaluationBatches {
        self.iter()
    }
}

/// The batches of one rank in an evaluation.
#[derive(Debug, Clone)]
pub struct EvaluationBatches {
    share: Range<usize>,
    micro_batch: usize,
    left: usize,
}

impl Iterator for EvaluationBatches {
    type Item = EvaluationBatch;

    fn next(&mut self) -> Option<EvaluationBatch> {
        self.left = self.left.checked_sub(1)?;
        let end = self.share.end.min(self.share.start.saturating_add(self.micro_batch));
        let records = self.share.start..end;
        self.share.start = end;
        Some(EvaluationBatch { records, micro_batch: self.micro_batch })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for EvaluationBatches {}
impl FusedIterator for EvaluationBatches {}

/// One batch of an evaluation: whole, short or empty, but always runnable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationBatch {
    records: Range<usize>,
    micro_batch: usize,
}

impl EvaluationBatch {
    /// The records that count; fewer than a whole batch, or none, at the end of a rank's share.
    pub fn records(&self) -> Range<usize> {
        self.records.clone()
    }

    /// How many records count: the rows of the outcome to keep.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no record counts, and the batch is run only because other ranks run one.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records to run: those that count, then the last of them (record 0 if there is none) up to a whole batch.
    pub fn padded(&self) -> Vec<usize> {
        let filler = self.records.clone().next_back().unwrap_or(0);
        self.records().chain(std::iter::repeat(filler)).take(self.micro_batch).collect()
    }
}

#[cfg(test)]
mod tests;
