//! Work that a device does beside the host, in any order that the events between its streams allow.

use crate::memory::Blocks;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stoker_core::HostBuffer;
use stoker_testkit::values;

/// What does its work in the order in which it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Stream {
    Computation,
    /// Copies to the device.
    Incoming,
    /// Copies from the device.
    Outgoing,
}

const ALL: [Stream; 3] = [Stream::Computation, Stream::Incoming, Stream::Outgoing];

/// A moment of a stream: so many operations are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Mark {
    stream: Stream,
    count: usize,
}

/// How fast the streams are, in [`ALL`]'s order: the chance, in quarters, that one goes on with its next operation whenever
/// the host asks for something. 0 does nothing before it must be done, 4 everything as soon as it may be.
pub(crate) type Paces = [u64; 3];

/// A device that is done with everything when the host's call returns.
pub(crate) const AT_ONCE: Paces = [4; 3];

/// What an operation does to the device's memory, when its turn has come; it may hand a buffer back.
type Work = Box<dyn FnOnce(&mut Blocks) -> Option<HostBuffer> + Send>;

enum Operation {
    Work(Work),
    /// Another stream's moment is waited for.
    Wait(Mark),
}

#[derive(Default)]
struct Queue {
    done: usize,
    waiting: VecDeque<Operation>,
}

/// The streams of a device and its memory.
pub(crate) struct Streams {
    queues: [Queue; 3],
    paces: Paces,
    /// Decides what goes on when, as far as that is free.
    seed: u64,
    /// Buffers that operations were done with.
    returned: HashMap<Mark, HostBuffer>,
    pub(crate) blocks: Blocks,
}

pub(crate) type Shared = Arc<Mutex<Streams>>;

pub(crate) fn lock(device: &Shared) -> MutexGuard<'_, Streams> {
    // A test that fails drops what it has while it panics.
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("paces", &self.paces).finish_non_exhaustive()
    }
}

impl Streams {
    pub(crate) fn start(paces: Paces, seed: u64) -> Shared {
        let (queues, returned, blocks) = Default::default();
        Arc::new(Mutex::new(Self { queues, paces, seed, returned, blocks }))
    }

    /// The moment when all that a stream was asked for until now is done.
    pub(crate) fn now(&self, stream: Stream) -> Mark {
        let queue = &self.queues[stream as usize];
        Mark { stream, count: queue.done + queue.waiting.len() }
    }

    /// Asks a stream for `work`, and says when it is done.
    pub(crate) fn ask(
        &mut self,
        stream: Stream,
        work: impl FnOnce(&mut Blocks) -> Option<HostBuffer> + Send + 'static,
    ) -> Mark {
        self.add(stream, Operation::Work(Box::new(work)))
    }

    /// What a stream is asked for from here on comes after `mark`.
    pub(crate) fn order(&mut self, stream: Stream, mark: Mark) {
        self.add(stream, Operation::Wait(mark));
    }

    fn add(&mut self, stream: Stream, operation: Operation) -> Mark {
        self.queues[stream as usize].waiting.push_back(operation);
        let mark = self.now(stream);
        self.go_on();
        mark
    }

    /// Whether a moment has come; streams may have gone on meanwhile.
    pub(crate) fn has_come(&mut self, mark: Mark) -> bool {
        self.go_on();
        self.is_past(mark)
    }

    /// Waits for a moment, and gives the buffer of the operation that ends with it.
    pub(crate) fn finish(&mut self, mark: Mark) -> Option<HostBuffer> {
        self.reach(mark);
        self.returned.remove(&mark)
    }

    fn is_past(&self, mark: Mark) -> bool {
        self.queues[mark.stream as usize].done >= mark.count
    }

    /// Does what must be done for a moment to come, and whatever else the streams do meanwhile.
    fn reach(&mut self, mark: Mark) {
        while !self.is_past(mark) {
            // A stream that cannot go on waits for a moment of another, which was asked for earlier.
            match self.queues[mark.stream as usize].waiting.front() {
                Some(Operation::Wait(before)) if !self.is_past(*before) => self.reach(*before),
                _ => assert!(self.advance(mark.stream), "a moment was waited for that nothing was asked for"),
            }
            self.go_on();
        }
    }

    /// Lets each stream go on as far as it happens to.
    fn go_on(&mut self) {
        loop {
            let (mut moved, first) = (false, values::next(&mut self.seed) % 3);
            for turn in 0..3 {
                let stream = ALL[(first as usize + turn) % 3];
                let goes = values::next(&mut self.seed) % 4 < self.paces[stream as usize];
                moved |= goes && self.advance(stream);
            }
            if !moved {
                return;
            }
        }
    }

    /// Does a stream's next operation, if there is one and it may begin.
    fn advance(&mut self, stream: Stream) -> bool {
        let operation = self.queues[stream as usize].waiting.pop_front();
        match operation {
            None => return false,
            Some(Operation::Wait(mark)) if !self.is_past(mark) => {
                self.queues[stream as usize].waiting.push_front(Operation::Wait(mark));
                return false;
            }
            Some(Operation::Wait(_)) => self.queues[stream as usize].done += 1,
            Some(Operation::Work(work)) => {
                let buffer = work(&mut self.blocks);
                let queue = &mut self.queues[stream as usize];
                queue.done += 1;
                if let Some(buffer) = buffer {
                    self.returned.insert(Mark { stream, count: queue.done }, buffer);
                }
            }
        }
        true
    }
}
