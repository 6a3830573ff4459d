//! Elements whose type is known at run time, borrowed.

use crate::{DType, HostBuffer};
use half::{bf16, f16};
use std::ops::Range;

/// Elements of a shard.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// Of f16.
    F16(&'a [f16]),
    /// Of bf16.
    BF16(&'a [bf16]),
    /// Of f32.
    F32(&'a [f32]),
}

/// Elements of a shard, to be changed.
#[derive(Debug)]
pub enum ValuesMut<'a> {
    /// Of f16.
    F16(&'a mut [f16]),
    /// Of bf16.
    BF16(&'a mut [bf16]),
    /// Of f32.
    F32(&'a mut [f32]),
}

impl<'a> From<&'a [f16]> for Values<'a> {
    #[inline]
    fn from(values: &'a [f16]) -> Self {
        Self::F16(values)
    }
}

impl<'a> From<&'a mut [f16]> for ValuesMut<'a> {
    #[inline]
    fn from(values: &'a mut [f16]) -> Self {
        Self::F16(values)
    }
}

impl<'a> From<&'a [bf16]> for Values<'a> {
    #[inline]
    fn from(values: &'a [bf16]) -> Self {
        Self::BF16(values)
    }
}

impl<'a> From<&'a mut [bf16]> for ValuesMut<'a> {
    #[inline]
    fn from(values: &'a mut [bf16]) -> Self {
        Self::BF16(values)
    }
}

impl<'a> From<&'a [f32]> for Values<'a> {
    #[inline]
    fn from(values: &'a [f32]) -> Self {
        Self::F32(values)
    }
}

impl<'a> From<&'a mut [f32]> for ValuesMut<'a> {
    #[inline]
    fn from(values: &'a mut [f32]) -> Self {
        Self::F32(values)
    }
}

impl<'a> Values<'a> {
    /// Those of a buffer; nothing if they are f64, in which no shard is kept.
    ///
    /// ```
    /// use stoker_core::{DType, HostBuffer, Values};
    /// let buffer = HostBuffer::zeros_of(DType::BF16, 3);
    /// let values = Values::of(&buffer).unwrap();
    /// assert_eq!((values.dtype(), values.len()), (DType::BF16, 3));
    /// ```
    pub fn of(buffer: &'a HostBuffer) -> Option<Self> {
        Some(match buffer.dtype() {
            DType::F16 => Self::F16(buffer.as_slice()),
            DType::BF16 => Self::BF16(buffer.as_slice()),
            DType::F32 => Self::F32(buffer.as_slice()),
            DType::F64 => return None,
        })
    }

    /// Number of elements.
    pub const fn len(&self) -> usize {
        match self {
            Self::F16(values) => values.len(),
            Self::BF16(values) => values.len(),
            Self::F32(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their type.
    pub const fn dtype(&self) -> DType {
        match self {
            Self::F16(_) => DType::F16,
            Self::BF16(_) => DType::BF16,
            Self::F32(_) => DType::F32,
        }
    }

    /// Those of `range`.
    ///
    /// # Panics
    /// When it does not lie inside: the caller has checked its input.
    pub fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::F16(values) => Self::F16(&values[range]),
            Self::BF16(values) => Self::BF16(&values[range]),
            Self::F32(values) => Self::F32(&values[range]),
        }
    }
}

impl<'a> ValuesMut<'a> {
    /// Those of a buffer; nothing if they are f64, in which no shard is kept.
    pub fn of(buffer: &'a mut HostBuffer) -> Option<Self> {
        Some(match buffer.dtype() {
            DType::F16 => Self::F16(buffer.as_mut_slice()),
            DType::BF16 => Self::BF16(buffer.as_mut_slice()),
            DType::F32 => Self::F32(buffer.as_mut_slice()),
            DType::F64 => return None,
        })
    }

    /// The elements, to be looked at.
    pub const fn look(&self) -> Values<'_> {
        match self {
            Self::F16(values) => Values::F16(values),
            Self::BF16(values) => Values::BF16(values),
            Self::F32(values) => Values::F32(values),
        }
    }

    /// Those of `range`, to be changed.
    ///
    /// # Panics
    /// When it does not lie inside: the caller has checked its input.
    pub fn part(&mut self, range: Range<usize>) -> ValuesMut<'_> {
        match self {
            Self::F16(values) => ValuesMut::F16(&mut values[range]),
            Self::BF16(values) => ValuesMut::BF16(&mut values[range]),
            Self::F32(values) => ValuesMut::F32(&mut values[range]),
        }
    }

    /// The first `middle` elements and the others.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn split_at(self, middle: usize) -> (Self, Self) {
        match self {
            Self::F16(values) => {
                let (one, other) = values.split_at_mut(middle);
                (Self::F16(one), Self::F16(other))
            }
            Self::BF16(values) => {
                let (one, other) = values.split_at_mut(middle);
                (Self::BF16(one), Self::BF16(other))
            }
            Self::F32(values) => {
                let (one, other) = values.split_at_mut(middle);
                (Self::F32(one), Self::F32(other))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_cut() {
        for dtype in [DType::F16, DType::BF16, DType::F32] {
            let mut buffer = HostBuffer::zeros_of(dtype, 5);
            assert_eq!(Values::of(&buffer).unwrap().part(1..4).len(), 3);
            let mut values = ValuesMut::of(&mut buffer).unwrap();
            assert_eq!((values.look().dtype(), values.part(2..5).look().len()), (dtype, 3));
            let (one, other) = values.split_at(2);
            assert_eq!((one.look().len(), other.look().len()), (2, 3));
        }
        let mut wide = HostBuffer::zeros::<f64>(1);
        assert!(Values::of(&wide).is_none() && ValuesMut::of(&mut wide).is_none());
    }
}
