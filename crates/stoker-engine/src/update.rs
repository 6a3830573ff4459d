//! A unit's update: in place where the host can address the shard, else through buffers; inline or on a thread.

use crate::cast;
use crate::unit::ShardRegions;
use crate::workers::Workers;
use crate::{Error, Result};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stoker_core::error::panic_text;
use stoker_core::{
    Completion, DType, HostBuffer, Optimizer, Region, RegionSpec, Segment, ShardUpdate, StepContext, Ticket, ValuesMut,
};

/// All that an update needs; it takes the shard with it.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) unit: String,
    pub(crate) regions: ShardRegions,
    pub(crate) segments: Vec<Segment>,
    pub(crate) context: StepContext,
    pub(crate) optimizer: Arc<dyn Optimizer>,
}

impl Job {
    /// Runs it on `workers`, whose meter it moves.
    pub(crate) fn run_on(self, workers: &Workers) -> Result<ShardRegions> {
        let bytes = self.bytes();
        let _span = tracing::trace_span!("update", unit = %self.unit, bytes).entered();
        let begun = Instant::now();
        let regions = workers.run(|| self.run())?;
        workers.meter.add(bytes, begun.elapsed());
        Ok(regions)
    }

    /// What the rule reads and writes: parameters and state both, the gradient one, the rounded parameters the other.
    fn bytes(&self) -> u64 {
        let size = |region: &dyn Region| region.spec().dtype.size();
        let ShardRegions { parameters, master, gradient, state, .. } = &self.regions;
        let updated = master.as_ref().unwrap_or(parameters);
        let rounded = master.as_ref().map_or(0, |_| size(parameters.as_ref()));
        let state: usize = state.iter().map(|region| size(region.as_ref())).sum();
        let gradient = gradient.as_ref().map_or(0, |region| size(region.as_ref()));
        let elements: usize = self.segments.iter().map(|segment| segment.range.len()).sum();
        (elements * (2 * size(updated.as_ref()) + 2 * state + gradient + rounded)) as u64
    }

    /// Updates the shard and hands it back.
    fn run(mut self) -> Result<ShardRegions> {
        let ShardRegions { parameters, master, gradient, state, .. } = &mut self.regions;
        let Some(gradient) = gradient else {
            return Err(Error::Stopped(format!("unit `{}` is frozen and was to be updated", self.unit)));
        };
        let mut gradient = Access::open(gradient.as_mut())?;
        let mut state = state.iter_mut().map(|region| Access::open(region.as_mut())).collect::<Result<Vec<_>>>()?;
        let (mut updated, mut rounded) = match master {
            Some(master) => (Access::open(master.as_mut())?, Some(Access::open(parameters.as_mut())?)),
            None => (Access::open(parameters.as_mut())?, None),
        };
        let gradient = gradient.values()?;
        let shard = ShardUpdate {
            parameters: updated.memory().as_mut_slice(),
            gradient: gradient.look(),
            state: state.iter_mut().map(Access::values).collect::<Result<Vec<_>>>()?,
            rounded: rounded.as_mut().map(Access::values).transpose()?,
            segments: &self.segments,
        };
        let optimizer = &self.optimizer;
        let context = &self.context;
        match catch_unwind(AssertUnwindSafe(|| optimizer.update(shard, context))) {
            Ok(result) => result?,
            Err(panic) => return Err(Error::UpdatePanicked { unit: self.unit, reason: panic_text(panic.as_ref()) }),
        }
        for access in state.into_iter().chain([updated]).chain(rounded) {
            access.store()?;
        }
        Ok(self.regions)
    }
}

/// A region's elements in host memory: its own memory, or a copy of them that is stored back.
enum Access<'a> {
    Own(&'a mut HostBuffer),
    Copy(&'a mut dyn Region, HostBuffer),
}

impl<'a> Access<'a> {
    fn open(region: &'a mut dyn Region) -> Result<Self> {
        let RegionSpec { dtype, elements, .. } = *region.spec();
        if region.host().is_none() || dtype == DType::F64 {
            let buffer = region.read(0, HostBuffer::zeros_of(dtype, elements))?.wait()?;
            // Optimizers know no f64.
            let buffer = if dtype == DType::F64 { cast::widened(&buffer) } else { buffer };
            return Ok(Self::Copy(region, buffer));
        }
        match region.host() {
            Some(memory) => Ok(Self::Own(memory)),
            None => Err(Error::Stopped("a region was host-addressable and is no more".to_owned())),
        }
    }

    fn memory(&mut self) -> &mut HostBuffer {
        match self {
            Self::Own(memory) => memory,
            Self::Copy(_, buffer) => buffer,
        }
    }

    fn values(&mut self) -> Result<ValuesMut<'_>> {
        ValuesMut::of(self.memory()).ok_or_else(|| Error::Stopped("a shard was kept in f64".to_owned()))
    }

    fn store(self) -> Result<()> {
        let Self::Copy(region, buffer) = self else { return Ok(()) };
        if region.spec().dtype == buffer.dtype() {
            region.write(0, buffer)?.wait()?;
            return Ok(());
        }
        Ok(cast::store(buffer.as_slice(), region, 0)?)
    }
}

type Answer = Result<ShardRegions>;

/// The thread that updates units in the background, first those that the next forward wants first.
#[derive(Debug)]
pub(crate) struct Updater {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
    timeout: Duration,
}

impl Updater {
    pub(crate) fn start(rank: usize, workers: Arc<Workers>, timeout: Duration) -> Result<Self> {
        let queue = Arc::new(Queue::default());
        let name = format!("update-{rank}");
        let waiting = queue.clone();
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                let queue = EndOfThread(waiting);
                while let Some(Waiting { job, answer, done, .. }) = queue.0.next() {
                    // A receiver that is gone has given up the unit.
                    let _ = answer.send(job.run_on(&workers));
                    done.store(true, Ordering::Release);
                }
            })
            .map_err(|source| Error::Thread { name, source })?;
        Ok(Self { queue, thread: Some(thread), timeout })
    }

    /// `turn`: of jobs that wait, the one with the lowest is next.
    pub(crate) fn submit(&self, job: Job, turn: usize) -> Ticket<ShardRegions> {
        let (sender, answer) = channel();
        let unit = job.unit.clone();
        let done = Arc::new(AtomicBool::new(false));
        self.queue.add(Waiting { turn, job, answer: sender, done: done.clone() });
        Ticket::pending(Pending { unit, answer, done, timeout: self.timeout })
    }
}

impl Drop for Updater {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // Updates catch their panics, so the thread ends well once the queue is closed.
            let _ = thread.join();
        }
    }
}

/// A job and where its answer goes.
#[derive(Debug)]
struct Waiting {
    turn: usize,
    job: Job,
    answer: Sender<Answer>,
    done: Arc<AtomicBool>,
}

/// Jobs that wait for the thread.
#[derive(Debug, Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Jobs {
    waiting: Vec<Waiting>,
    closed: bool,
}

impl Queue {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        // Nothing panics while the lock is held.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job that nobody will do is dropped, and its answer with it: who waits for that is told.
    fn add(&self, job: Waiting) {
        let mut jobs = self.jobs();
        if !jobs.closed {
            jobs.waiting.push(job);
            self.changed.notify_one();
        }
    }

    /// What waits is still done.
    fn close(&self) {
        self.jobs().closed = true;
        self.changed.notify_one();
    }

    /// The job whose turn it is; waits for one, until the queue is closed and empty.
    fn next(&self) -> Option<Waiting> {
        let mut jobs = self.jobs();
        loop {
            let first = jobs.waiting.iter().enumerate().min_by_key(|(_, job)| job.turn).map(|(at, _)| at);
            match first {
                Some(at) => return Some(jobs.waiting.remove(at)),
                None if jobs.closed => return None,
                None => jobs = self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// The thread has ended, whyever: nothing waits for it any longer.
struct EndOfThread(Arc<Queue>);

impl Drop for EndOfThread {
    fn drop(&mut self) {
        let mut jobs = self.0.jobs();
        jobs.closed = true;
        jobs.waiting.clear();
    }
}

struct Pending {
    unit: String,
    answer: Receiver<Answer>,
    /// Whether the answer was sent; a receiver cannot be peeked at.
    done: Arc<AtomicBool>,
    timeout: Duration,
}

impl Completion<ShardRegions> for Pending {
    fn wait(self: Box<Self>) -> stoker_core::Result<ShardRegions> {
        match self.answer.recv_timeout(self.timeout) {
            Ok(Ok(regions)) => Ok(regions),
            Ok(Err(Error::Core(error))) => Err(error),
            Ok(Err(error)) => Err(stoker_core::Error::Plugin {
                plugin: "optimizer".to_owned(),
                doing: format!("updating unit `{}`", self.unit),
                source: error.into(),
            }),
            Err(RecvTimeoutError::Timeout) => Err(stoker_core::Error::Timeout {
                what: format!("the update of unit `{}`", self.unit),
                seconds: self.timeout.as_secs_f64(),
                late: vec!["the update thread of this rank".to_owned()],
            }),
            Err(RecvTimeoutError::Disconnected) => Err(stoker_core::Error::Timeout {
                what: format!("the update of unit `{}`", self.unit),
                seconds: 0.0,
                late: vec!["the update thread of this rank, which has ended".to_owned()],
            }),
        }
    }

    fn is_ready(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Allotment;

    #[derive(Debug)]
    struct NoOptimizer;

    impl Optimizer for NoOptimizer {
        fn state_slots(&self) -> &'static [stoker_core::StateSlot] {
            &[]
        }

        fn granularity(&self) -> stoker_core::Granularity {
            stoker_core::Granularity::Element
        }

        fn update(&self, _shard: ShardUpdate<'_>, _context: &StepContext) -> stoker_core::Result<()> {
            Ok(())
        }
    }

    fn waiting(unit: &str, turn: usize) -> (Waiting, Receiver<Answer>) {
        let spec =
            RegionSpec { unit: unit.to_owned(), role: stoker_core::Role::Parameters, dtype: DType::F32, elements: 1 };
        let taken = stoker_core::offload::Allowance::default().take(4, 4).unwrap();
        let region = stoker_core::offload::MemoryRegion::new(spec, taken, stoker_core::Place::Host, "").unwrap();
        let regions = ShardRegions {
            parameters: Box::new(region),
            master: None,
            gradient: None,
            state: Vec::new(),
            _allotments: Vec::<Allotment>::new(),
        };
        let job = Job {
            unit: unit.to_owned(),
            regions,
            segments: Vec::new(),
            context: StepContext::scaled(1.0),
            optimizer: Arc::new(NoOptimizer),
        };
        let (answer, receiver) = channel();
        (Waiting { turn, job, answer, done: Arc::default() }, receiver)
    }

    #[test]
    fn jobs_have_their_turns_and_what_waits_is_done_after_the_end() {
        let queue = Queue::default();
        for (unit, turn) in [("late", 7), ("first", 1), ("none", usize::MAX), ("second", 1)] {
            queue.add(waiting(unit, turn).0);
        }
        queue.close();
        let order: Vec<String> = std::iter::from_fn(|| queue.next()).map(|waiting| waiting.job.unit).collect();
        assert_eq!(order, ["first", "second", "late", "none"]);
    }

    #[test]
    fn a_thread_that_has_ended_leaves_nobody_waiting() {
        let queue = Arc::new(Queue::default());
        let (before, first) = waiting("before", 0);
        queue.add(before);
        drop(EndOfThread(queue.clone()));
        let (after, second) = waiting("after", 0);
        queue.add(after);
        assert!(first.recv().is_err() && second.recv().is_err());
    }
}
