//! One rank's end of the group.

use crate::call::Deposit;
use crate::fingerprint::{Fingerprint, Operation};
use crate::hub::Hub;
use std::sync::Arc;
use std::time::Duration;
use stoker_core::communicator::Exchanged;
use stoker_core::registry::{Build, Ends, Group, Plugin};
use stoker_core::{Communicator, Completion, Error, HostBuffer, Options, Result, Ticket, inventory};

/// A rank of a [`group`]. See the crate's documentation.
#[derive(Debug)]
pub struct ThreadCommunicator {
    hub: Arc<Hub>,
    rank: usize,
}

/// The ends of a new group of `world` ranks, in their order.
///
/// Dropping an end tells the others that its rank is gone; collectives that it has called are still completed.
pub fn group(world: usize, timeout: Duration) -> Ends {
    let hub = Arc::new(Hub::new(world, timeout));
    (0..world).map(|rank| Arc::new(ThreadCommunicator { hub: hub.clone(), rank }) as Arc<dyn Communicator>).collect()
}

impl ThreadCommunicator {
    fn start<T: 'static>(
        &self,
        fingerprint: Fingerprint,
        buffers: Exchanged,
        result: fn(Exchanged) -> T,
    ) -> Result<Ticket<T>> {
        let number = self.hub.deposit(self.rank, Deposit { fingerprint: fingerprint.clone(), buffers })?;
        Ok(Ticket::pending(Pending { hub: self.hub.clone(), rank: self.rank, number, fingerprint, result, open: true }))
    }

    /// Whether there is nobody to meet: then a call is done on the spot, without a lock.
    fn is_alone(&self) -> Result<bool> {
        let alone = self.hub.world == 1;
        if alone {
            self.hub.check(self.rank)?;
        }
        Ok(alone)
    }
}

impl Communicator for ThreadCommunicator {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.hub.world
    }

    fn all_gather(&self, call: &str, shard: HostBuffer, full: HostBuffer) -> Result<Ticket<Exchanged>> {
        let fingerprint = Fingerprint::new(Operation::AllGather, call, &shard);
        fingerprint.check_lengths(&shard, &full, self.hub.world)?;
        let buffers = Exchanged { sent: shard, received: full };
        if self.is_alone()? {
            return Ok(Ticket::ready(copied(buffers)));
        }
        self.start(fingerprint, buffers, |buffers| buffers)
    }

    fn reduce_scatter(&self, call: &str, full: HostBuffer, shard: HostBuffer) -> Result<Ticket<Exchanged>> {
        let fingerprint = Fingerprint::new(Operation::ReduceScatter, call, &full);
        fingerprint.check_lengths(&shard, &full, self.hub.world)?;
        let buffers = Exchanged { sent: full, received: shard };
        if self.is_alone()? {
            return Ok(Ticket::ready(copied(buffers)));
        }
        self.start(fingerprint, buffers, |buffers| buffers)
    }

    fn all_reduce(&self, call: &str, buffer: HostBuffer) -> Result<Ticket<HostBuffer>> {
        if self.is_alone()? {
            return Ok(Ticket::ready(buffer));
        }
        let fingerprint = Fingerprint::new(Operation::AllReduce, call, &buffer);
        self.start(fingerprint, Exchanged { sent: buffer, received: HostBuffer::default() }, |buffers| buffers.received)
    }

    fn broadcast(&self, call: &str, root: usize, buffer: HostBuffer) -> Result<Ticket<HostBuffer>> {
        let fingerprint = Fingerprint::new(Operation::Broadcast { root }, call, &buffer);
        if root >= self.hub.world {
            let (found, wanted) = (root as u64, (self.hub.world as u64).saturating_sub(1));
            return Err(Error::OutOfRange { what: format!("the root of {fingerprint}"), found, wanted });
        }
        if self.is_alone()? {
            return Ok(Ticket::ready(buffer));
        }
        self.start(fingerprint, Exchanged { sent: buffer, received: HostBuffer::default() }, |buffers| buffers.received)
    }

    fn barrier(&self, call: &str) -> Result<Ticket<()>> {
        if self.is_alone()? {
            return Ok(Ticket::ready(()));
        }
        let buffers = Exchanged { sent: HostBuffer::default(), received: HostBuffer::default() };
        self.start(Fingerprint::new(Operation::Barrier, call, &buffers.sent), buffers, |_| ())
    }

    fn abort(&self, reason: &str) {
        self.hub.abort(self.rank, reason);
    }
}

impl Drop for ThreadCommunicator {
    fn drop(&mut self) {
        let why = if std::thread::panicking() { "its thread panicked" } else { "it left the group" };
        self.hub.leave(self.rank, why);
    }
}

fn copied(mut buffers: Exchanged) -> Exchanged {
    let Exchanged { sent, received } = &mut buffers;
    received.copy_elements(0, sent, 0..sent.len());
    buffers
}

/// A call that has been made.
struct Pending<T> {
    hub: Arc<Hub>,
    rank: usize,
    number: u64,
    fingerprint: Fingerprint,
    result: fn(Exchanged) -> T,
    /// Whether the buffers were not asked for.
    open: bool,
}

impl<T> Completion<T> for Pending<T> {
    fn wait(mut self: Box<Self>) -> Result<T> {
        self.open = false;
        self.hub.wait(self.number, self.rank, &self.fingerprint).map(self.result)
    }

    fn is_ready(&self) -> bool {
        self.hub.is_ready(self.number)
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        if self.open {
            self.hub.drop_ticket(self.number);
        }
    }
}

inventory::submit! {
    Plugin {
        name: "threads",
        description: "each rank is a thread of one process",
        options: &[],
        build: Build::Communicator(build),
    }
}

fn build(_options: &Options, wanted: &Group) -> Result<Ends> {
    if wanted.world == 0 {
        return Err(Error::OutOfRange { what: "the number of ranks of a group".to_owned(), found: 0, wanted: 1 });
    }
    Ok(group(wanted.world, wanted.timeout))
}
