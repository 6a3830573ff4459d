//! What memory allows: loops that move the bytes of an update and compute next to nothing, for benches to compare with.

use crate::{Level, Shard, pass};
use stoker_core::{Values, ValuesMut};

/// McCalpin's STREAM triad, `a = b + 3 c`: 12 bytes an element, and 4 more if the cache reads what it overwrites.
///
/// # Panics
/// When the slices are not equally long.
pub fn triad(level: Level, a: &mut [f32], b: &mut [f32], c: &[f32]) {
    pass::share(Shard::of_f32(a, c, [b]), &|shard| {
        let (Values::F32(c), [ValuesMut::F32(b)]) = (shard.gradient, shard.state) else { return };
        let a = shard.parameters;
        level.run(
            #[inline(always)]
            || {
                for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                    *a = *b + *c * 3.0;
                }
            },
        );
    });
}

/// Reads what Adam reads and writes what it writes, f32 throughout: 28 bytes an element.
///
/// # Panics
/// When the slices are not equally long.
pub fn read_modify_write(level: Level, shard: Shard<'_, 2>) {
    pass::share(shard, &|shard| {
        let (Values::F32(g), [ValuesMut::F32(m), ValuesMut::F32(v)]) = (shard.gradient, shard.state) else { return };
        let p = shard.parameters;
        level.run(
            #[inline(always)]
            || {
                for ((p, g), (m, v)) in p.iter_mut().zip(g).zip(m.iter_mut().zip(v)) {
                    *p += *g;
                    *m += *g;
                    *v += *g;
                }
            },
        );
    });
}
