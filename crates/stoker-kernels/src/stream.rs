//! Storing what the processor does not read again.
#![allow(unsafe_code, reason = "the instructions take pointers")]

/// Copies past the caches, which need not read what is overwritten whole: a store through them moves twice its bytes.
/// Another thread sees it only after [`fence`].
///
/// # Panics
/// When the slices are not equally long.
#[inline(always)]
pub(crate) fn store(into: &mut [u16], from: &[u16]) {
    crate::same_length("what is stored", from.len(), into.len());
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        // SAFETY: any bits are a `u16`, and any are an `__m128i`.
        let (before, lines, after) = unsafe { into.align_to_mut::<__m128i>() };
        let (first, from) = from.split_at(before.len());
        before.copy_from_slice(first);
        let (vectors, rest) = from.as_chunks::<8>();
        for (into, from) in lines.iter_mut().zip(vectors) {
            // SAFETY: `from` has the 16 bytes that are read, `into` is of 16 bytes and aligned to as many, and every
            // x86-64 has both instructions.
            unsafe { _mm_stream_si128(into, _mm_loadu_si128(from.as_ptr().cast())) };
        }
        after.copy_from_slice(rest);
    }
    #[cfg(not(target_arch = "x86_64"))]
    into.copy_from_slice(from);
}

/// What was stored before it is seen before what is stored after it.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_is_stored_and_nothing_beside_it(length in 0usize..100, skip in 0usize..20, skip_from in 0usize..20) {
            let from: Vec<u16> = (1..=120).collect();
            let mut into = vec![0_u16; 120];
            store(&mut into[skip..skip + length], &from[skip_from..skip_from + length]);
            fence();
            prop_assert_eq!(&into[skip..skip + length], &from[skip_from..skip_from + length]);
            prop_assert!(into[..skip].iter().chain(&into[skip + length..]).all(|value| *value == 0));
        }
    }

    #[test]
    #[should_panic(expected = "what is stored has 2 elements, 1 were wanted")]
    fn unequal_slices_are_a_mistake() {
        store(&mut [0], &[1, 2]);
    }
}
