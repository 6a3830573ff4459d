//! Communicators that fail or dawdle.

use super::{Countdown, Delays, Gate};
use std::sync::Arc;
use stoker_core::communicator::Exchanged;
use stoker_core::{Communicator, Error, HostBuffer, Result, Ticket};

/// A collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collective {
    /// [`Communicator::all_gather`]
    AllGather,
    /// [`Communicator::reduce_scatter`]
    ReduceScatter,
    /// [`Communicator::all_reduce`]
    AllReduce,
    /// [`Communicator::broadcast`]
    Broadcast,
    /// [`Communicator::barrier`]
    Barrier,
}

/// What a rank does instead of its call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Returns this as an [`Error::Plugin`]; the others are not told.
    Fail(String),
    /// Aborts the group with this reason.
    Abort(String),
    /// Panics with this text.
    Panic(String),
    /// Waits at the gate, then returns an error: to the others it is silent.
    Silent(Gate),
}

/// Makes the calls of another communicator, but for one.
#[derive(Debug)]
pub struct FaultyCommunicator {
    inner: Arc<dyn Communicator>,
    kind: Option<Collective>,
    countdown: Countdown,
    fault: Fault,
}

impl FaultyCommunicator {
    /// Has `fault` in call `at`, from 0, of this `kind`; of any kind if there is none.
    pub fn new(inner: Arc<dyn Communicator>, kind: impl Into<Option<Collective>>, at: u64, fault: Fault) -> Self {
        Self { inner, kind: kind.into(), countdown: Countdown::new(at), fault }
    }

    fn meet(&self, kind: Collective, call: &str) -> Result<()> {
        if self.kind.is_some_and(|wanted| wanted != kind) || !self.countdown.is_now() {
            return Ok(());
        }
        let error = |why: &str| Error::Plugin {
            plugin: "faulty communicator".to_owned(),
            doing: format!("{kind:?} `{call}`: {why}"),
            source: why.into(),
        };
        match &self.fault {
            Fault::Fail(why) => Err(error(why)),
            Fault::Panic(text) => panic!("{text}"),
            Fault::Abort(reason) => {
                self.inner.abort(reason);
                Err(Error::RankLost { rank: self.rank(), reason: reason.clone() })
            }
            Fault::Silent(gate) => {
                gate.pass();
                Err(error("was silent until the test let it go"))
            }
        }
    }
}

impl Communicator for FaultyCommunicator {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn world(&self) -> usize {
        self.inner.world()
    }

    fn all_gather(&self, call: &str, shard: HostBuffer, full: HostBuffer) -> Result<Ticket<Exchanged>> {
        self.meet(Collective::AllGather, call)?;
        self.inner.all_gather(call, shard, full)
    }

    fn reduce_scatter(&self, call: &str, full: HostBuffer, shard: HostBuffer) -> Result<Ticket<Exchanged>> {
        self.meet(Collective::ReduceScatter, call)?;
        self.inner.reduce_scatter(call, full, shard)
    }

    fn all_reduce(&self, call: &str, buffer: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.meet(Collective::AllReduce, call)?;
        self.inner.all_reduce(call, buffer)
    }

    fn broadcast(&self, call: &str, root: usize, buffer: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.meet(Collective::Broadcast, call)?;
        self.inner.broadcast(call, root, buffer)
    }

    fn barrier(&self, call: &str) -> Result<Ticket<()>> {
        self.meet(Collective::Barrier, call)?;
        self.inner.barrier(call)
    }

    fn abort(&self, reason: &str) {
        self.inner.abort(reason);
    }
}

/// Makes the calls of another communicator and takes its time: yields the processor a number of times that looks random
/// before each call and each wait, and says of a ticket that it is not ready the first few times.
#[derive(Debug)]
pub struct Delayed {
    inner: Arc<dyn Communicator>,
    delays: Delays,
}

impl Delayed {
    /// Delays all calls; how much follows from `seed` and the rank.
    pub fn new(inner: Arc<dyn Communicator>, seed: u64) -> Self {
        let delays = Delays::new(seed ^ (inner.rank() as u64) << 32);
        Self { inner, delays }
    }

    /// Delays one in so many `calls`, at random, and that one for longer.
    pub fn one_in(self, calls: u64) -> Self {
        Self { delays: self.delays.one_in(calls), ..self }
    }
}

impl Communicator for Delayed {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn world(&self) -> usize {
        self.inner.world()
    }

    fn all_gather(&self, call: &str, shard: HostBuffer, full: HostBuffer) -> Result<Ticket<Exchanged>> {
        self.delays.pass(|| self.inner.all_gather(call, shard, full))
    }

    fn reduce_scatter(&self, call: &str, full: HostBuffer, shard: HostBuffer) -> Result<Ticket<Exchanged>> {
        self.delays.pass(|| self.inner.reduce_scatter(call, full, shard))
    }

    fn all_reduce(&self, call: &str, buffer: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.delays.pass(|| self.inner.all_reduce(call, buffer))
    }

    fn broadcast(&self, call: &str, root: usize, buffer: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.delays.pass(|| self.inner.broadcast(call, root, buffer))
    }

    fn barrier(&self, call: &str) -> Result<Ticket<()>> {
        self.delays.pass(|| self.inner.barrier(call))
    }

    fn abort(&self, reason: &str) {
        self.inner.abort(reason);
    }
}
