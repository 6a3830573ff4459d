//! LibTorch on the CPU: slabs are libtorch's own tensors, so views of a slab outlive anything.

use super::misfit;
use burn::tensor::Shape;
use burn_tch::TchTensor;
use std::ops::Range;
use std::sync::Arc;
use stoker_core::{Error, HostBuffer, Result, Ticket};
use stoker_engine::{Bridge, Landing};

/// The bridge of the LibTorch backend on the CPU. Copies are done when they return.
#[derive(Debug)]
pub(crate) struct LibTorchBridge;

/// A slab: a flat tensor whose views carry its storage count.
#[derive(Debug)]
pub(crate) struct LibTorchSlab(TchTensor);

impl LibTorchSlab {
    /// A tensor that shares elements `range`.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub(crate) fn view(&self, range: &Range<usize>, shape: &Shape) -> Result<TchTensor> {
        let shape: Vec<i64> = shape.as_slice().iter().map(|&n| n as i64).collect();
        let part = narrow(&self.0.tensor, range)?.f_view(shape.as_slice()).map_err(failed("viewing a parameter"))?;
        Ok(TchTensor::partial(part, self.0.storage.clone()))
    }
}

fn failed(doing: &'static str) -> impl Fn(tch::TchError) -> Error {
    move |source| Error::Plugin { plugin: "libtorch".to_owned(), doing: doing.to_owned(), source: source.into() }
}

fn narrow(tensor: &tch::Tensor, range: &Range<usize>) -> Result<tch::Tensor> {
    tensor.f_narrow(0, range.start as i64, range.len() as i64).map_err(failed("narrowing a slab"))
}

impl Bridge for LibTorchBridge {
    type Slab = LibTorchSlab;
    type Gradient = TchTensor;

    fn allocate(&mut self, elements: usize) -> Result<LibTorchSlab> {
        let zeros = tch::Tensor::f_zeros([elements as i64], (tch::Kind::Float, tch::Device::Cpu));
        Ok(LibTorchSlab(TchTensor::new(zeros.map_err(failed("allocating a slab"))?)))
    }

    fn is_shared(&self, slab: &LibTorchSlab) -> bool {
        Arc::strong_count(slab.0.storage.buffer_ref()) > 1
    }

    fn lend(&mut self, _slab: &mut LibTorchSlab) -> Option<HostBuffer> {
        // The memory is libtorch's.
        None
    }

    fn restore(&mut self, _slab: &mut LibTorchSlab, _memory: HostBuffer) {}

    fn copy_in(&mut self, source: HostBuffer, slab: &mut LibTorchSlab) -> Result<Ticket<HostBuffer>> {
        let values = tch::Tensor::f_from_slice(source.as_slice::<f32>()).map_err(failed("reading a host buffer"))?;
        narrow(&slab.0.tensor, &(0..source.len()))?.f_copy_(&values).map_err(failed("filling a slab"))?;
        Ok(Ticket::ready(source))
    }

    fn copy_out(
        &mut self,
        slab: &LibTorchSlab,
        range: Range<usize>,
        mut into: HostBuffer,
    ) -> Result<Ticket<HostBuffer>> {
        let elements = range.len();
        let values = narrow(&slab.0.tensor, &range)?;
        values.f_copy_data(into.as_mut_slice::<f32>(), elements).map_err(failed("reading a slab"))?;
        Ok(Ticket::ready(into))
    }

    fn land(
        &mut self,
        gradient: TchTensor,
        slab: &mut LibTorchSlab,
        range: Range<usize>,
        landing: Landing,
    ) -> Result<()> {
        if gradient.tensor.numel() != range.len() {
            return Err(misfit(gradient.tensor.numel(), range.len()));
        }
        let flat = gradient.tensor.f_reshape([-1]).map_err(failed("flattening a gradient"))?;
        let mut target = narrow(&slab.0.tensor, &range)?;
        match landing {
            Landing::Set => target.f_copy_(&flat).map_err(failed("landing a gradient"))?,
            Landing::Add => drop(target.f_add_(&flat).map_err(failed("adding a gradient"))?),
        }
        Ok(())
    }
}
