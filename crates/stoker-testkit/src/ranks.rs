//! Ranks as threads of a test.

use std::sync::Arc;
use std::thread;
use stoker_core::Communicator;

/// Runs `body` once for every end, each on a thread named after its rank, and gives the results in the order of the
/// ranks.
///
/// An end is dropped with its thread's body. A rank that panics makes the whole panic, once all threads are joined.
pub fn run<T: Send>(ends: Vec<Arc<dyn Communicator>>, body: impl Fn(Arc<dyn Communicator>) -> T + Sync) -> Vec<T> {
    let body = &body;
    thread::scope(|scope| {
        let spawn = |end: Arc<dyn Communicator>| {
            let name = format!("rank-{}", end.rank());
            thread::Builder::new().name(name).spawn_scoped(scope, move || body(end)).expect("a thread for a rank")
        };
        let threads: Vec<_> = ends.into_iter().map(spawn).collect();
        let results: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        results.into_iter().map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}
