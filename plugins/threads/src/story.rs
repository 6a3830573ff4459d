//! Why a group cannot be used any more.

use stoker_core::Error;

/// The first thing that went wrong: every rank tells it, each from its own side.
#[derive(Debug, Clone)]
pub(crate) enum Story {
    Lost { rank: usize, reason: String },
    Late { what: String, seconds: f64, late: Vec<String> },
    Disagree { number: u64, before: Vec<String>, calls: [(usize, String); 2] },
}

impl Story {
    /// The error of `rank`. In a disagreement it is the one that noticed, if it is one of the two.
    pub(crate) fn error(&self, rank: usize) -> Error {
        match self.clone() {
            Story::Lost { rank, reason } => Error::RankLost { rank, reason },
            Story::Late { what, seconds, late } => Error::Timeout { what, seconds, late },
            Story::Disagree { number, before, calls: [mut mine, mut theirs] } => {
                if theirs.0 == rank {
                    std::mem::swap(&mut mine, &mut theirs);
                }
                Error::Disagree { number, before, rank: mine.0, mine: mine.1, other: theirs.0, theirs: theirs.1 }
            }
        }
    }
}
