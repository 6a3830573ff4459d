//! Threads that compute a rank's updates.
//!
//! A pool of their own, so that updates in the background share no queue with the data loader or with Burn. Kernels cut
//! their work into parts for the pool on whose threads they run; whatever does not is computed on one thread of it.

use crate::{Error, Result};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::thread::JoinHandle;
use stoker_core::Meter;

/// The pool; none if one thread is enough, which is then the one that asks.
#[derive(Debug)]
pub(crate) struct Workers {
    pool: Option<ThreadPool>,
    threads: Vec<JoinHandle<()>>,
    /// Updates that were made.
    pub(crate) meter: Meter,
}

impl Workers {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub(crate) fn start(rank: usize, count: usize) -> Result<Self> {
        let mut workers = Self { pool: None, threads: Vec::new(), meter: Meter::default() };
        if count > 1 {
            let name = |number: usize| format!("update-{rank}.{number}");
            let builder = ThreadPoolBuilder::new().num_threads(count).spawn_handler(|thread| {
                let handle = std::thread::Builder::new().name(name(thread.index())).spawn(|| thread.run())?;
                workers.threads.push(handle);
                Ok(())
            });
            let pool = builder.build().map_err(|error| Error::Thread {
                name: format!("update-{rank}.*"),
                source: std::io::Error::other(error),
            });
            // Those that were started end with the pool that did not come to be.
            workers.pool = Some(pool?);
        }
        Ok(workers)
    }

    /// Runs `work` on the threads.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.pool = None;
        for thread in self.threads.drain(..) {
            // Work is caught where it panics, so the threads end well once the pool is gone.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_by_named_threads_that_end() {
        let workers = Workers::start(3, 2).unwrap();
        let names = || {
            let name = || std::thread::current().name().map(str::to_owned);
            let (one, other) = rayon::join(name, name);
            [one, other, Some(rayon::current_num_threads().to_string())]
        };
        let [one, other, count] = workers.run(names).map(Option::unwrap);
        assert!([one, other].iter().all(|name| name.starts_with("update-3.")));
        assert_eq!(count, "2");
        drop(workers);
        let alone = Workers::start(0, 1).unwrap();
        assert_eq!(alone.run(|| std::thread::current().id()), std::thread::current().id());
    }
}
