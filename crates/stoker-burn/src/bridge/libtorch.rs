//! LibTorch, on the CPU or a GPU: slabs are libtorch's own tensors, so views of a slab outlive anything.

use super::misfit;
use burn::tensor::Shape;
use burn_tch::TchTensor;
use std::ops::Range;
use std::sync::Arc;
use stoker_core::{DType, Error, HostBuffer, Result, Ticket};
use stoker_engine::{Bridge, Landing};

/// The bridge of the LibTorch backend. Copies are done when they return.
#[derive(Debug)]
pub(crate) struct LibTorchBridge {
    device: tch::Device,
}

impl LibTorchBridge {
    /// Of slabs on a LibTorch device of Burn's.
    pub(crate) fn new(device: tch::Device) -> Self {
        Self { device }
    }
}

/// A slab: a flat tensor whose views carry its storage count.
#[derive(Debug)]
pub(crate) struct LibTorchSlab {
    tensor: TchTensor,
    dtype: DType,
}

impl LibTorchSlab {
    /// A tensor that shares elements `range`.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub(crate) fn view(&self, range: &Range<usize>, shape: &Shape) -> Result<TchTensor> {
        let shape: Vec<i64> = shape.as_slice().iter().map(|&n| n as i64).collect();
        let part =
            narrow(&self.tensor.tensor, range)?.f_view(shape.as_slice()).map_err(failed("viewing a parameter"))?;
        Ok(TchTensor::partial(part, self.tensor.storage.clone()))
    }
}

fn failed(doing: &'static str) -> impl Fn(tch::TchError) -> Error {
    move |source| Error::Plugin { plugin: "libtorch".to_owned(), doing: doing.to_owned(), source: source.into() }
}

fn kind(dtype: DType) -> tch::Kind {
    match dtype {
        DType::F16 => tch::Kind::Half,
        DType::BF16 => tch::Kind::BFloat16,
        DType::F32 => tch::Kind::Float,
        DType::F64 => tch::Kind::Double,
    }
}

fn narrow(tensor: &tch::Tensor, range: &Range<usize>) -> Result<tch::Tensor> {
    tensor.f_narrow(0, range.start as i64, range.len() as i64).map_err(failed("narrowing a slab"))
}

impl Bridge for LibTorchBridge {
    type Slab = LibTorchSlab;
    type Gradient = TchTensor;

    fn allocate(&mut self, dtype: DType, elements: usize) -> Result<LibTorchSlab> {
        let zeros = tch::Tensor::f_zeros([elements as i64], (kind(dtype), self.device));
        Ok(LibTorchSlab { tensor: TchTensor::new(zeros.map_err(failed("allocating a slab"))?), dtype })
    }

    fn is_shared(&self, slab: &LibTorchSlab) -> bool {
        Arc::strong_count(slab.tensor.storage.buffer_ref()) > 1
    }

    fn lend(&mut self, _slab: &mut LibTorchSlab) -> Option<HostBuffer> {
        // The memory is libtorch's.
        None
    }

    fn restore(&mut self, _slab: &mut LibTorchSlab, _memory: HostBuffer) {}

    fn copy_in(&mut self, source: HostBuffer, slab: &mut LibTorchSlab) -> Result<Ticket<HostBuffer>> {
        let shape = [source.len() as i64];
        let values = tch::Tensor::f_from_data_size(source.as_bytes(), &shape, kind(source.dtype()));
        let values = values.map_err(failed("reading a host buffer"))?;
        narrow(&slab.tensor.tensor, &(0..source.len()))?.f_copy_(&values).map_err(failed("filling a slab"))?;
        Ok(Ticket::ready(source))
    }

    fn copy_out(
        &mut self,
        slab: &LibTorchSlab,
        range: Range<usize>,
        mut into: HostBuffer,
    ) -> Result<Ticket<HostBuffer>> {
        let elements = range.len();
        let values = narrow(&slab.tensor.tensor, &range)?;
        let values = values.f_to_device(tch::Device::Cpu).map_err(failed("copying a slab to the host"))?;
        values.f_copy_data_u8(into.as_mut_bytes(), elements).map_err(failed("reading a slab"))?;
        Ok(Ticket::ready(into))
    }

    fn land(
        &mut self,
        gradient: TchTensor,
        slab: &mut LibTorchSlab,
        range: Range<usize>,
        landing: Landing,
    ) -> Result<bool> {
        if gradient.tensor.numel() != range.len() {
            return Err(misfit(gradient.tensor.numel(), range.len()));
        }
        let flat = gradient.tensor.f_reshape([-1]).map_err(failed("flattening a gradient"))?;
        let mut target = narrow(&slab.tensor.tensor, &range)?;
        match landing {
            Landing::Set => target.f_copy_(&flat).map_err(failed("landing a gradient"))?,
            Landing::Add => {
                let flat = flat.f_to_kind(kind(slab.dtype)).map_err(failed("casting a gradient"))?;
                drop(target.f_add_(&flat).map_err(failed("adding a gradient"))?);
            }
        }
        // The CPU has the answer at once.
        if flat.numel() == 0 {
            return Ok(true);
        }
        let finite = flat.f_isfinite().and_then(|finite| finite.f_all()).map_err(failed("checking a gradient"))?;
        finite.f_int64_value(&[]).map(|finite| finite != 0).map_err(failed("checking a gradient"))
    }
}
