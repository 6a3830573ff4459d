//! The rank whose unit is being called on this thread: for modules that talk to the other ranks from inside a call.

use crate::shared::Shared;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static RANKS: RefCell<Vec<Arc<Shared>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `call` as a call of a unit of `shared`.
pub(crate) fn within<T>(shared: &Arc<Shared>, call: impl FnOnce() -> T) -> T {
    /// Leaves the rank also when the call unwinds.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            RANKS.with_borrow_mut(Vec::pop);
        }
    }
    RANKS.with_borrow_mut(|ranks| ranks.push(shared.clone()));
    let _leave = Leave;
    call()
}

/// The rank, if a unit of one is being called.
pub(crate) fn current() -> Option<Arc<Shared>> {
    RANKS.with_borrow(|ranks| ranks.last().cloned())
}
