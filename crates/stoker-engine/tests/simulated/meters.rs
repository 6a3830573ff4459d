//! What the engine counts of its work.

use crate::training::Run;
use stoker_engine::Settings;
use stoker_testkit::ranks;

/// Elements that the first step of [`Run::train`] updates: not the frozen unit's, nor the parameter without a gradient.
const UPDATED: u64 = (15 + 3) + 7 + 1 + (16 + 6) + 9;

#[test]
fn what_updates_read_and_write_is_counted_once_they_are_made() {
    for (overlap, update_in_backward) in [(true, false), (true, true), (false, false)] {
        let mut run = Run::new(1, 3);
        run.settings = Settings { overlap, update_in_backward, ..run.settings };
        ranks::run(run.communicators(), |communicator| {
            let mut engine = run.engine(run.plugins(communicator)).unwrap();
            assert_eq!(engine.busy().updates.rate(), None);
            for steps in 1..3 {
                run.train(&mut engine, 0, 0).unwrap();
                engine.flush().unwrap();
                let updates = engine.busy().updates;
                // AdamW in f32: parameters and two moments read and written, the gradient read.
                assert_eq!(updates.bytes, steps * UPDATED * 28, "{run:?}");
                assert!(updates.seconds > 0.0);
            }
        });
    }
}
