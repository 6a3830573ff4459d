//! LibTorch, on the CPU or a GPU: slabs are libtorch's own tensors, so views of a slab outlive anything.

use super::cuda::Cuda;
use super::misfit;
use burn::tensor::Shape;
use burn_tch::TchTensor;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use stoker_core::{DType, Error, HostBuffer, Result, Ticket};
use stoker_cuda::Mark;
use stoker_engine::{Adopted, Bridge, Copies, DeviceRoom, Landing, OnDevice};

/// The bridge of the LibTorch backend. On the CPU copies are done when they return; on a GPU they run on streams.
#[derive(Debug)]
pub(crate) struct LibTorchBridge {
    device: tch::Device,
    /// Ranks that compute on it.
    ranks: usize,
    cuda: Option<Cuda>,
}

impl LibTorchBridge {
    /// Of slabs on a LibTorch device of Burn's, that so many ranks compute on. A GPU is waited for no longer than
    /// `timeout`, and made as small as `memory_limit`.
    ///
    /// # Errors
    /// What the driver fails with.
    pub(crate) fn new(device: tch::Device, ranks: usize, timeout: Duration, memory_limit: Option<u64>) -> Result<Self> {
        let cuda = match device {
            tch::Device::Cuda(ordinal) => Some(Cuda::open(ordinal, timeout, memory_limit)?),
            _ => None,
        };
        Ok(Self { device, ranks, cuda })
    }

    /// As [`Bridge::land`] tells it.
    fn is_finite(&self, gradient: &tch::Tensor) -> Result<bool> {
        // The CPU has the answer at once; a GPU would have to be waited for.
        if gradient.numel() == 0 || self.cuda.is_some() {
            return Ok(true);
        }
        let finite = gradient.f_isfinite().and_then(|finite| finite.f_all()).map_err(failed("checking a gradient"))?;
        finite.f_int64_value(&[]).map(|finite| finite != 0).map_err(failed("checking a gradient"))
    }
}

/// A slab: a flat tensor whose views carry its storage count.
#[derive(Debug)]
pub(crate) struct LibTorchSlab {
    pub(super) tensor: TchTensor,
    dtype: DType,
    /// The end of the last copy to it, until the computation was told of it.
    filled: Option<Mark>,
}

impl LibTorchSlab {
    pub(super) fn zeros(device: tch::Device, dtype: DType, elements: usize) -> Result<Self> {
        let zeros = tch::Tensor::f_zeros([elements as i64], (kind(dtype), device));
        let tensor = TchTensor::new(zeros.map_err(failed("allocating a slab"))?);
        Ok(Self { tensor, dtype, filled: None })
    }

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

pub(super) fn failed(doing: &'static str) -> impl Fn(tch::TchError) -> Error {
    move |source| Error::Plugin { plugin: "libtorch".to_owned(), doing: doing.to_owned(), source: source.into() }
}

pub(super) fn kind(dtype: DType) -> tch::Kind {
    match dtype {
        DType::F16 => tch::Kind::Half,
        DType::BF16 => tch::Kind::BFloat16,
        DType::F32 => tch::Kind::Float,
        DType::F64 => tch::Kind::Double,
    }
}

pub(super) fn narrow(tensor: &tch::Tensor, range: &Range<usize>) -> Result<tch::Tensor> {
    tensor.f_narrow(0, range.start as i64, range.len() as i64).map_err(failed("narrowing a slab"))
}

impl Bridge for LibTorchBridge {
    type Slab = LibTorchSlab;
    type Gradient = TchTensor;

    fn memory(&self) -> Result<DeviceRoom> {
        Ok(match &self.cuda {
            Some(cuda) => DeviceRoom::Own { free: cuda.free_bytes()?, ranks: self.ranks },
            None => DeviceRoom::Host,
        })
    }

    fn pins(&self) -> bool {
        self.cuda.is_some()
    }

    fn allocate(&mut self, dtype: DType, elements: usize) -> Result<LibTorchSlab> {
        LibTorchSlab::zeros(self.device, dtype, elements)
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
        let mut target = narrow(&slab.tensor.tensor, &(0..source.len()))?;
        if let Some(cuda) = &self.cuda {
            let (ticket, mark) = cuda.copy_in(source, &target)?;
            slab.filled = Some(mark);
            return Ok(ticket);
        }
        let shape = [source.len() as i64];
        let values = tch::Tensor::f_from_data_size(source.as_bytes(), &shape, kind(source.dtype()));
        let values = values.map_err(failed("reading a host buffer"))?;
        target.f_copy_(&values).map_err(failed("filling a slab"))?;
        Ok(Ticket::ready(source))
    }

    fn before_use(&mut self, slab: &mut LibTorchSlab) -> Result<()> {
        match slab.filled.take() {
            Some(mark) => Ok(mark.before_computation()?),
            None => Ok(()),
        }
    }

    fn copy_out(
        &mut self,
        slab: &LibTorchSlab,
        range: Range<usize>,
        mut into: HostBuffer,
    ) -> Result<Ticket<HostBuffer>> {
        let elements = range.len();
        let values = narrow(&slab.tensor.tensor, &range)?;
        if let Some(cuda) = &self.cuda {
            return cuda.copy_out(values, into);
        }
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
        // Of what the bucket holds now: its type may be too narrow for it.
        self.is_finite(&target)
    }

    fn adopt(
        &mut self,
        gradient: TchTensor,
        dtype: DType,
        elements: usize,
    ) -> std::result::Result<Adopted<LibTorchSlab>, TchTensor> {
        let TchTensor { tensor, storage } = &gradient;
        let fits = (tensor.kind(), tensor.numel()) == (kind(dtype), elements) && tensor.is_contiguous();
        if !fits || Arc::strong_count(storage.buffer_ref()) > 1 {
            return Err(gradient);
        }
        // Landing meets the same errors, and can tell them.
        let Ok(flat) = tensor.f_view([-1]) else { return Err(gradient) };
        let Ok(finite) = self.is_finite(&flat) else { return Err(gradient) };
        Ok(Adopted { slab: LibTorchSlab { tensor: TchTensor::new(flat), dtype, filled: None }, finite })
    }

    fn sums_of_squares(&mut self, slab: &LibTorchSlab, ranges: &[Range<usize>]) -> Result<Option<Ticket<Vec<f64>>>> {
        let Some(cuda) = &mut self.cuda else { return Ok(None) };
        let norm = |range: &Range<usize>| {
            // In f32 whatever the elements are, and without a copy of them in it.
            let norm = narrow(&slab.tensor.tensor, range)?.f_norm_scalaropt_dtype(2.0, tch::Kind::Float);
            norm.map_err(failed("taking the norm of a gradient"))
        };
        let norms = ranges.iter().map(norm).collect::<Result<Vec<_>>>()?;
        if norms.is_empty() {
            return Ok(Some(Ticket::ready(Vec::new())));
        }
        let norms = tch::Tensor::f_stack(&norms, 0).map_err(failed("collecting norms"))?;
        cuda.squares(norms).map(Some)
    }

    fn on_device(&mut self) -> Option<&mut dyn OnDevice<LibTorchSlab>> {
        Some(self)
    }

    fn copies(&self) -> Option<Copies> {
        self.cuda.as_ref().map(Cuda::copies)
    }

    fn pin(&mut self, memory: HostBuffer) -> HostBuffer {
        match &mut self.cuda {
            Some(cuda) => cuda.pin(memory),
            None => memory,
        }
    }
}
