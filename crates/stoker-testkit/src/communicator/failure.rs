//! What a communicator tells the others when a rank does something else, or nothing.

use super::{IMPATIENT, Make, PATIENT, done, group, settle};
use crate::ranks;
use std::mem::discriminant;
use std::sync::{Barrier, Mutex, mpsc};
use stoker_core::{Communicator, DType, Error, HostBuffer, Result};

/// A call that one rank makes otherwise than the others.
type Odd = fn(&dyn Communicator, bool) -> Result<()>;

fn reduce(end: &dyn Communicator, name: &str, dtype: DType, count: usize) -> Result<()> {
    settle(end.all_reduce(name, HostBuffer::zeros_of(dtype, count))).map(drop)
}

/// The other operations have to fail as well, and to tell the same.
#[track_caller]
fn assert_unusable(end: &dyn Communicator, first: &Error) {
    let world = end.world();
    let zeros = HostBuffer::zeros::<f32>;
    let later = [
        ("all_gather", settle(end.all_gather("later", zeros(1), zeros(world))).map(drop)),
        ("reduce_scatter", settle(end.reduce_scatter("later", zeros(world), zeros(1))).map(drop)),
        ("all_reduce", settle(end.all_reduce("later", zeros(1))).map(drop)),
        ("broadcast", settle(end.broadcast("later", 0, zeros(1))).map(drop)),
        ("barrier", settle(end.barrier("later"))),
    ];
    for (what, result) in later {
        let error = result.expect_err("a group is unusable after its first error");
        let same = discriminant(&error) == discriminant(first);
        assert!(same, "{what} after an error gives `{error}`, the story was `{first}`");
    }
}

/// Name, type, count, operation, root: all ranks get an error that quotes both calls.
pub fn disagreement_is_told_to_all(make: &impl Make) {
    let cases: [(&str, [&str; 2], Odd); 7] = [
        ("name", ["left", "right"], |end, odd| reduce(end, if odd { "left" } else { "right" }, DType::F32, 7)),
        ("type", ["f32", "f64"], |end, odd| reduce(end, "c", if odd { DType::F32 } else { DType::F64 }, 7)),
        // Of one size: the counts and the bytes are the same.
        ("narrow type", ["f16", "bf16"], |end, odd| reduce(end, "c", if odd { DType::F16 } else { DType::BF16 }, 7)),
        ("count", ["701", "702"], |end, odd| reduce(end, "c", DType::F32, if odd { 701 } else { 702 })),
        ("operation", ["all_reduce", "barrier"], |end, odd| match odd {
            true => reduce(end, "c", DType::F32, 0),
            false => settle(end.barrier("c")),
        }),
        ("buffers", ["all_gather", "reduce_scatter"], |end, odd| {
            let zeros = HostBuffer::zeros::<f32>;
            let (one, all) = (zeros(4), zeros(4 * end.world()));
            if odd { settle(end.all_gather("c", one, all)) } else { settle(end.reduce_scatter("c", all, one)) }
                .map(drop)
        }),
        ("root", ["0", "1"], |end, odd| {
            settle(end.broadcast("c", usize::from(!odd), HostBuffer::zeros::<f32>(7))).map(drop)
        }),
    ];
    for (world, odd_one) in [(2, 0), (2, 1), (3, 0), (4, 2)] {
        for (what, quotes, call) in &cases {
            ranks::run(group(make, world, PATIENT), |end| {
                done(end.barrier("begin"));
                let case = format!("another {what} at rank {odd_one} of {world}, seen by rank {}", end.rank());
                let Err(error) = call(end.as_ref(), end.rank() == odd_one) else {
                    panic!("{case}: goes unnoticed");
                };
                let Error::Disagree { rank, other, mine, theirs, before, .. } = &error else {
                    panic!("{case}: {error}")
                };
                assert!(rank != other && [*rank, *other].contains(&odd_one), "{case}: names the ranks: {error}");
                assert_ne!(*other, end.rank(), "{case}: tells it from its own side: {error}");
                assert_ne!(mine, theirs, "{case}: quotes both calls: {error}");
                let (odd, even) = if *rank == odd_one { (mine, theirs) } else { (theirs, mine) };
                // To remember the calls before it is a courtesy; to remember others is not.
                assert!(
                    before.is_empty() || before.len() == 1 && before[0].contains("begin"),
                    "{case}: only `begin` comes before it: {error}"
                );
                assert!(odd.contains(quotes[0]) && even.contains(quotes[1]), "{case}: quotes both calls: {error}");
                assert_unusable(end.as_ref(), &error);
            });
        }
    }
}

/// A rank that aborts, or whose end is dropped: the others' waits end with its name, and its reason if it gave one.
pub fn lost_ranks_are_named(make: &impl Make) {
    for (world, lost) in [(2, 0), (2, 1), (3, 1), (5, 4)] {
        for aborts in [true, false] {
            ranks::run(group(make, world, PATIENT), |end| {
                done(end.barrier("begin"));
                if end.rank() == lost {
                    if aborts {
                        end.abort("the furnace is out");
                        assert!(settle(end.barrier("later")).is_err(), "a rank that gave up makes no more calls");
                    }
                    return;
                }
                let case = format!("rank {lost} of {world} is lost (aborts: {aborts}), seen by rank {}", end.rank());
                let Err(error) = reduce(end.as_ref(), "c", DType::F32, 7) else { panic!("{case}: goes unnoticed") };
                let Error::RankLost { rank, reason } = &error else { panic!("{case}: {error}") };
                assert_eq!(*rank, lost, "{case}: {error}");
                assert!(!aborts || reason.contains("the furnace is out"), "{case}: gives its words: {error}");
                assert_unusable(end.as_ref(), &error);
            });
        }
    }
}

/// A rank that is there and does not call: the others' waits end within the timeout, with its name.
pub fn silent_ranks_are_named(make: &impl Make) {
    for (world, silent) in [(2, 1), (3, 0), (4, 2)] {
        // Everybody else has called before anybody waits: only one rank can be late, however slow the machine.
        let called = Barrier::new(world - 1);
        // The silent rank keeps its end until the others have been told (or have panicked).
        let (told, others) = mpsc::channel::<()>();
        let (told, others) = (Mutex::new(Some(told)), Mutex::new(others));
        let tellers = Barrier::new(world);
        ranks::run(group(make, world, IMPATIENT), |end| {
            let teller = told.lock().unwrap().clone();
            if tellers.wait().is_leader() {
                told.lock().unwrap().take();
            }
            if end.rank() == silent {
                drop(teller);
                // Ends with an error when the last of the others has dropped its end of the channel.
                let _ = others.lock().unwrap().recv();
                return;
            }
            let case = format!("rank {silent} of {world} is silent, seen by rank {}", end.rank());
            let ticket = end.all_reduce("c", HostBuffer::zeros::<f32>(7));
            called.wait();
            let Err(error) = settle(ticket) else { panic!("{case}: goes unnoticed") };
            let Error::Timeout { late, what, .. } = &error else { panic!("{case}: {error}") };
            assert_eq!(late, &[format!("rank {silent}")], "{case}: {error}");
            assert!(what.contains("all_reduce"), "{case}: says what was waited for: {error}");
            assert_unusable(end.as_ref(), &error);
        });
    }
}

/// A rank that leaves after its last collective is not lost, however late the others wait.
pub fn served_ranks_may_leave(make: &impl Make) {
    for world in [2, 4] {
        for round in 0..20 {
            ranks::run(group(make, world, PATIENT), |end| {
                let gather = end.all_reduce("last but one", HostBuffer::from_slice(&[1.0f32]));
                let last = end.barrier("last");
                if end.rank() == round % world {
                    // Drops everything: both calls were made, and that is all that the others need.
                    return;
                }
                assert_eq!(done(gather).as_slice::<f32>(), [world as f32]);
                done(last);
            });
        }
    }
}
