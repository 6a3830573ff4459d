//! What every offload target owes.

use crate::values::{DTYPES, any_bits, assert_same, part};
use std::sync::Arc;
use stoker_core::{DType, Error, HostBuffer, OffloadTarget, Region, RegionSpec, Result, Role, Ticket};

/// Above this, a target's capacity is taken to be the machine's own, and is not used up to see what happens.
const SMALL: u64 = 64 << 20;

const ELEMENTS: usize = 1000;

/// Panics unless a target does what it must. `make` gives a new, empty target.
///
/// Give it one with a small capacity too (16 kB to 64 MiB): only such a one is filled to its end.
pub fn conforms(make: impl Fn() -> Arc<dyn OffloadTarget>) {
    for law in [starts_as_zeros, keeps_what_is_written, refuses_what_does_not_fit, host_is_the_memory] {
        let target = make();
        for dtype in DTYPES {
            law(target.as_ref(), dtype);
        }
    }
    is_never_overfull(make().as_ref());
}

fn spec(dtype: DType, elements: usize) -> RegionSpec {
    RegionSpec { unit: "unit".to_owned(), role: Role::OptimizerState, dtype, elements }
}

fn region(target: &dyn OffloadTarget, dtype: DType, elements: usize) -> Box<dyn Region> {
    let spec = spec(dtype, elements);
    let region = target.allocate(spec.clone()).unwrap_or_else(|error| panic!("{target:?}: {error}"));
    assert_eq!(region.spec(), &spec, "{target:?}: a region says what it was made for");
    region
}

fn write(region: &mut dyn Region, at: usize, values: &HostBuffer) {
    let back = region.write(at, part(values, 0..values.len())).and_then(Ticket::wait);
    let back = back.unwrap_or_else(|error| panic!("{region:?}: write at {at}: {error}"));
    assert_same(&back, values, "a buffer comes back from a write unchanged");
}

fn read(region: &mut dyn Region, at: usize, count: usize) -> HostBuffer {
    // What the buffer holds before must not show.
    let into = any_bits(region.spec().dtype, 99, count);
    let into = region.read(at, into).and_then(Ticket::wait);
    into.unwrap_or_else(|error| panic!("{region:?}: read at {at}: {error}"))
}

fn starts_as_zeros(target: &dyn OffloadTarget, dtype: DType) {
    for elements in [0, 1, 3, ELEMENTS] {
        // Twice: memory that comes back from another region is zero again.
        for _ in 0..2 {
            let mut region = region(target, dtype, elements);
            let found = read(region.as_mut(), 0, elements);
            assert_same(&found, &HostBuffer::zeros_of(dtype, elements), "a new region is zeros");
            write(region.as_mut(), 0, &any_bits(dtype, 1, elements));
        }
    }
}

fn keeps_what_is_written(target: &dyn OffloadTarget, dtype: DType) {
    let (mut one, mut other) = (region(target, dtype, ELEMENTS), region(target, dtype, ELEMENTS));
    let (mut wanted, unchanged) = (any_bits(dtype, 2, ELEMENTS), any_bits(dtype, 3, ELEMENTS));
    write(other.as_mut(), 0, &unchanged);
    write(one.as_mut(), 0, &wanted);
    for (seed, at, count) in [(4, 0, 1), (5, 999, 1), (6, 13, 250), (7, 100, 900), (8, 500, 0), (9, 1000, 0)] {
        let piece = any_bits(dtype, seed, count);
        wanted.copy_elements(at, &piece, 0..count);
        write(one.as_mut(), at, &piece);
        assert_same(&read(one.as_mut(), at, count), &piece, "what was written is read");
    }
    for (at, count) in [(0, ELEMENTS), (1, 998), (511, 3), (999, 1)] {
        let what = format!("{count} elements at {at}");
        assert_same(&read(one.as_mut(), at, count), &part(&wanted, at..at + count), &what);
    }
    assert_same(&read(other.as_mut(), 0, ELEMENTS), &unchanged, "another region is left alone");
}

fn refuses_what_does_not_fit(target: &dyn OffloadTarget, dtype: DType) {
    let mut region = region(target, dtype, 8);
    let mut both = |at: usize, dtype: DType, count: usize, refused: &dyn Fn(&Error) -> bool| {
        let case = format!("{target:?}: {count} x {dtype} at {at} of {:?}", region.spec());
        for (what, found) in [
            ("write", region.write(at, any_bits(dtype, 5, count)).map(drop)),
            ("read", region.read(at, any_bits(dtype, 5, count)).map(drop)),
        ] {
            assert!(found.as_ref().is_err_and(refused), "{case}: {what} gives {found:?}");
        }
    };
    for (at, count) in [(0, 9), (8, 1), (9, 0), (5, 4), (usize::MAX, 2)] {
        both(at, dtype, count, &|error| matches!(error, Error::OutOfRange { .. }));
    }
    for other in DTYPES.into_iter().filter(|other| *other != dtype) {
        both(
            0,
            other,
            1,
            &|error| matches!(error, Error::WrongType { found, wanted, .. } if (*found, *wanted) == (other, dtype)),
        );
    }
    let zeros = HostBuffer::zeros_of(dtype, 8);
    assert_same(&read(region.as_mut(), 0, 8), &zeros, "a region after a write that was refused");
}

fn host_is_the_memory(target: &dyn OffloadTarget, dtype: DType) {
    let mut region = region(target, dtype, ELEMENTS);
    let (written, changed) = (any_bits(dtype, 10, ELEMENTS), any_bits(dtype, 11, ELEMENTS));
    write(region.as_mut(), 0, &written);
    assert_eq!(
        region.host().is_some(),
        target.traits().host_addressable,
        "{target:?}: regions give their memory if, and only if, the target says so"
    );
    let Some(memory) = region.host() else { return };
    assert_same(memory, &written, "`host` shows what was written");
    // As a collective does it: out for the time of a call, and back.
    let mut moved = memory.take();
    moved.copy_elements(0, &changed, 0..ELEMENTS);
    *region.host().expect("the memory was there before") = moved;
    assert_same(&read(region.as_mut(), 0, ELEMENTS), &changed, "a read sees what `host` changed");
}

fn is_never_overfull(target: &dyn OffloadTarget) {
    let Some(left) = target.traits().capacity_left else { return };
    let found = |dtype, elements| -> Result<Box<dyn Region>> { target.allocate(spec(dtype, elements)) };
    let refused = |dtype: DType, elements: usize| match found(dtype, elements) {
        Err(Error::Full { needed, available, unit, role, place, .. }) => {
            assert_eq!(needed, (elements * dtype.size()) as u64, "{target:?}: the bytes that were wanted");
            assert!(available < needed, "{target:?}: refuses {needed} bytes with {available} left");
            let names = (unit.as_str(), role, place);
            assert_eq!(names, ("unit", Role::OptimizerState, target.traits().place), "{target:?}: what for");
        }
        other => {
            panic!("{target:?}: {elements} x {dtype} with {left} bytes left should be refused, not {other:?}")
        }
    };
    // More than any machine has.
    DTYPES.into_iter().for_each(|dtype| refused(dtype, usize::MAX >> 6));
    if left > SMALL {
        return;
    }
    for dtype in DTYPES {
        let size = dtype.size() as u64;
        let elements = usize::try_from(left / size).expect("a small number");
        refused(dtype, elements + 1);
        assert_eq!(target.traits().capacity_left, Some(left), "{target:?}: a refusal costs nothing");
        let half = region(target, dtype, elements / 2);
        refused(dtype, elements);
        let other = region(target, dtype, elements - elements / 2);
        assert_eq!(target.traits().capacity_left, Some(left % size), "{target:?}: all is handed out");
        refused(DType::F64, 1);
        drop(half);
        drop(other);
        assert_eq!(target.traits().capacity_left, Some(left), "{target:?}: dropped regions give their bytes back");
        drop(region(target, dtype, elements));
    }
}
