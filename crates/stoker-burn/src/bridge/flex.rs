//! Flex: device buffers are host memory behind an `Arc`, and views share it.

use super::{burn_type, misfit, strange};
use burn::tensor::{Bytes, DType, Shape};
use burn_flex::{FlexTensor, Layout};
use std::ops::Range;
use std::sync::Arc;
use stoker_core::half::{bf16, f16};
use stoker_core::{HostBuffer, Result, Ticket};
use stoker_engine::{Bridge, DeviceRoom, Landing};

/// The bridge of the Flex backend. Copies are done when they return.
#[derive(Debug)]
pub(crate) struct FlexBridge;

/// A slab: views are tensors that share `data`, so its reference count says whether any is alive.
#[derive(Debug)]
pub(crate) struct FlexSlab {
    data: Arc<Bytes>,
    dtype: stoker_core::DType,
    elements: usize,
}

impl FlexSlab {
    fn new(memory: HostBuffer) -> Self {
        let (elements, dtype) = (memory.len(), memory.dtype());
        Self { data: Arc::new(Bytes::from_elems(memory.into_words())), dtype, elements }
    }

    /// The elements of `range`, as bytes.
    fn bytes(&self, range: &Range<usize>) -> &[u8] {
        let size = self.dtype.size();
        &self.data[range.start * size..range.end * size]
    }

    /// As [`bytes`](Self::bytes), if nobody shares them. Whole words were their beginning, whose alignment suits every
    /// element type.
    fn bytes_mut(&mut self, range: &Range<usize>) -> Result<&mut [u8]> {
        let size = self.dtype.size();
        let data = Arc::get_mut(&mut self.data).ok_or_else(shared)?;
        Ok(&mut data[range.start * size..range.end * size])
    }

    /// A tensor that shares elements `range`.
    pub(crate) fn view(&self, range: &Range<usize>, shape: Shape) -> FlexTensor {
        let strides = Layout::contiguous(shape.clone()).strides().to_vec();
        FlexTensor::from_arc(self.data.clone(), Layout::new(shape, strides, range.start), burn_type(self.dtype))
    }
}

/// A slab that was to be written is still shared: the engine asks [`Bridge::is_shared`] first.
fn shared() -> stoker_core::Error {
    stoker_core::Error::OutOfRange {
        what: "the number of owners of a slab to be written".to_owned(),
        found: 2,
        wanted: 1,
    }
}

impl Bridge for FlexBridge {
    type Slab = FlexSlab;
    type Gradient = FlexTensor;

    fn memory(&self) -> Result<DeviceRoom> {
        Ok(DeviceRoom::Host)
    }

    fn allocate(&mut self, dtype: stoker_core::DType, elements: usize) -> Result<FlexSlab> {
        Ok(FlexSlab::new(HostBuffer::zeros_of(dtype, elements)))
    }

    fn is_shared(&self, slab: &FlexSlab) -> bool {
        Arc::strong_count(&slab.data) > 1
    }

    fn lend(&mut self, slab: &mut FlexSlab) -> Option<HostBuffer> {
        if self.is_shared(slab) {
            return None;
        }
        let data = std::mem::replace(&mut slab.data, Arc::new(Bytes::from_elems(Vec::<u64>::new())));
        let words = Arc::try_unwrap(data).ok()?.try_into_vec::<u64>().ok()?;
        HostBuffer::from_words(slab.dtype, slab.elements, words).ok()
    }

    fn restore(&mut self, slab: &mut FlexSlab, memory: HostBuffer) {
        *slab = FlexSlab::new(memory);
    }

    fn copy_in(&mut self, source: HostBuffer, slab: &mut FlexSlab) -> Result<Ticket<HostBuffer>> {
        slab.bytes_mut(&(0..source.len()))?.copy_from_slice(source.as_bytes());
        Ok(Ticket::ready(source))
    }

    fn before_use(&mut self, _slab: &mut FlexSlab) -> Result<()> {
        Ok(())
    }

    fn copy_out(&mut self, slab: &FlexSlab, range: Range<usize>, mut into: HostBuffer) -> Result<Ticket<HostBuffer>> {
        into.as_mut_bytes().copy_from_slice(slab.bytes(&range));
        Ok(Ticket::ready(into))
    }

    fn land(
        &mut self,
        gradient: FlexTensor,
        slab: &mut FlexSlab,
        range: Range<usize>,
        landing: Landing,
    ) -> Result<bool> {
        let found = gradient.layout().shape().num_elements();
        if found != range.len() {
            return Err(misfit(found, range.len()));
        }
        let gradient = gradient.to_contiguous();
        let dtype = slab.dtype;
        let target = slab.bytes_mut(&range)?;
        match gradient.dtype() {
            DType::F32 => land(elements::<f32>(&gradient)?, target, dtype, landing),
            DType::BF16 => land(elements::<bf16>(&gradient)?, target, dtype, landing),
            DType::F16 => land(elements::<f16>(&gradient)?, target, dtype, landing),
            other => Err(strange(&format!("{other:?}"))),
        }
    }
}

fn elements<T: burn::tensor::Element + bytemuck::Pod>(gradient: &FlexTensor) -> Result<&[T]> {
    gradient.as_slice::<T>().ok_or_else(|| strange("not what it says"))
}

/// Lands a gradient in a bucket of another type, or of the same.
fn land<T: Float>(source: &[T], target: &mut [u8], dtype: stoker_core::DType, landing: Landing) -> Result<bool> {
    match dtype {
        stoker_core::DType::F32 => Ok(land_in(source, bytemuck::cast_slice_mut::<u8, f32>(target), landing)),
        stoker_core::DType::BF16 => Ok(land_in(source, bytemuck::cast_slice_mut::<u8, bf16>(target), landing)),
        stoker_core::DType::F16 => Ok(land_in(source, bytemuck::cast_slice_mut::<u8, f16>(target), landing)),
        stoker_core::DType::F64 => Err(strange("f64")),
    }
}

fn land_in<T: Float, U: Float>(source: &[T], target: &mut [U], landing: Landing) -> bool {
    // A product with zero is zero, or NaN for what is not finite; a sum of these is cheaper than a branch for each.
    let mut zero = 0.0;
    for (place, value) in target.iter_mut().zip(source) {
        let value = value.widen();
        let sum = if landing == Landing::Add { place.widen() + value } else { value };
        *place = U::narrow(sum);
        // What the bucket holds now: its type may be too narrow for it.
        zero += place.widen() * 0.0;
    }
    zero == 0.0
}

/// The element types that gradients have.
trait Float: bytemuck::Pod {
    fn widen(self) -> f32;
    fn narrow(value: f32) -> Self;
}

impl Float for f32 {
    fn widen(self) -> f32 {
        self
    }

    fn narrow(value: f32) -> Self {
        value
    }
}

impl Float for bf16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }

    fn narrow(value: f32) -> Self {
        Self::from_f32(value)
    }
}

impl Float for f16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }

    fn narrow(value: f32) -> Self {
        Self::from_f32(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_keeps_the_slab_shared_and_its_values() {
        let mut bridge = FlexBridge;
        let mut slab = bridge_slab(7);
        let source = HostBuffer::from_slice(&[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        bridge.copy_in(source, &mut slab).unwrap().wait().unwrap();
        let view = slab.view(&(1..7), Shape::new([2, 3]));
        assert!(bridge.is_shared(&slab));
        assert!(bridge.lend(&mut slab).is_none());
        assert_eq!(view.to_contiguous().as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        bridge.land(view.transpose(0, 1), &mut bridge_slab(6), 0..6, Landing::Set).unwrap();
        drop(view);
        let memory = bridge.lend(&mut slab).unwrap();
        assert_eq!(memory.as_slice::<f32>()[6], 6.0);
        bridge.restore(&mut slab, memory);
        assert_eq!(values(&slab)[6], 6.0);
    }

    fn bridge_slab(elements: usize) -> FlexSlab {
        FlexBridge.allocate(stoker_core::DType::F32, elements).unwrap()
    }

    fn values(slab: &FlexSlab) -> &[f32] {
        bytemuck::cast_slice(slab.bytes(&(0..slab.elements)))
    }

    #[test]
    fn gradients_land_in_row_major_order_and_add_up() {
        let mut bridge = FlexBridge;
        let mut slab = bridge_slab(6);
        let gradient = || {
            let data = burn::tensor::TensorData::new(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]);
            FlexTensor::from_data(data).transpose(0, 1)
        };
        assert!(bridge.land(gradient(), &mut slab, 1..5, Landing::Set).unwrap());
        assert!(bridge.land(gradient(), &mut slab, 1..5, Landing::Add).unwrap());
        assert_eq!(values(&slab), [0.0, 2.0, 6.0, 4.0, 8.0, 0.0]);
        let error = bridge.land(gradient(), &mut slab, 0..5, Landing::Set).unwrap_err().to_string();
        assert!(error.starts_with("the number of elements of a gradient is 4"), "{error}");
    }

    #[test]
    fn gradients_land_in_the_type_of_the_bucket() {
        let mut bridge = FlexBridge;
        let gradient = |values: [f32; 2]| {
            let narrow = values.map(bf16::from_f32).to_vec();
            FlexTensor::from_data(burn::tensor::TensorData::new(narrow, [2]))
        };
        let mut wide = bridge_slab(2);
        assert!(bridge.land(gradient([1.0, 3.0]), &mut wide, 0..2, Landing::Set).unwrap());
        assert_eq!(values(&wide), [1.0, 3.0]);
        for (value, finite) in [(f32::INFINITY, false), (f32::NAN, false), (3e38, true)] {
            assert_eq!(bridge.land(gradient([0.0, value]), &mut wide, 0..2, Landing::Set).unwrap(), finite);
        }
        let mut narrow = bridge.allocate(stoker_core::DType::BF16, 2).unwrap();
        let third = FlexTensor::from_data(burn::tensor::TensorData::new(vec![1.0f32 / 3.0, 2.0], [2]));
        bridge.land(third, &mut narrow, 0..2, Landing::Set).unwrap();
        bridge.land(gradient([1.0, 1.0]), &mut narrow, 0..2, Landing::Add).unwrap();
        let found: &[bf16] = bytemuck::cast_slice(narrow.bytes(&(0..2)));
        assert_eq!(found, [bf16::from_f32(bf16::from_f32(1.0 / 3.0).to_f32() + 1.0), bf16::from_f32(3.0)]);
        // More than an f16 holds, at once or by and by.
        let mut half = bridge.allocate(stoker_core::DType::F16, 2).unwrap();
        assert!(!bridge.land(gradient([1e5, 1.0]), &mut half, 0..2, Landing::Set).unwrap());
        assert!(bridge.land(gradient([4e4, 1.0]), &mut half, 0..2, Landing::Set).unwrap());
        assert!(!bridge.land(gradient([4e4, 1.0]), &mut half, 0..2, Landing::Add).unwrap());
    }
}
