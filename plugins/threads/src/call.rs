//! One collective, from its first deposit to its last result.

use crate::fingerprint::{Fingerprint, Operation};
use crate::work::{Task, Work};
use std::sync::Arc;
use stoker_core::HostBuffer;
use stoker_core::communicator::Exchanged;

/// Sums shorter than this are not shared among the ranks: waking somebody up takes longer.
const WORTH_SHARING: usize = 16 * 1024;

/// What a rank brings: `sent` is read by everybody, `received` is its own result.
#[derive(Debug)]
pub(crate) struct Deposit {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) buffers: Exchanged,
}

#[derive(Debug)]
pub(crate) struct Call {
    stage: Stage,
    /// Ranks that have neither taken their result nor dropped their ticket.
    owed: usize,
}

#[derive(Debug)]
enum Stage {
    /// Not every rank has come.
    Meeting(Vec<Option<Deposit>>),
    /// Pieces are being worked on.
    Working(Pieces),
    /// Every rank's buffers lie ready.
    Done(Vec<Option<Exchanged>>),
}

#[derive(Debug)]
struct Pieces {
    /// What the pieces read.
    sources: Arc<Vec<HostBuffer>>,
    pieces: Vec<Piece>,
    then: Then,
}

/// What becomes of the buffers when all pieces are done.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// Each rank gets its source back, and its piece as the result.
    Exchange,
    /// The pieces are the parts of a sum: each rank's source takes in all of them.
    Spread,
    /// Each rank's piece is its result.
    Keep,
    /// As `Keep`; the source is the result of this rank.
    Root(usize),
}

#[derive(Debug)]
enum Piece {
    Waiting(Task, HostBuffer),
    /// The rank that works on it.
    Taken(usize),
    Done(HostBuffer),
}

impl Call {
    pub(crate) fn new(world: usize) -> Self {
        Self { stage: Stage::Meeting((0..world).map(|_| None).collect()), owed: world }
    }

    /// The first call that differs from `fingerprint`, and whose it is.
    pub(crate) fn disagreement(&self, fingerprint: &Fingerprint) -> Option<(usize, String)> {
        let Stage::Meeting(deposits) = &self.stage else { return None };
        let there =
            deposits.iter().enumerate().filter_map(|(rank, deposit)| Some((rank, &deposit.as_ref()?.fingerprint)));
        there.filter(|(_, other)| *other != fingerprint).map(|(rank, other)| (rank, other.to_string())).next()
    }

    /// What was called, as long as not every rank has come.
    pub(crate) fn waits_for_more(&self) -> Option<&Fingerprint> {
        let Stage::Meeting(deposits) = &self.stage else { return None };
        deposits.iter().flatten().map(|deposit| &deposit.fingerprint).next()
    }

    /// Adds `rank`'s deposit; whether it was the last.
    pub(crate) fn deposit(&mut self, rank: usize, deposit: Deposit) -> bool {
        let Stage::Meeting(deposits) = &mut self.stage else { return false };
        if let Some(place) = deposits.get_mut(rank) {
            *place = Some(deposit);
        }
        if deposits.iter().any(Option::is_none) {
            return false;
        }
        let deposits: Vec<Deposit> = std::mem::take(deposits).into_iter().flatten().collect();
        self.stage = begin(deposits);
        true
    }

    /// Whether every rank has come.
    pub(crate) fn has_met(&self) -> bool {
        !matches!(self.stage, Stage::Meeting(_))
    }

    /// Whether `rank` has come.
    pub(crate) fn has_come(&self, rank: usize) -> bool {
        match &self.stage {
            Stage::Meeting(deposits) => deposits.get(rank).is_some_and(Option::is_some),
            _ => true,
        }
    }

    /// The ranks that the call waits for: those that have not come, or else those that are at work.
    pub(crate) fn late(&self) -> Vec<usize> {
        match &self.stage {
            Stage::Meeting(deposits) => (0..deposits.len()).filter(|rank| !self.has_come(*rank)).collect(),
            Stage::Working(pieces) => {
                let at_work = pieces.pieces.iter().filter_map(|piece| match piece {
                    Piece::Taken(rank) => Some(*rank),
                    _ => None,
                });
                at_work.collect()
            }
            Stage::Done(_) => Vec::new(),
        }
    }

    /// A piece for `rank` to do: its own, or another.
    pub(crate) fn claim(&mut self, rank: usize) -> Option<Work> {
        let Stage::Working(Pieces { sources, pieces, .. }) = &mut self.stage else { return None };
        let waiting = |piece: &Piece| matches!(piece, Piece::Waiting(..));
        let own = rank % pieces.len().max(1);
        let slot = if pieces.get(own).is_some_and(waiting) { own } else { pieces.iter().position(waiting)? };
        let place = pieces.get_mut(slot)?;
        match std::mem::replace(place, Piece::Taken(rank)) {
            Piece::Waiting(task, into) => Some(Work { slot, task, sources: sources.clone(), into }),
            other => {
                *place = other;
                None
            }
        }
    }

    /// Takes back what [`claim`](Self::claim) gave out. If that changes what others can do, gives what is not needed any
    /// more: to be dropped outside the lock.
    pub(crate) fn finish(&mut self, slot: usize, result: HostBuffer) -> Option<Vec<HostBuffer>> {
        let Stage::Working(stage) = &mut self.stage else { return None };
        if let Some(place) = stage.pieces.get_mut(slot) {
            *place = Piece::Done(result);
        }
        if stage.pieces.iter().any(|piece| !matches!(piece, Piece::Done(_))) {
            return None;
        }
        // Nobody else holds the sources: a piece lets go of them before it is finished.
        let sources = Arc::into_inner(std::mem::take(&mut stage.sources)).unwrap_or_default();
        let pieces = std::mem::take(&mut stage.pieces).into_iter();
        let results = pieces.filter_map(|piece| if let Piece::Done(result) = piece { Some(result) } else { None });
        let (stage, unneeded) = stage.then.apply(sources, results.collect());
        self.stage = stage;
        Some(unneeded)
    }

    /// `rank`'s buffers, once.
    pub(crate) fn collect(&mut self, rank: usize) -> Option<Exchanged> {
        let Stage::Done(results) = &mut self.stage else { return None };
        let result = results.get_mut(rank)?.take()?;
        self.owed -= 1;
        Some(result)
    }

    /// A rank gives up its buffers; they stay until the others have theirs.
    pub(crate) fn drop_ticket(&mut self) {
        self.owed -= 1;
    }

    /// Whether nobody wants anything of this call any more.
    pub(crate) fn is_over(&self) -> bool {
        self.owed == 0
    }
}

/// What is to be done once every rank has come.
fn begin(deposits: Vec<Deposit>) -> Stage {
    let world = deposits.len();
    let Some(Fingerprint { operation, count, .. }) = deposits.first().map(|first| first.fingerprint.clone()) else {
        return Stage::Done(Vec::new());
    };
    let (mut sent, received): (Vec<_>, Vec<_>) =
        deposits.into_iter().map(|Deposit { buffers: Exchanged { sent, received }, .. }| (sent, received)).unzip();
    let (then, pieces) = match operation {
        Operation::Barrier => {
            return Stage::Done(
                sent.into_iter().zip(received).map(|(s, r)| Some(Exchanged { sent: s, received: r })).collect(),
            );
        }
        Operation::AllGather => {
            (Then::Exchange, received.into_iter().map(|into| Piece::Waiting(Task::Concatenate, into)).collect())
        }
        Operation::ReduceScatter => {
            let part = |(rank, into): (usize, HostBuffer)| {
                let range = rank * into.len()..(rank + 1) * into.len();
                Piece::Waiting(Task::Sum(range), into)
            };
            (Then::Exchange, received.into_iter().enumerate().map(part).collect())
        }
        Operation::AllReduce => {
            let parts = if count < WORTH_SHARING { 1 } else { world };
            let part = |number| {
                Piece::Waiting(Task::Part(count * number / parts..count * (number + 1) / parts), HostBuffer::default())
            };
            (Then::Spread, (0..parts).map(part).collect())
        }
        Operation::Broadcast { root } => {
            let source = sent.get_mut(root).map(HostBuffer::take).unwrap_or_default();
            let piece = |(rank, into)| match rank == root {
                true => Piece::Done(HostBuffer::default()),
                false => Piece::Waiting(Task::Concatenate, into),
            };
            let pieces = sent.drain(..).enumerate().map(piece).collect();
            sent.push(source);
            (Then::Root(root), pieces)
        }
    };
    Stage::Working(Pieces { sources: Arc::new(sent), pieces, then })
}

impl Then {
    /// The next stage, and the buffers that it does not need.
    fn apply(self, sources: Vec<HostBuffer>, results: Vec<HostBuffer>) -> (Stage, Vec<HostBuffer>) {
        let alone = |received| Some(Exchanged { sent: HostBuffer::default(), received });
        match self {
            Then::Exchange => {
                let both = sources.into_iter().zip(results);
                (Stage::Done(both.map(|(sent, received)| Some(Exchanged { sent, received })).collect()), Vec::new())
            }
            Then::Spread => {
                let pieces = sources.into_iter().map(|into| Piece::Waiting(Task::Concatenate, into)).collect();
                (Stage::Working(Pieces { sources: Arc::new(results), pieces, then: Then::Keep }), Vec::new())
            }
            Then::Keep => (Stage::Done(results.into_iter().map(alone).collect()), sources),
            Then::Root(root) => {
                let mut results: Vec<_> = results.into_iter().map(alone).collect();
                if let (Some(result), Some(source)) = (results.get_mut(root), sources.into_iter().next()) {
                    *result = alone(source);
                }
                (Stage::Done(results), Vec::new())
            }
        }
    }
}
