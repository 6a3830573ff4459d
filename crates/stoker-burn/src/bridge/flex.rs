//! Flex: device buffers are host memory behind an `Arc`, and views share it.

use super::misfit;
use burn::tensor::{Bytes, DType, Shape};
use burn_flex::{FlexTensor, Layout};
use std::ops::Range;
use std::sync::Arc;
use stoker_core::{HostBuffer, Result, Ticket};
use stoker_engine::{Bridge, Landing};

/// The bridge of the Flex backend. Copies are done when they return.
#[derive(Debug)]
pub(crate) struct FlexBridge;

/// A slab: views are tensors that share `data`, so its reference count says whether any is alive.
#[derive(Debug)]
pub(crate) struct FlexSlab {
    data: Arc<Bytes>,
    elements: usize,
}

impl FlexSlab {
    fn new(memory: HostBuffer) -> Self {
        let elements = memory.len();
        Self { data: Arc::new(Bytes::from_elems(memory.into_words())), elements }
    }

    fn values(&self) -> &[f32] {
        // The bytes were made from whole words, whose alignment suits f32.
        bytemuck::cast_slice(&self.data[..self.elements * 4])
    }

    fn values_mut(&mut self) -> Option<&mut [f32]> {
        let bytes = self.elements * 4;
        Arc::get_mut(&mut self.data).map(|data| bytemuck::cast_slice_mut(&mut data[..bytes]))
    }

    /// A tensor that shares elements `range`.
    pub(crate) fn view(&self, range: &Range<usize>, shape: Shape) -> FlexTensor {
        let strides = Layout::contiguous(shape.clone()).strides().to_vec();
        FlexTensor::from_arc(self.data.clone(), Layout::new(shape, strides, range.start), DType::F32)
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

    fn allocate(&mut self, elements: usize) -> Result<FlexSlab> {
        Ok(FlexSlab::new(HostBuffer::zeros::<f32>(elements)))
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
        HostBuffer::from_words(stoker_core::DType::F32, slab.elements, words).ok()
    }

    fn restore(&mut self, slab: &mut FlexSlab, memory: HostBuffer) {
        *slab = FlexSlab::new(memory);
    }

    fn copy_in(&mut self, source: HostBuffer, slab: &mut FlexSlab) -> Result<Ticket<HostBuffer>> {
        let values = slab.values_mut().ok_or_else(shared)?;
        values[..source.len()].copy_from_slice(source.as_slice::<f32>());
        Ok(Ticket::ready(source))
    }

    fn copy_out(&mut self, slab: &FlexSlab, range: Range<usize>, mut into: HostBuffer) -> Result<Ticket<HostBuffer>> {
        into.as_mut_slice::<f32>().copy_from_slice(&slab.values()[range]);
        Ok(Ticket::ready(into))
    }

    fn land(&mut self, gradient: FlexTensor, slab: &mut FlexSlab, range: Range<usize>, landing: Landing) -> Result<()> {
        let gradient = gradient.to_contiguous();
        let source = gradient.as_slice::<f32>().unwrap_or_default();
        let target = &mut slab.values_mut().ok_or_else(shared)?[range];
        if source.len() != target.len() {
            return Err(misfit(source.len(), target.len()));
        }
        match landing {
            Landing::Set => target.copy_from_slice(source),
            Landing::Add => target.iter_mut().zip(source).for_each(|(sum, value)| *sum += value),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_keeps_the_slab_shared_and_its_values() {
        let mut bridge = FlexBridge;
        let mut slab = bridge.allocate(7).unwrap();
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
        assert_eq!(slab.values()[6], 6.0);
    }

    fn bridge_slab(elements: usize) -> FlexSlab {
        FlexBridge.allocate(elements).unwrap()
    }

    #[test]
    fn gradients_land_in_row_major_order_and_add_up() {
        let mut bridge = FlexBridge;
        let mut slab = bridge_slab(6);
        let gradient = || {
            let data = burn::tensor::TensorData::new(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]);
            FlexTensor::from_data(data).transpose(0, 1)
        };
        bridge.land(gradient(), &mut slab, 1..5, Landing::Set).unwrap();
        bridge.land(gradient(), &mut slab, 1..5, Landing::Add).unwrap();
        assert_eq!(slab.values(), [0.0, 2.0, 6.0, 4.0, 8.0, 0.0]);
        let error = bridge.land(gradient(), &mut slab, 0..5, Landing::Set).unwrap_err().to_string();
        assert!(error.starts_with("the number of elements of a gradient is 4"), "{error}");
    }
}
