//! How a walk over a module notices where units begin and end.
//!
//! A `Unit` is transparent in paths: it adds no segment to names, seeds and exports, so visitors cannot see it. Instead
//! every unit announces itself on a stack of the current thread while its module is walked.

use crate::shared::UnitLink;
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

/// Where a unit learns which engine it belongs to.
pub(crate) type Link = Arc<OnceLock<UnitLink>>;

thread_local! {
    static UNITS: RefCell<Vec<Link>> = const { RefCell::new(Vec::new()) };
}

/// Runs `walk` inside the unit of `link`.
pub(crate) fn within<T>(link: &Link, walk: impl FnOnce() -> T) -> T {
    /// Leaves the unit also when the walk unwinds.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            UNITS.with_borrow_mut(Vec::pop);
        }
    }
    UNITS.with_borrow_mut(|units| units.push(link.clone()));
    let _leave = Leave;
    walk()
}

/// The innermost unit that is being walked.
pub(crate) fn current() -> Option<Link> {
    UNITS.with_borrow(|units| units.last().cloned())
}
