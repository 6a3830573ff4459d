//! Host buffers from one element type to another, and sums of buffers whose type is known at run time only.

use std::ops::Range;
use stoker_core::half::{bf16, f16};
use stoker_core::{DType, HostBuffer, Region, Result, Values, ValuesMut};
use stoker_kernels::{convert, reduce};

/// The elements in f32.
pub(crate) fn widened(buffer: &HostBuffer) -> HostBuffer {
    let mut wide = HostBuffer::zeros::<f32>(buffer.len());
    widen(buffer, 0..buffer.len(), wide.as_mut_slice());
    wide
}

/// What `look` makes of elements `range` in f32.
pub(crate) fn with_f32<T>(buffer: &HostBuffer, range: Range<usize>, look: impl FnOnce(&[f32]) -> T) -> T {
    if buffer.dtype() == DType::F32 {
        return look(&buffer.as_slice::<f32>()[range]);
    }
    let mut wide = vec![0.0; range.len()];
    widen(buffer, range, &mut wide);
    look(&wide)
}

/// `into` becomes elements `range` of the buffer.
pub(crate) fn widen(buffer: &HostBuffer, range: Range<usize>, into: &mut [f32]) {
    match Values::of(buffer) {
        Some(values) => convert::to_f32(into, values.part(range)),
        None => {
            for (into, from) in into.iter_mut().zip(&buffer.as_slice::<f64>()[range]) {
                *into = *from as f32;
            }
        }
    }
}

/// Elements `at` on of the buffer become `values`, rounded to its type.
pub(crate) fn narrow(values: &[f32], buffer: &mut HostBuffer, at: usize) {
    let range = at..at + values.len();
    if buffer.dtype() == DType::F64 {
        for (into, from) in buffer.as_mut_slice::<f64>()[range].iter_mut().zip(values) {
            *into = f64::from(*from);
        }
    } else if let Some(mut into) = ValuesMut::of(buffer) {
        convert::from_f32(into.part(range), values);
    }
}

/// Elements `at` on of a region become `values`, rounded to its type.
pub(crate) fn store(values: &[f32], region: &mut dyn Region, at: usize) -> Result<()> {
    if let Some(memory) = region.host() {
        narrow(values, memory, at);
        return Ok(());
    }
    let mut staged = HostBuffer::zeros_of(region.spec().dtype, values.len());
    narrow(values, &mut staged, 0);
    region.write(at, staged)?.wait()?;
    Ok(())
}

/// Adds all of `values` to elements `at` on of a buffer of the same type.
pub(crate) fn add(buffer: &mut HostBuffer, at: usize, values: &HostBuffer) {
    let range = at..at + values.len();
    match buffer.dtype() {
        DType::F16 => reduce::add_f16(&mut buffer.as_mut_slice::<f16>()[range], values.as_slice()),
        DType::BF16 => reduce::add_bf16(&mut buffer.as_mut_slice::<bf16>()[range], values.as_slice()),
        DType::F32 => reduce::add(&mut buffer.as_mut_slice::<f32>()[range], values.as_slice()),
        DType::F64 => {
            for (into, from) in buffer.as_mut_slice::<f64>()[range].iter_mut().zip(values.as_slice::<f64>()) {
                *into += *from;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_cast_and_added() {
        for (dtype, third) in [(DType::F16, 0.333_251_95), (DType::BF16, 0.333_984_38), (DType::F32, 1.0f32 / 3.0)] {
            let mut buffer = HostBuffer::zeros_of(dtype, 3);
            narrow(&[1.0 / 3.0, 2.0], &mut buffer, 1);
            assert_eq!(widened(&buffer).as_slice::<f32>(), [0.0, third, 2.0]);
            let mut more = HostBuffer::zeros_of(dtype, 2);
            narrow(&[0.5, 1.0], &mut more, 0);
            add(&mut buffer, 0, &more);
            let mut part = [0.0; 2];
            widen(&buffer, 1..3, &mut part);
            assert!((part[0] - third - 1.0).abs() < 4e-3);
            assert_eq!(part[1], 2.0);
        }
    }
}
