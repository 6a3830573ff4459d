//! Asking for memory before it is read.
#![allow(unsafe_code, reason = "the instruction takes a pointer")]

/// Bytes that come at once.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks for the `count` elements that begin `distance` elements after the first of `values`, which may lie behind its end.
/// It is a hint: nothing is read.
#[inline(always)]
pub(crate) fn prefetch<T>(values: &[T], distance: usize, count: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = values.as_ptr().wrapping_add(distance).cast::<i8>();
        for at in (0..count * size_of::<T>()).step_by(LINE) {
            // SAFETY: a prefetch accesses nothing and faults at no address; every x86-64 has it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, distance, count);
}
