//! Where the ranks meet.

use crate::call::{Call, Deposit};
use crate::fingerprint::Fingerprint;
use crate::story::Story;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use stoker_core::communicator::Exchanged;
use stoker_core::{Error, Result};

/// Calls that are told before a disagreement.
const AGREED: usize = 8;

/// What all ranks of a group share. See [Note: Rendezvous].
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) world: usize,
    timeout: Duration,
    /// Set once, under the lock: the first story is everybody's.
    story: OnceLock<Story>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Calls that each rank has made.
    made: Vec<u64>,
    /// Why a rank will make no more.
    left: Vec<Option<String>>,
    /// Collectives that somebody still wants something of, by their number.
    calls: BTreeMap<u64, Call>,
    /// Names of the last calls that every rank has made, oldest first: for the story of a disagreement.
    agreed: VecDeque<String>,
}

impl State {
    /// The last calls before call `number`, oldest first. Whoever makes that call has made all of these, and so has
    /// whoever made it already, but other ranks may be far behind: what not every rank has made comes after what is
    /// agreed.
    fn before(&self, number: u64) -> Vec<String> {
        let open = self.calls.range(..number).filter_map(|(_, call)| Some(call.waits_for_more()?.short()));
        let all: Vec<_> = self.agreed.iter().cloned().chain(open).collect();
        all.iter().skip(all.len().saturating_sub(AGREED)).cloned().collect()
    }
}

impl Hub {
    pub(crate) fn new(world: usize, timeout: Duration) -> Self {
        let state =
            State { made: vec![0; world], left: vec![None; world], calls: BTreeMap::new(), agreed: VecDeque::new() };
        Self { world, timeout, story: OnceLock::new(), state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock runs foreign code; a state that a panic could have left behind is a whole one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if the group cannot be used any more.
    pub(crate) fn check(&self, rank: usize) -> Result<()> {
        self.story.get().map_or(Ok(()), |story| Err(story.error(rank)))
    }

    /// Ends the group with `story`, if it has not ended before, and gives `rank`'s error. Collectives to which every
    /// rank has come are still completed: a rank that leaves after its last call takes nothing from the others.
    fn fail(&self, state: &mut State, rank: usize, story: Story) -> Error {
        let story = self.story.get_or_init(|| story);
        state.calls.retain(|_, call| call.has_met());
        self.changed.notify_all();
        story.error(rank)
    }

    /// Makes `rank`'s next call and gives its number.
    pub(crate) fn deposit(&self, rank: usize, deposit: Deposit) -> Result<u64> {
        let mut guard = self.lock();
        let state = &mut *guard;
        self.check(rank)?;
        let number = state.made.get(rank).copied().unwrap_or_default();
        let gone = state.left.iter().zip(&state.made).enumerate();
        let gone = gone.filter_map(|(rank, (left, made))| Some((rank, left.clone()?, *made)));
        if let Some((lost, reason, _)) = gone.into_iter().find(|(_, _, made)| *made <= number) {
            return Err(self.fail(state, rank, Story::Lost { rank: lost, reason }));
        }
        let call = state.calls.entry(number).or_insert_with(|| Call::new(self.world));
        if let Some(other) = call.disagreement(&deposit.fingerprint) {
            let calls = [(rank, deposit.fingerprint.to_string()), other];
            let before = state.before(number);
            return Err(self.fail(state, rank, Story::Disagree { number, before, calls }));
        }
        let name = deposit.fingerprint.short();
        if call.deposit(rank, deposit) {
            if state.agreed.len() == AGREED {
                state.agreed.pop_front();
            }
            state.agreed.push_back(name);
            self.changed.notify_all();
        }
        if let Some(made) = state.made.get_mut(rank) {
            *made += 1;
        }
        Ok(number)
    }

    /// Waits until `rank`'s buffers of a collective are ready, and does what of it is left to do.
    pub(crate) fn wait(&self, number: u64, rank: usize, fingerprint: &Fingerprint) -> Result<Exchanged> {
        // A timeout that no clock can hold never ends.
        let deadline = Instant::now().checked_add(self.timeout);
        let mut state = self.lock();
        loop {
            let Some(call) = state.calls.get_mut(&number) else {
                // Only a story takes a call away from a rank that has a ticket of it.
                let reason = || "its call is gone: a fault in communicator `threads`".to_owned();
                return Err(self.check(rank).err().unwrap_or_else(|| Error::RankLost { rank, reason: reason() }));
            };
            if let Some(result) = call.collect(rank) {
                if call.is_over() {
                    state.calls.remove(&number);
                }
                return Ok(result);
            }
            if let Some(work) = call.claim(rank) {
                drop(state);
                let slot = work.slot;
                let result = work.perform();
                state = self.lock();
                if let Some(unneeded) = state.calls.get_mut(&number).and_then(|call| call.finish(slot, result)) {
                    self.changed.notify_all();
                    drop(state);
                    drop(unneeded);
                    state = self.lock();
                }
                continue;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            state = match left {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => {
                    let late = call.late().iter().map(|rank| format!("rank {rank}")).collect();
                    let seconds = self.timeout.as_secs_f64();
                    let story = Story::Late { what: fingerprint.to_string(), seconds, late };
                    return Err(self.fail(&mut state, rank, story));
                }
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// Whether [`wait`](Self::wait) would wait for nobody to come.
    pub(crate) fn is_ready(&self, number: u64) -> bool {
        self.lock().calls.get(&number).is_none_or(Call::has_met)
    }

    /// Some rank will not wait for this collective.
    pub(crate) fn drop_ticket(&self, number: u64) {
        let mut state = self.lock();
        let Some(call) = state.calls.get_mut(&number) else { return };
        call.drop_ticket();
        let over = if call.is_over() { state.calls.remove(&number) } else { None };
        // What memory it holds is given back outside the lock.
        drop(state);
        drop(over);
    }

    /// `rank` gives up.
    pub(crate) fn abort(&self, rank: usize, reason: &str) {
        let mut state = self.lock();
        self.fail(&mut state, rank, Story::Lost { rank, reason: reason.to_owned() });
    }

    /// `rank` makes no more calls: it is lost to those who wait for one.
    pub(crate) fn leave(&self, rank: usize, reason: &str) {
        let mut state = self.lock();
        if let Some(left) = state.left.get_mut(rank) {
            *left = Some(reason.to_owned());
        }
        if state.calls.values().any(|call| !call.has_come(rank)) {
            self.fail(&mut state, rank, Story::Lost { rank, reason: reason.to_owned() });
        }
    }
}
