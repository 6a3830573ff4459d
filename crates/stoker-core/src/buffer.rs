//! Host memory that is moved into a call and handed back by its ticket.

use half::{bf16, f16};
use std::fmt;
use std::ops::Range;

/// The element type of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// 16-bit IEEE 754: 11 bits of precision, overflows at 65,520.
    F16,
    /// The upper half of an f32: 8 bits of precision, the range of f32.
    BF16,
    /// 32-bit IEEE 754.
    F32,
    /// 64-bit IEEE 754; for sums that cross ranks, not for parameters.
    F64,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            DType::F16 | DType::BF16 => 2,
            DType::F32 => 4,
            DType::F64 => 8,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        })
    }
}

/// A type that a [`HostBuffer`] can hold.
pub trait Element: bytemuck::Pod + Send + Sync {
    /// The buffer's tag for this type.
    const DTYPE: DType;
}

impl Element for f16 {
    const DTYPE: DType = DType::F16;
}

impl Element for bf16 {
    const DTYPE: DType = DType::BF16;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for f64 {
    const DTYPE: DType = DType::F64;
}

/// Memory that something else than Rust's allocator gave, and takes back when it is dropped: pinned memory, for one.
pub trait HostMemory: fmt::Debug + Send + Sync {
    /// All of it.
    fn words(&self) -> &[u64];

    /// All of it, to be changed.
    fn words_mut(&mut self) -> &mut [u64];
}

// Words rather than bytes: the alignment suits every element type, and `Vec<u64>` can become another library's buffer
// (Burn's `Bytes`) without a copy.
enum Memory {
    Own(Vec<u64>),
    Foreign(Box<dyn HostMemory>),
}

impl Memory {
    fn words(&self) -> &[u64] {
        match self {
            Self::Own(words) => words,
            Self::Foreign(memory) => memory.words(),
        }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        match self {
            Self::Own(words) => words,
            Self::Foreign(memory) => memory.words_mut(),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

/// A typed block of host memory with one owner.
///
/// Asynchronous calls take a buffer by value and give it back through a [`Ticket`](crate::Ticket): while a copy or a
/// collective is in flight nobody else can touch the memory, and no `unsafe` is needed to say so. Moving one is cheap.
///
/// ```
/// use stoker_core::HostBuffer;
/// let mut buffer = HostBuffer::zeros::<f32>(3);
/// buffer.as_mut_slice::<f32>()[1] = 2.5;
/// assert_eq!(buffer.as_slice::<f32>(), [0.0, 2.5, 0.0]);
/// ```
#[derive(Default)]
pub struct HostBuffer {
    memory: Memory,
    elements: usize,
    dtype: Option<DType>,
}

impl HostBuffer {
    /// `elements` zeros.
    pub fn zeros<T: Element>(elements: usize) -> Self {
        Self::zeros_of(T::DTYPE, elements)
    }

    /// `elements` zeros of a type known at run time.
    pub fn zeros_of(dtype: DType, elements: usize) -> Self {
        let words = (elements * dtype.size()).div_ceil(8);
        Self { memory: Memory::Own(vec![0; words]), elements, dtype: Some(dtype) }
    }

    /// A copy of `values`.
    pub fn from_slice<T: Element>(values: &[T]) -> Self {
        let mut buffer = Self::zeros::<T>(values.len());
        buffer.as_mut_slice::<T>().copy_from_slice(values);
        buffer
    }

    /// Takes over memory of at least `elements` elements that [`into_words`](Self::into_words) gave away.
    ///
    /// # Errors
    /// Gives the words back when they are too few.
    pub fn from_words(dtype: DType, elements: usize, words: Vec<u64>) -> std::result::Result<Self, Vec<u64>> {
        if words.len() * 8 < elements * dtype.size() {
            return Err(words);
        }
        Ok(Self { memory: Memory::Own(words), elements, dtype: Some(dtype) })
    }

    /// The same elements in `memory`, which is at least as long: what was there is overwritten.
    ///
    /// # Errors
    /// Gives the buffer back, unchanged, when `memory` is too short.
    pub fn moved_to(self, mut memory: Box<dyn HostMemory>) -> std::result::Result<Self, Self> {
        let words = self.bytes().div_ceil(8);
        let (Some(from), Some(to)) = (self.memory.words().get(..words), memory.words_mut().get_mut(..words)) else {
            return Err(self);
        };
        to.copy_from_slice(from);
        Ok(Self { memory: Memory::Foreign(memory), elements: self.elements, dtype: self.dtype })
    }

    /// The memory itself, for a library that wants to own it; a copy if it is another library's already.
    pub fn into_words(self) -> Vec<u64> {
        match self.memory {
            Memory::Own(words) => words,
            Memory::Foreign(memory) => memory.words().to_vec(),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether the buffer holds no element; so does one whose memory was taken away.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// Element type; [`DType::F32`] for a default (empty) buffer.
    pub fn dtype(&self) -> DType {
        self.dtype.unwrap_or(DType::F32)
    }

    /// Bytes of the elements.
    pub fn bytes(&self) -> usize {
        self.elements * self.dtype().size()
    }

    /// The elements.
    ///
    /// # Panics
    /// When `T` is not the buffer's type: a mistake in the program, never in its input.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        assert_eq!(T::DTYPE, self.dtype(), "a buffer of {} was read as {}", self.dtype(), T::DTYPE);
        &bytemuck::cast_slice(self.memory.words())[..self.elements]
    }

    /// The elements, to be changed.
    ///
    /// # Panics
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(T::DTYPE, self.dtype(), "a buffer of {} was written as {}", self.dtype(), T::DTYPE);
        &mut bytemuck::cast_slice_mut(self.memory.words_mut())[..self.elements]
    }

    /// The bytes of the elements.
    pub fn as_bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(self.memory.words())[..self.bytes()]
    }

    /// The bytes of the elements, to be changed.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        let bytes = self.bytes();
        &mut bytemuck::cast_slice_mut(self.memory.words_mut())[..bytes]
    }

    /// Copies elements `range` of `source` to element `at` on.
    ///
    /// # Panics
    /// When the types differ or a range lies outside: the caller checks its input.
    pub fn copy_elements(&mut self, at: usize, source: &Self, range: Range<usize>) {
        assert_eq!(self.dtype(), source.dtype(), "a buffer of {} was filled from {}", self.dtype(), source.dtype());
        let size = self.dtype().size();
        let target = at * size..(at + range.len()) * size;
        self.as_mut_bytes()[target].copy_from_slice(&source.as_bytes()[range.start * size..range.end * size]);
    }

    /// Takes the memory out and leaves an empty buffer.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer({} x {})", self.elements, self.dtype())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_through_words() {
        let buffer = HostBuffer::from_slice(&[1.0f32, 2.0, 3.0]);
        let words = buffer.into_words();
        assert_eq!(words.len(), 2);
        let back = HostBuffer::from_words(DType::F32, 3, words).unwrap();
        assert_eq!(back.as_slice::<f32>(), [1.0, 2.0, 3.0]);
        assert!(HostBuffer::from_words(DType::F64, 3, back.into_words()).is_err());
    }

    #[derive(Debug)]
    struct Elsewhere([u64; 2]);

    impl HostMemory for Elsewhere {
        fn words(&self) -> &[u64] {
            &self.0
        }

        fn words_mut(&mut self) -> &mut [u64] {
            &mut self.0
        }
    }

    #[test]
    fn elements_can_move_to_memory_of_another_kind() {
        let buffer = HostBuffer::from_slice(&[1.0f32, 2.0, 3.0]);
        let mut moved = buffer.moved_to(Box::new(Elsewhere([7; 2]))).unwrap();
        moved.as_mut_slice::<f32>()[1] = 5.0;
        assert_eq!(moved.as_slice::<f32>(), [1.0, 5.0, 3.0]);
        assert_eq!(
            HostBuffer::from_words(DType::F32, 3, moved.into_words()).unwrap().as_slice::<f32>(),
            [1.0, 5.0, 3.0]
        );
        let long = HostBuffer::from_slice(&[1.0f32; 5]);
        assert_eq!(long.moved_to(Box::new(Elsewhere([7; 2]))).unwrap_err().as_slice::<f32>(), [1.0; 5]);
    }

    #[test]
    #[should_panic(expected = "a buffer of f64 was read as f32")]
    fn another_type_is_refused() {
        HostBuffer::zeros::<f64>(1).as_slice::<f32>();
    }

    #[test]
    fn elements_are_copied_whatever_their_type() {
        let source = HostBuffer::from_slice(&[1.0f32, 2.0, 3.0, 4.0].map(bf16::from_f32));
        let mut buffer = HostBuffer::zeros::<bf16>(3);
        assert_eq!(buffer.bytes(), 6);
        buffer.copy_elements(1, &source, 2..4);
        assert_eq!(buffer.as_slice::<bf16>().iter().map(|v| v.to_f32()).collect::<Vec<_>>(), [0.0, 3.0, 4.0]);
    }

    #[test]
    fn a_default_buffer_is_empty() {
        assert!(HostBuffer::default().as_slice::<f32>().is_empty());
        assert_eq!(HostBuffer::zeros::<f64>(3).bytes(), 24);
    }
}
