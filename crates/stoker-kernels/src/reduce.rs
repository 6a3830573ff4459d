//! Sums of slices, element by element.

use crate::same_length;
use std::ops::AddAssign;

/// Elements that are summed over all parts before the next ones are: few enough for the sum to stay in the first cache.
const BLOCK: usize = 2048;

/// `into[i]` becomes `parts[0][i] + parts[1][i] + ...`, added in this order; zeros if there are no parts.
///
/// # Panics
/// When the slices are not equally long.
pub fn sum_f32(into: &mut [f32], parts: &[&[f32]]) {
    sum(into, parts);
}

/// As [`sum_f32`].
///
/// # Panics
/// When the slices are not equally long.
pub fn sum_f64(into: &mut [f64], parts: &[&[f64]]) {
    sum(into, parts);
}

/// Adds `from` to `into`.
///
/// # Panics
/// When the slices are not equally long.
pub fn add(into: &mut [f32], from: &[f32]) {
    same_length("what is added", from.len(), into.len());
    add_equal(into, from);
}

/// Adds `from`, times `scale`, to `into`.
///
/// # Panics
/// When the slices are not equally long.
pub fn add_scaled(into: &mut [f32], from: &[f32], scale: f32) {
    same_length("what is added", from.len(), into.len());
    for (into, from) in into.iter_mut().zip(from) {
        *into += from * scale;
    }
}

/// `into` becomes `from`, times `scale`.
///
/// # Panics
/// When the slices are not equally long.
pub fn set_scaled(into: &mut [f32], from: &[f32], scale: f32) {
    same_length("what is set", from.len(), into.len());
    for (into, from) in into.iter_mut().zip(from) {
        *into = from * scale;
    }
}

/// `into` becomes `from`.
///
/// # Panics
/// When the slices are not equally long.
pub fn set(into: &mut [f32], from: &[f32]) {
    same_length("what is set", from.len(), into.len());
    into.copy_from_slice(from);
}

// Generic code is compiled where it is used: only the functions above, which are not, get this crate's optimisation.
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

fn add_equal<T: Copy + AddAssign>(into: &mut [T], from: &[T]) {
    for (into, from) in into.iter_mut().zip(from) {
        *into += *from;
    }
}
