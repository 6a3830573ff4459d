//! Sums of slices, element by element.

use crate::convert;
use crate::{Level, same_length};
use half::{bf16, f16};
use std::ops::AddAssign;
use stoker_core::{Values, ValuesMut};

/// Elements that are summed over all parts before the next ones are: few enough for the sum to stay in the first cache.
const BLOCK: usize = 2048;

/// `into[i]` becomes `parts[0][i] + parts[1][i] + ...`, added in this order; zeros if there are no parts.
///
/// # Panics
/// When the slices are not equally long.
pub fn sum_f32(into: &mut [f32], parts: &[&[f32]]) {
    Level::best().run(
        #[inline(always)]
        || sum(into, parts),
    );
}

/// As [`sum_f32`].
///
/// # Panics
/// When the slices are not equally long.
pub fn sum_f64(into: &mut [f64], parts: &[&[f64]]) {
    Level::best().run(
        #[inline(always)]
        || sum(into, parts),
    );
}

/// As [`sum_f32`]: summed in f32, rounded once.
///
/// # Panics
/// When the slices are not equally long.
pub fn sum_bf16(into: &mut [bf16], parts: &[&[bf16]]) {
    Level::best().run(
        #[inline(always)]
        || sum_wide(into, parts),
    );
}

/// As [`sum_bf16`].
///
/// # Panics
/// When the slices are not equally long.
pub fn sum_f16(into: &mut [f16], parts: &[&[f16]]) {
    Level::best().run(
        #[inline(always)]
        || sum_wide(into, parts),
    );
}

/// Adds `from` to `into`.
///
/// # Panics
/// When the slices are not equally long.
pub fn add(into: &mut [f32], from: &[f32]) {
    same_length("what is added", from.len(), into.len());
    Level::best().run(
        #[inline(always)]
        || add_equal(into, from),
    );
}

/// As [`add`]: summed in f32, rounded once.
///
/// # Panics
/// When the slices are not equally long.
pub fn add_bf16(into: &mut [bf16], from: &[bf16]) {
    Level::best().run(
        #[inline(always)]
        || add_wide(into, from),
    );
}

/// As [`add_bf16`].
///
/// # Panics
/// When the slices are not equally long.
pub fn add_f16(into: &mut [f16], from: &[f16]) {
    Level::best().run(
        #[inline(always)]
        || add_wide(into, from),
    );
}

/// Adds `from`, times `scale`, to `into`.
///
/// # Panics
/// When the slices are not equally long.
pub fn add_scaled(into: &mut [f32], from: &[f32], scale: f32) {
    same_length("what is added", from.len(), into.len());
    Level::best().run(
        #[inline(always)]
        || {
            for (into, from) in into.iter_mut().zip(from) {
                *into += from * scale;
            }
        },
    );
}

// Generic code is compiled where it is used: only the functions above, which are not, get this crate's optimisation.
#[inline(always)]
fn sum<T: Copy + Default + AddAssign>(into: &mut [T], parts: &[&[T]]) {
    for part in parts {
        same_length("a part of a sum", part.len(), into.len());
    }
    let Some((first, others)) = parts.split_first() else {
        into.fill(T::default());
        return;
    };
    for (number, block) in into.chunks_mut(BLOCK).enumerate() {
        // In range: all parts are as long as `into`, of which this is a block.
        let range = number * BLOCK..number * BLOCK + block.len();
        block.copy_from_slice(&first[range.clone()]);
        for other in others {
            add_equal(block, &other[range.clone()]);
        }
    }
}

#[inline(always)]
fn sum_wide<T>(into: &mut [T], parts: &[&[T]])
where
    for<'a> Values<'a>: From<&'a [T]>,
    for<'a> ValuesMut<'a>: From<&'a mut [T]>,
{
    for part in parts {
        same_length("a part of a sum", part.len(), into.len());
    }
    let (mut total, mut wide) = ([0.0; BLOCK], [0.0; BLOCK]);
    for (number, block) in into.chunks_mut(BLOCK).enumerate() {
        // In range: all parts are as long as `into`, of which this is a block no longer than BLOCK.
        let range = number * BLOCK..number * BLOCK + block.len();
        let (total, wide) = (&mut total[..block.len()], &mut wide[..block.len()]);
        total.fill(0.0);
        for (at, part) in parts.iter().enumerate() {
            convert::widen(wide, (&part[range.clone()]).into());
            // The first is set, not added to zero: -0 stays.
            if at == 0 { total.copy_from_slice(wide) } else { add_equal(total, wide) }
        }
        convert::narrow(block.into(), total);
    }
}

#[inline(always)]
fn add_wide<T>(into: &mut [T], from: &[T])
where
    for<'a> Values<'a>: From<&'a [T]>,
    for<'a> ValuesMut<'a>: From<&'a mut [T]>,
{
    same_length("what is added", from.len(), into.len());
    let (mut total, mut wide) = ([0.0; BLOCK], [0.0; BLOCK]);
    for (into, from) in into.chunks_mut(BLOCK).zip(from.chunks(BLOCK)) {
        let (total, wide) = (&mut total[..into.len()], &mut wide[..into.len()]);
        convert::widen(total, (&*into).into());
        convert::widen(wide, from.into());
        add_equal(total, wide);
        convert::narrow(into.into(), total);
    }
}

#[inline(always)]
fn add_equal<T: Copy + AddAssign>(into: &mut [T], from: &[T]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into += *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Up to 6 parts, equally long.
    fn parts() -> impl Strategy<Value = Vec<Vec<f32>>> {
        (1usize..7, prop_oneof![0usize..4098, Just(2 * BLOCK), Just(2 * BLOCK + 1)]).prop_flat_map(|(count, length)| {
            let value = prop_oneof![-1e3f32..1e3, -1f32..1.0, Just(-0.0)];
            proptest::collection::vec(proptest::collection::vec(value, length), count)
        })
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    fn slices<T>(parts: &[Vec<T>]) -> Vec<&[T]> {
        parts.iter().map(Vec::as_slice).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn sums_in_the_order_of_the_parts(parts in parts()) {
            let length = parts[0].len();
            let mut found = vec![f32::NAN; length];
            sum_f32(&mut found, &slices(&parts));
            let wide: Vec<Vec<f64>> =
                parts.iter().map(|part| part.iter().map(|value| f64::from(*value)).collect()).collect();
            let mut found_wide = vec![f64::NAN; length];
            sum_f64(&mut found_wide, &slices(&wide));
            for at in 0..length {
                let in_order = parts[1..].iter().fold(parts[0][at], |sum, part| sum + part[at]);
                prop_assert_eq!(found[at].to_bits(), in_order.to_bits());
                let exact = wide[1..].iter().fold(wide[0][at], |sum, part| sum + part[at]);
                prop_assert_eq!(found_wide[at].to_bits(), exact.to_bits());
                let size: f64 = wide.iter().map(|part| part[at].abs()).sum();
                prop_assert!((f64::from(found[at]) - exact).abs() <= 4e-7 * size);
            }
        }

        #[test]
        fn any_split_gives_the_same_bits(parts in parts(), chunk in 1usize..5000, scale in -10f32..10.0) {
            let length = parts[0].len();
            let split = |act: &dyn Fn(&mut [f32], std::ops::Range<usize>)| {
                let mut into = parts[0].clone();
                for start in (0..length).step_by(chunk) {
                    let range = start..(start + chunk).min(length);
                    act(&mut into[range.clone()], range);
                }
                into
            };
            let from = parts.last().unwrap();

            let mut whole = parts[0].clone();
            sum_f32(&mut whole, &slices(&parts));
            let pieces = split(&|into, range| {
                let parts: Vec<&[f32]> = parts.iter().map(|part| &part[range.clone()]).collect();
                sum_f32(into, &parts);
            });
            prop_assert_eq!(bits(&pieces), bits(&whole));

            let mut whole = parts[0].clone();
            add_scaled(&mut whole, from, scale);
            prop_assert_eq!(bits(&split(&|into, range| add_scaled(into, &from[range], scale))), bits(&whole));
        }

        #[test]
        fn adds_and_sets(parts in parts(), scale in -10f32..10.0) {
            let (old, from) = (&parts[0], parts.last().unwrap());
            let result = |act: &dyn Fn(&mut [f32])| {
                let mut into = old.clone();
                act(&mut into);
                bits(&into)
            };
            let each = |act: &dyn Fn(f32, f32) -> f32| -> Vec<u32> {
                old.iter().zip(from).map(|(old, from)| act(*old, *from).to_bits()).collect()
            };
            prop_assert_eq!(result(&|into| add(into, from)), each(&|old, from| old + from));
            prop_assert_eq!(result(&|into| add_scaled(into, from, scale)), each(&|old, from| old + from * scale));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn narrow_sums_are_rounded_once(parts in parts()) {
            let narrow: Vec<Vec<bf16>> =
                parts.iter().map(|part| part.iter().map(|value| bf16::from_f32(*value)).collect()).collect();
            let mut found = vec![bf16::NAN; parts[0].len()];
            sum_bf16(&mut found, &slices(&narrow));
            for at in 0..found.len() {
                let wide = |part: &Vec<bf16>| part[at].to_f32();
                let sum = narrow[1..].iter().fold(wide(&narrow[0]), |sum, part| sum + wide(part));
                prop_assert_eq!(found[at].to_bits(), bf16::from_f32(sum).to_bits());
            }
            let mut into = narrow[0].clone();
            add_bf16(&mut into, narrow.last().unwrap());
            let mut wanted = vec![bf16::NAN; into.len()];
            sum_bf16(&mut wanted, &[&narrow[0], narrow.last().unwrap()]);
            prop_assert_eq!(into, wanted);
        }
    }

    #[test]
    fn f16_sums_overflow_to_infinity() {
        let (big, mut into) = ([f16::MAX], [f16::ZERO]);
        sum_f16(&mut into, &[&big, &big]);
        assert_eq!(into, [f16::INFINITY]);
    }

    #[test]
    fn no_parts_are_zeros() {
        let mut into = [1.0f32, 2.0];
        sum_f32(&mut into, &[]);
        assert_eq!(into, [0.0, 0.0]);
    }

    #[test]
    #[should_panic(expected = "a part of a sum has 1 elements, 2 were wanted")]
    fn unequal_slices_are_a_mistake() {
        sum_f32(&mut [0.0; 2], &[&[0.0; 2], &[0.0]]);
    }
}
