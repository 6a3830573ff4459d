//! Results of collectives, compared with the obvious loops.

use super::{Make, PATIENT, done, group};
use crate::ranks;
use crate::values::{DTYPES, Number, any_bits, assert_same, assert_same_bits, numbers, part};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use stoker_core::communicator::Exchanged;
use stoker_core::half::{bf16, f16};
use stoker_core::{Communicator, Error, HostBuffer, Ticket};

/// The last is long enough for a communicator that treats small buffers in another way.
const LENGTHS: [usize; 5] = [0, 1, 7, 1000, 20_001];

/// What rank `rank` brings to round `round`.
fn brought<T: Number>(round: usize, rank: usize, length: usize) -> Vec<T> {
    numbers((round * 64 + rank) as u64, length)
}

/// Memory for a result, full of what must not be left in it.
fn dirty<T: Number>(length: usize) -> HostBuffer {
    HostBuffer::from_slice(&vec![T::from_f64(-3.25); length])
}

/// Panics unless `found` is elements `range` of the sum of what the ranks bring to this round: to the bit and in their
/// order, or for a narrow type as close to the exact sum as [`Communicator`] says.
#[track_caller]
fn assert_sum<T: Number>(found: &[T], round: usize, world: usize, length: usize, range: Range<usize>, what: &str) {
    let terms: Vec<Vec<T>> = (0..world).map(|rank| brought(round, rank, length)[range.clone()].to_vec()).collect();
    if T::DTYPE.size() > 2 {
        let in_order = |at| terms[1..].iter().fold(terms[0][at], |sum: T, term| sum + term[at]);
        return assert_same_bits(found, &(0..range.len()).map(in_order).collect::<Vec<_>>(), what);
    }
    assert_eq!(found.len(), range.len(), "{what}: length");
    for (at, found) in found.iter().enumerate() {
        // Exact: what is brought lies within 20 powers of two.
        let exact: f64 = terms.iter().map(|term| term[at].to_f64()).sum();
        let size: f64 = terms.iter().map(|term| term[at].to_f64().abs()).sum();
        let (off, allowed) = ((found.to_f64() - exact).abs(), world as f64 * T::last_place(size));
        assert!(off <= allowed, "{what}: element {at} is {found:?}, {exact} is right, {allowed} may be missing");
    }
}

fn gathered<T: Number>(round: usize, world: usize, length: usize) -> Vec<T> {
    (0..world).flat_map(|rank| brought::<T>(round, rank, length)).collect()
}

/// Every collective, for 1 to 5 ranks, several lengths and every type, three times each: results to the bit (sums of
/// narrow types as close as they must be), and what was sent comes back unchanged.
pub fn collectives_are_right(make: &impl Make) {
    for world in 1..=5 {
        ranks::run(group(make, world, PATIENT), |end| {
            for (number, length) in LENGTHS.into_iter().enumerate() {
                for round in number * 3..number * 3 + 3 {
                    every_collective::<f16>(end.as_ref(), round, length);
                    every_collective::<bf16>(end.as_ref(), round, length);
                    every_collective::<f32>(end.as_ref(), round, length);
                    every_collective::<f64>(end.as_ref(), round, length);
                }
            }
        });
    }
}

fn every_collective<T: Number>(end: &dyn Communicator, round: usize, length: usize) {
    let (rank, world) = (end.rank(), end.world());
    let case = |what: &str| format!("{what} of {length} x {} at rank {rank} of {world}", T::DTYPE);

    let mine = brought::<T>(round, rank, length);
    let Exchanged { sent, received } =
        done(end.all_gather("gather", HostBuffer::from_slice(&mine), dirty::<T>(length * world)));
    assert_same_bits(sent.as_slice(), &mine, &case("what all_gather sent"));
    assert_same_bits(received.as_slice(), &gathered::<T>(round, world, length), &case("all_gather"));

    let mine = brought::<T>(round, rank, length * world);
    let Exchanged { sent, received } =
        done(end.reduce_scatter("scatter", HostBuffer::from_slice(&mine), dirty::<T>(length)));
    assert_same_bits(sent.as_slice(), &mine, &case("what reduce_scatter sent"));
    let own = rank * length..(rank + 1) * length;
    assert_sum::<T>(received.as_slice(), round, world, length * world, own, &case("reduce_scatter"));

    let mine = brought::<T>(round, rank, length);
    let received = done(end.all_reduce("reduce", HostBuffer::from_slice(&mine)));
    assert_sum::<T>(received.as_slice(), round, world, length, 0..length, &case("all_reduce"));
    let half = done(end.all_reduce("reduce half", HostBuffer::from_slice(&mine[length / 2..])));
    assert_same(&half, &part(&received, length / 2..length), &case("one half, compared with the same half of all"));

    for root in 0..world {
        let received = done(end.broadcast("cast", root, HostBuffer::from_slice(&mine)));
        assert_same_bits(received.as_slice(), &brought::<T>(round, root, length), &case("broadcast"));
    }
    done(end.barrier("meet"));
}

/// Gathers and broadcasts keep every bit, whatever number it belongs to.
pub fn bits_are_only_moved(make: &impl Make) {
    const LENGTH: usize = 10_007;
    for world in 1..=3 {
        ranks::run(group(make, world, PATIENT), |end| {
            for dtype in DTYPES {
                let of = |rank: usize| any_bits(dtype, rank as u64, LENGTH);
                let case = |what: &str| format!("{what} of {dtype} at rank {} of {world}", end.rank());
                let full = any_bits(dtype, 99, LENGTH * world);
                let Exchanged { sent, received } = done(end.all_gather("gather", of(end.rank()), full));
                assert_same(&sent, &of(end.rank()), &case("what all_gather sent"));
                for rank in 0..world {
                    let found = part(&received, rank * LENGTH..(rank + 1) * LENGTH);
                    assert_same(&found, &of(rank), &case("all_gather"));
                    assert_same(&done(end.broadcast("cast", rank, of(end.rank()))), &of(rank), &case("broadcast"));
                }
            }
        });
    }
}

/// Numbers that no sum should hide: all ranks have the same bits, NaN and infinity included.
pub fn allreduce_is_the_same_everywhere(make: &impl Make) {
    special_sums::<f16>(make);
    special_sums::<bf16>(make);
    special_sums::<f32>(make);
    special_sums::<f64>(make);
}

fn special_sums<T: Number>(make: &impl Make) {
    let [nan, infinity, zero] = [f64::NAN, f64::INFINITY, -0.0].map(T::from_f64);
    let special = [nan, infinity, T::from_f64(f64::NEG_INFINITY), T::MAX, T::LEAST, zero];
    let results = ranks::run(group(make, 3, PATIENT), |end| {
        let mut mine = numbers::<T>(end.rank() as u64, 40_000);
        for (number, value) in special.into_iter().enumerate() {
            mine[number * 3 + end.rank()] = value;
            // The whole sum is -0 or overflows.
            mine[100 + number] = value;
        }
        done(end.all_reduce("special", HostBuffer::from_slice(&mine)))
    });
    for (rank, result) in results.iter().enumerate() {
        assert_same(result, &results[0], &format!("rank {rank}'s sum, compared with rank 0's"));
    }
    let first: Vec<f64> = results[0].as_slice::<T>().iter().map(|value| value.to_f64()).collect();
    let dtype = T::DTYPE;
    assert!(first[0..3].iter().all(|value| value.is_nan()), "NaN of any rank is in a {dtype} sum: {:?}", &first[0..3]);
    assert!(first[3..6].iter().all(|value| *value == f64::INFINITY), "infinity of any rank: {:?}", &first[3..6]);
    assert!(first[103].is_infinite(), "a {dtype} sum that is too large is infinite, not {}", first[103]);
    // One sign of zero is as close to the exact sum as the other.
    let is_right = |zero: f64| zero == 0.0 && (zero.is_sign_negative() || T::DTYPE.size() == 2);
    assert!(is_right(first[105]), "a {dtype} sum of negative zeros is {}", first[105]);
}

/// Several calls before any wait; then waits in the order of the calls, in the opposite one, and in a different one on
/// every rank: a ticket needs every rank to call, not to wait.
pub fn many_may_be_in_flight(make: &impl Make) {
    const CALLS: usize = 12;
    type Order = fn(usize) -> Vec<usize>;
    let orders: [Order; 3] = [
        |_| (0..CALLS).collect(),
        |_| (0..CALLS).rev().collect(),
        |rank| (0..CALLS).map(|at| (at * [5, 7, 11, 1][rank % 4] + rank) % CALLS).collect(),
    ];
    for (world, order) in (1..=4).flat_map(|world| orders.map(|order| (world, order))) {
        ranks::run(group(make, world, PATIENT), |end| {
            let (rank, length) = (end.rank(), 301);
            let mut tickets: Vec<Option<Ticket<Exchanged>>> = (0..CALLS)
                .map(|round| {
                    let name = format!("call {round}");
                    let ticket = if round % 2 == 0 {
                        let mine = HostBuffer::from_slice(&brought::<f32>(round, rank, length));
                        end.all_gather(&name, mine, dirty::<f32>(length * world))
                    } else {
                        let mine = HostBuffer::from_slice(&brought::<f32>(round, rank, length * world));
                        end.reduce_scatter(&name, mine, dirty::<f32>(length))
                    };
                    Some(ticket.expect("a call that nothing is wrong with"))
                })
                .collect();
            for round in order(rank) {
                let ticket = tickets[round].take().expect("each ticket is waited on once");
                let received = done(Ok(ticket)).received;
                let what = format!("call {round} at rank {rank} of {world}");
                if round % 2 == 0 {
                    assert_same_bits(received.as_slice(), &gathered::<f32>(round, world, length), &what);
                } else {
                    let own = rank * length..(rank + 1) * length;
                    assert_sum::<f32>(received.as_slice(), round, world, length * world, own, &what);
                }
            }
        });
    }
}

/// Nobody passes a barrier before everybody has called it.
pub fn barriers_hold(make: &impl Make) {
    for world in 1..=5 {
        let called = AtomicUsize::new(0);
        ranks::run(group(make, world, PATIENT), |end| {
            for round in 1..=50 {
                called.fetch_add(1, Ordering::SeqCst);
                done(end.barrier("round"));
                let seen = called.load(Ordering::SeqCst);
                assert!(seen >= round * world, "rank {} passes barrier {round} after {seen} calls", end.rank());
                done(end.barrier("round is over"));
            }
        });
    }
}

/// Tickets that some ranks, or all, drop: the others get their results, and the next collectives work.
pub fn dropped_tickets_hold_nobody_up(make: &impl Make) {
    for (world, length) in [(1, 9), (2, 9), (4, 9), (3, 30_000)] {
        ranks::run(group(make, world, PATIENT), |end| {
            let rank = end.rank();
            for round in 0..12 {
                let mine = || HostBuffer::from_slice(&brought::<f32>(round, rank, length));
                // From "nobody waits" to "only one rank does not".
                let waits = round % (world + 1) > (rank + round) % world;
                let gather = end.all_gather("gather", mine(), dirty::<f32>(length * world));
                let reduce = end.all_reduce("reduce", mine());
                let cast = end.broadcast("cast", round % world, mine());
                if waits {
                    let what = format!("round {round} at rank {rank} of {world}");
                    assert_sum::<f32>(done(reduce).as_slice(), round, world, length, 0..length, &what);
                    let root = brought::<f32>(round, round % world, length);
                    assert_same_bits(done(cast).as_slice(), &root, &what);
                    let all = gathered::<f32>(round, world, length);
                    assert_same_bits(done(gather).received.as_slice(), &all, &what);
                }
            }
            done(end.barrier("all are still here"));
        });
    }
}

/// Buffers whose lengths, types or root do not fit are refused where the call is made, before anybody else is involved.
pub fn wrong_lengths_are_refused(make: &impl Make) {
    for world in [1, 3] {
        ranks::run(group(make, world, PATIENT), |end| {
            let zeros = HostBuffer::zeros::<f32>;
            let refused = |what: &str, found: Option<Error>| {
                assert!(matches!(found, Some(Error::OutOfRange { .. })), "{what} gives {found:?}");
            };
            refused("a long result", end.all_gather("g", zeros(2), zeros(2 * world + 1)).err());
            refused("a short result", end.all_gather("g", zeros(2), zeros(2 * world - 1)).err());
            refused("a long shard", end.reduce_scatter("s", zeros(2 * world), zeros(3)).err());
            refused("a root outside", end.broadcast("c", world, zeros(2)).err());
            for (one, other) in DTYPES.into_iter().flat_map(|one| DTYPES.map(|other| (one, other))) {
                if one == other {
                    continue;
                }
                let (shard, full) = (|| HostBuffer::zeros_of(one, 2), || HostBuffer::zeros_of(other, 2 * world));
                for (what, found) in [
                    ("all_gather", end.all_gather("g", shard(), full()).err()),
                    ("reduce_scatter", end.reduce_scatter("s", full(), shard()).err()),
                ] {
                    let told = matches!(found, Some(Error::WrongType { .. }));
                    assert!(told, "{what} with a shard of {one} and all of {other} gives {found:?}");
                }
            }
            done(end.barrier("nobody was disturbed"));
        });
    }
}
