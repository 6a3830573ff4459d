//! Something that waits until a test says go.

use std::sync::{Arc, Condvar, Mutex};

/// A closed gate, and what opens it.
pub fn gate() -> (Opener, Gate) {
    let gate = Gate::default();
    (Opener(gate.clone()), gate)
}

/// Whoever comes here waits until the gate is open.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    open: bool,
    waiting: usize,
}

impl Gate {
    /// Waits until the gate is open.
    pub fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.waiting += 1;
        changed.notify_all();
        while !state.open {
            state = changed.wait(state).unwrap();
        }
        state.waiting -= 1;
    }
}

/// Opens its gate when it is told to, or dropped: a test that panics leaves nobody behind.
#[derive(Debug)]
pub struct Opener(Gate);

impl Opener {
    /// Opens the gate, for good.
    pub fn open(self) {}

    /// Waits until somebody waits at the gate.
    pub fn wait_for_a_visitor(&self) {
        let (state, changed) = &*self.0.0;
        let mut state = state.lock().unwrap();
        while state.waiting == 0 {
            state = changed.wait(state).unwrap();
        }
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        let (state, changed) = &*self.0.0;
        // It may be dropped while its thread panics: no second panic.
        if let Ok(mut state) = state.lock() {
            state.open = true;
        }
        changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn holds_until_it_is_opened() {
        let (opener, gate) = gate();
        let visitor = thread::Builder::new().name("visitor".into()).spawn(move || gate.pass()).unwrap();
        opener.wait_for_a_visitor();
        assert!(!visitor.is_finished());
        opener.open();
        visitor.join().unwrap();
    }
}
