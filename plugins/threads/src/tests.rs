//! The suite of all communicators, and what is special to this one.

use super::group;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;
use stoker_core::registry::{self, Group};
use stoker_core::{Communicator, Error, HostBuffer};
use stoker_testkit::communicator;
use stoker_testkit::faults::{Collective, Delayed, Fault, FaultyCommunicator, gate};
use stoker_testkit::{ranks, values};

const PATIENT: Duration = Duration::from_secs(120);

#[test]
fn keeps_every_law() {
    communicator::conforms(group);
}

#[test]
fn keeps_every_law_whatever_the_delays() {
    let delays: [fn(Arc<dyn Communicator>) -> Delayed; 3] =
        [|end| Delayed::new(end, 0), |end| Delayed::new(end, 1), |end| Delayed::new(end, 2).one_in(100)];
    for delay in delays {
        communicator::conforms(|world, timeout| {
            let delayed = |end| Arc::new(delay(end)) as Arc<dyn Communicator>;
            group(world, timeout).into_iter().map(delayed).collect()
        });
    }
}

#[test]
fn is_found_by_its_name() {
    let wanted = Group { world: 3, timeout: PATIENT };
    let ends = registry::communicators("threads", &Default::default(), &wanted).unwrap();
    assert_eq!(ends.iter().map(|end| end.rank()).collect::<Vec<_>>(), [0, 1, 2]);
    let nobody = registry::communicators("threads", &Default::default(), &Group { world: 0, ..wanted });
    assert!(matches!(nobody, Err(Error::OutOfRange { .. })), "{nobody:?}");
}

#[test]
fn one_rank_alone_completes_what_all_have_called() {
    // One thread plays all ranks: only one ticket is waited on, and each in turn.
    let ends = group(3, PATIENT);
    for waiting in 0..3 {
        let call = |end: &Arc<dyn Communicator>| end.all_reduce("r", HostBuffer::from_slice(&[end.rank() as f32]));
        let mut tickets: Vec<_> = ends.iter().map(|end| call(end).unwrap()).collect();
        assert!(tickets[waiting].is_ready(), "all have called");
        assert_eq!(tickets.remove(waiting).wait().unwrap().as_slice::<f32>(), [3.0]);
        for ticket in tickets {
            assert_eq!(ticket.wait().unwrap().as_slice::<f32>(), [3.0]);
        }
    }
}

#[test]
fn buffers_travel_without_a_copy() {
    let ends = group(2, PATIENT);
    let addresses = |buffer: &HostBuffer| buffer.as_slice::<f32>().as_ptr() as usize;
    let brought: Vec<_> = (0..2).map(|_| (HostBuffer::zeros::<f32>(50), HostBuffer::zeros::<f32>(100))).collect();
    let before: Vec<_> = brought.iter().map(|(shard, full)| (addresses(shard), addresses(full))).collect();
    let tickets: Vec<_> =
        ends.iter().zip(brought).map(|(end, (shard, full))| end.all_gather("g", shard, full).unwrap()).collect();
    for (ticket, before) in tickets.into_iter().zip(before) {
        let back = ticket.wait().unwrap();
        assert_eq!((addresses(&back.sent), addresses(&back.received)), before);
    }
}

#[test]
fn what_all_have_called_is_completed_after_a_loss() {
    let mut ends = group(2, PATIENT);
    let mine = ends[0].all_reduce("before", HostBuffer::from_slice(&[1.0f32])).unwrap();
    let other = ends[1].all_reduce("before", HostBuffer::from_slice(&[2.0f32])).unwrap();
    let waiting = ends[0].barrier("never").unwrap();
    assert!(!waiting.is_ready());
    ends.pop();
    drop(other);
    assert_eq!(mine.wait().unwrap().as_slice::<f32>(), [3.0]);
    assert_eq!(waiting.wait().unwrap_err().to_string(), "rank 1 is lost: it left the group");
}

#[test]
fn a_panic_is_told_to_the_others() {
    let results = ranks::run(group(3, PATIENT), |end| {
        if end.rank() == 1 {
            // Unwinds as a panic does, without its message on the terminal.
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _end = end;
                std::panic::resume_unwind(Box::new(()))
            }));
            return caught.unwrap_err().is::<()>().to_string();
        }
        end.barrier("b").and_then(|ticket| ticket.wait()).unwrap_err().to_string()
    });
    assert_eq!(results, ["rank 1 is lost: its thread panicked", "true", "rank 1 is lost: its thread panicked"]);
}

#[test]
fn a_disagreement_tells_what_came_before() {
    let sum = |end: &Arc<dyn Communicator>, name: &str| end.all_reduce(name, HostBuffer::zeros::<f32>(4));
    let ends = group(2, PATIENT);
    for step in 0..10 {
        ends.iter().for_each(|end| drop(sum(end, &format!("sum {step} of 10"))));
    }
    let waiting = sum(&ends[0], "unit `a`").unwrap();
    let theirs = ends[1].barrier("end of step").unwrap_err();
    let mine = waiting.wait().unwrap_err();
    let last: Vec<_> = (2..10).map(|step| format!("all_reduce `sum {step} of 10`")).collect();
    let calls = ["all_reduce `unit `a`` of 4 x f32", "barrier `end of step`"];
    for (rank, error) in [(0, &mine), (1, &theirs)] {
        let Error::Disagree { number, before, rank: found, mine, other, theirs } = error else { panic!("{error}") };
        assert_eq!((*number, *found, *other, before), (10, rank, 1 - rank, &last));
        assert_eq!([mine.as_str(), theirs.as_str()], [calls[rank], calls[1 - rank]]);
    }
    assert_eq!(
        mine.to_string(),
        "ranks disagree about collective 10: rank 0 calls all_reduce `unit `a`` of 4 x f32, rank 1 calls barrier `end of \
         step` (the last calls of both before it: all_reduce `sum 2 of 10`, all_reduce `sum 3 of 10`, all_reduce `sum 4 \
         of 10`, all_reduce `sum 5 of 10`, all_reduce `sum 6 of 10`, all_reduce `sum 7 of 10`, all_reduce `sum 8 of \
         10`, all_reduce `sum 9 of 10`). Every rank must run the same units in the same order; where one has no use for \
         a unit it calls `Unit::skip`"
    );
}

#[test]
fn calls_that_a_third_rank_has_not_made_are_told_as_well() {
    let ends = group(3, PATIENT);
    let call = |rank: usize, name: &str| ends[rank].barrier(name).map(drop);
    (0..3).for_each(|rank| call(rank, "all").unwrap());
    // Rank 0 is ahead: what it calls after the differing call is no part of the story.
    ["two", "mine", "later"].iter().for_each(|name| call(0, name).unwrap());
    call(1, "two").unwrap();
    let Err(Error::Disagree { number, before, .. }) = call(1, "theirs") else { panic!("they differ") };
    assert_eq!((number, before), (2, vec!["barrier `all`".to_owned(), "barrier `two`".to_owned()]));
    // The one that is behind is told the same.
    let Err(Error::Disagree { before, .. }) = call(2, "two") else { panic!("the group is unusable") };
    assert_eq!(before, ["barrier `all`", "barrier `two`"]);
}

#[test]
fn errors_read_well() {
    let ends = group(3, Duration::from_millis(1));
    drop(ends[0].all_reduce("unit `a`", HostBuffer::zeros::<f32>(4)));
    let error = ends[2].broadcast("unit `b`", 1, HostBuffer::zeros::<f32>(4)).unwrap_err().to_string();
    assert_eq!(
        error,
        "ranks disagree about collective 0: rank 2 calls broadcast `unit `b`` of 4 x f32 from rank 1, rank 0 calls \
         all_reduce `unit `a`` of 4 x f32. Every rank must run the same units in the same order; where one has no use \
         for a unit it calls `Unit::skip`"
    );
    let ends = group(4, Duration::from_millis(1));
    let ticket = ends[1].reduce_scatter("grads", HostBuffer::zeros::<f32>(8), HostBuffer::zeros::<f32>(2)).unwrap();
    let early = ends[3].reduce_scatter("grads", HostBuffer::zeros::<f32>(8), HostBuffer::zeros::<f32>(2)).unwrap();
    assert_eq!(
        ticket.wait().unwrap_err().to_string(),
        "reduce_scatter `grads` of 8 x f32 was not done within 0.001 s; waited for: rank 0, rank 2. Raise the timeout \
         if it is only slow"
    );
    assert!(early.is_ready());
    assert!(matches!(early.wait(), Err(Error::Timeout { .. })));
}

#[test]
fn faults_of_the_testkit_reach_the_others() {
    let (opener, gate) = gate();
    let faults: [(Fault, u64, &str); 3] = [
        (Fault::Abort("no more coal".into()), 1, "rank 1 is lost: no more coal"),
        // In its first call: it has waited for nobody, so nobody else can be late.
        (Fault::Silent(gate), 0, "waited for: rank 1"),
        (Fault::Fail("wet coal".into()), 1, "rank 1 is lost: it left the group"),
    ];
    let mut opener = Some(opener);
    for (fault, at, wanted) in faults {
        let silent = matches!(fault, Fault::Silent(_));
        let (tell, told) = mpsc::channel::<()>();
        let mut ends = group(2, if silent { Duration::from_millis(50) } else { PATIENT });
        let faulty = FaultyCommunicator::new(ends.remove(1), Collective::AllReduce, at, fault);
        let rounds = move |end: Arc<dyn Communicator>| -> Result<(), Error> {
            for _ in 0..3 {
                end.all_reduce("r", HostBuffer::zeros::<f32>(1))?.wait()?;
                end.barrier("b")?.wait()?;
            }
            Ok(())
        };
        let other = std::thread::Builder::new().name("rank-1".into());
        let other = other.spawn(move || (rounds(Arc::new(faulty)), drop(tell)).0.map_err(|error| error.to_string()));
        let error = rounds(ends.remove(0)).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
        if silent {
            opener.take();
        }
        let _ = told.recv();
        assert!(other.unwrap().join().unwrap().is_err());
    }
}

/// Ranks that call, wait, drop and poll as a seed says, over many rounds: every result is right.
#[test]
fn many_random_schedules() {
    for seed in 0..12u64 {
        let world = 2 + seed as usize % 3;
        ranks::run(group(world, PATIENT), |end| {
            let end = Delayed::new(end, seed);
            let mut state = seed << 8 | end.rank() as u64;
            let mut open = Vec::new();
            for round in 0..60usize {
                let length = [1, 33, 20_000][round % 3];
                let value = (round * 10 + end.rank()) as f32;
                open.push((round, end.all_reduce("r", HostBuffer::from_slice(&vec![value; length])).unwrap()));
                while values::next(&mut state) % 5 < open.len() as u64 {
                    let at = values::next(&mut state) as usize % open.len();
                    let (round, ticket) = open.swap_remove(at);
                    if values::next(&mut state).is_multiple_of(4) {
                        continue;
                    }
                    if values::next(&mut state).is_multiple_of(4) {
                        while !ticket.is_ready() {
                            std::thread::yield_now();
                        }
                    }
                    let sum = (round * 10 * world + world * (world - 1) / 2) as f32;
                    let found = ticket.wait().unwrap();
                    assert!(found.as_slice::<f32>().iter().all(|value| *value == sum), "round {round}: not {sum}");
                }
            }
        });
    }
}
