//! What every offload target owes.

use crate::values::{Number, assert_same_bits, numbers};
use std::sync::Arc;
use stoker_core::{DType, Error, HostBuffer, OffloadTarget, Region, RegionSpec, Role};

/// Above this, a target's capacity is taken to be the machine's own, and is not used up to see what happens.
const SMALL: u64 = 64 << 20;

const ELEMENTS: usize = 1000;

/// Panics unless a target does what it must. `make` gives a new, empty target.
///
/// Give it one with a small capacity too (at most 64 MiB): only such a one is filled to its end.
pub fn conforms(make: impl Fn() -> Arc<dyn OffloadTarget>) {
    for law in [starts_as_zeros, keeps_what_is_written, refuses_what_is_outside, host_is_the_memory, is_never_overfull]
    {
        law(make().as_ref());
    }
}

fn spec(dtype: DType, elements: usize) -> RegionSpec {
    RegionSpec { unit: "unit".to_owned(), role: Role::OptimizerState, dtype, elements }
}

fn region<T: Number>(target: &dyn OffloadTarget, elements: usize) -> Box<dyn Region> {
    let spec = spec(T::DTYPE, elements);
    let region = target.allocate(spec.clone()).unwrap_or_else(|error| panic!("{target:?}: {error}"));
    assert_eq!(region.spec(), &spec, "{target:?}: a region says what it was made for");
    region
}

fn write<T: Number>(region: &mut dyn Region, at: usize, values: &[T]) {
    let back = region.write(at, HostBuffer::from_slice(values)).and_then(|ticket| ticket.wait());
    let back = back.unwrap_or_else(|error| panic!("{region:?}: write at {at}: {error}"));
    assert_same_bits(back.as_slice::<T>(), values, "a buffer comes back from a write unchanged");
}

fn read<T: Number>(region: &mut dyn Region, at: usize, count: usize) -> Vec<T> {
    // What the buffer holds before must not show.
    let into = HostBuffer::from_slice(&vec![T::from_f64(-7.5); count]);
    let into = region.read(at, into).and_then(|ticket| ticket.wait());
    into.unwrap_or_else(|error| panic!("{region:?}: read at {at}: {error}")).as_slice::<T>().to_vec()
}

fn both(law: fn(&dyn OffloadTarget, DType), target: &dyn OffloadTarget) {
    law(target, DType::F32);
    law(target, DType::F64);
}

fn starts_as_zeros(target: &dyn OffloadTarget) {
    fn law<T: Number>(target: &dyn OffloadTarget) {
        for elements in [0, 1, ELEMENTS] {
            // Twice: memory that comes back from another region is zero again.
            for _ in 0..2 {
                let mut region = region::<T>(target, elements);
                let found = read::<T>(region.as_mut(), 0, elements);
                assert_same_bits(&found, &vec![T::from_f64(0.0); elements], "a new region is zeros");
                write(region.as_mut(), 0, &numbers::<T>(1, elements));
            }
        }
    }
    law::<f32>(target);
    law::<f64>(target);
}

fn keeps_what_is_written(target: &dyn OffloadTarget) {
    fn law<T: Number>(target: &dyn OffloadTarget) {
        let mut one = region::<T>(target, ELEMENTS);
        let mut other = region::<T>(target, ELEMENTS);
        let (mut wanted, unchanged) = (numbers::<T>(2, ELEMENTS), numbers::<T>(3, ELEMENTS));
        write(other.as_mut(), 0, &unchanged);
        write(one.as_mut(), 0, &wanted);
        for (seed, at, count) in [(4, 0, 1), (5, 999, 1), (6, 13, 250), (7, 100, 900), (8, 500, 0), (9, 1000, 0)] {
            let piece = numbers::<T>(seed, count);
            wanted[at..at + count].copy_from_slice(&piece);
            write(one.as_mut(), at, &piece);
            assert_same_bits(&read::<T>(one.as_mut(), at, count), &piece, "what was written is read");
        }
        for (at, count) in [(0, ELEMENTS), (1, 998), (511, 3), (999, 1)] {
            let what = format!("{count} elements at {at}");
            assert_same_bits(&read::<T>(one.as_mut(), at, count), &wanted[at..at + count], &what);
        }
        assert_same_bits(&read::<T>(other.as_mut(), 0, ELEMENTS), &unchanged, "another region is left alone");
    }
    law::<f32>(target);
    law::<f64>(target);
}

fn refuses_what_is_outside(target: &dyn OffloadTarget) {
    both(
        |target, dtype| {
            let mut region = target.allocate(spec(dtype, 8)).unwrap_or_else(|error| panic!("{target:?}: {error}"));
            let wrong = if dtype == DType::F32 { DType::F64 } else { DType::F32 };
            for (at, count, dtype) in
                [(0, 9, dtype), (8, 1, dtype), (9, 0, dtype), (5, 4, dtype), (usize::MAX, 2, dtype), (0, 1, wrong)]
            {
                let case = format!("{target:?}: {count} x {dtype} at {at} of {:?}", region.spec());
                let ones = || {
                    let mut buffer = HostBuffer::zeros_of(dtype, count);
                    match dtype {
                        DType::F32 => buffer.as_mut_slice::<f32>().fill(1.0),
                        _ => buffer.as_mut_bytes().fill(1),
                    }
                    buffer
                };
                let found = region.write(at, ones()).map(drop);
                let refused = |found: &Result<(), Error>| {
                    matches!(found, Err(Error::OutOfRange { .. } | Error::WrongType { .. }))
                };
                assert!(refused(&found), "{case}: write gives {found:?}");
                let found = region.read(at, ones()).map(drop);
                assert!(refused(&found), "{case}: read gives {found:?}");
            }
            let clean = match dtype {
                DType::F32 => read::<f32>(region.as_mut(), 0, 8).iter().all(|value| *value == 0.0),
                _ => read::<f64>(region.as_mut(), 0, 8).iter().all(|value| *value == 0.0),
            };
            assert!(clean, "{target:?}: a write that was refused has changed the region");
        },
        target,
    );
}

fn host_is_the_memory(target: &dyn OffloadTarget) {
    fn law<T: Number>(target: &dyn OffloadTarget) {
        let mut region = region::<T>(target, ELEMENTS);
        let (written, changed) = (numbers::<T>(10, ELEMENTS), numbers::<T>(11, ELEMENTS));
        write(region.as_mut(), 0, &written);
        assert_eq!(
            region.host().is_some(),
            target.traits().host_addressable,
            "{target:?}: regions give their memory if, and only if, the target says so"
        );
        let Some(memory) = region.host() else { return };
        assert_same_bits(memory.as_slice::<T>(), &written, "`host` shows what was written");
        // As a collective does it: out for the time of a call, and back.
        let mut moved = memory.take();
        moved.as_mut_slice::<T>().copy_from_slice(&changed);
        *region.host().expect("the memory was there before") = moved;
        assert_same_bits(&read::<T>(region.as_mut(), 0, ELEMENTS), &changed, "a read sees what `host` changed");
    }
    law::<f32>(target);
    law::<f64>(target);
}

fn is_never_overfull(target: &dyn OffloadTarget) {
    let Some(left) = target.traits().capacity_left else { return };
    let refused = |elements: usize| match target.allocate(spec(DType::F32, elements)) {
        Err(Error::Full { needed, available, unit, role, place, .. }) => {
            assert_eq!(needed, elements as u64 * 4, "{target:?}: the bytes that were wanted");
            assert!(available < needed, "{target:?}: refuses {needed} bytes with {available} left");
            let names = (unit.as_str(), role, place);
            assert_eq!(names, ("unit", Role::OptimizerState, target.traits().place), "{target:?}: what for");
        }
        other => panic!("{target:?}: {elements} elements with {left} bytes left should be refused, not {other:?}"),
    };
    // More than any machine has.
    refused(usize::MAX >> 6);
    if left > SMALL {
        return;
    }
    let elements = usize::try_from(left / 4).expect("a small number");
    refused(elements + 1);
    assert_eq!(target.traits().capacity_left, Some(left), "{target:?}: a refusal costs nothing");
    let half = region::<f32>(target, elements / 2);
    refused(elements);
    let other = region::<f32>(target, elements - elements / 2);
    assert_eq!(target.traits().capacity_left, Some(left % 4), "{target:?}: all is handed out");
    refused(1);
    drop(half);
    drop(other);
    assert_eq!(target.traits().capacity_left, Some(left), "{target:?}: dropped regions give their bytes back");
    drop(region::<f32>(target, elements));
}
