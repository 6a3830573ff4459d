//! Which Burn device a rank computes on.

#[cfg(feature = "libtorch")]
use crate::bridge::resident::LibTorchMemory;
use crate::{Error, Result};
use burn::tensor::Device;
use std::sync::Arc;
use stoker_core::{DType, DeviceMemory};
#[cfg(feature = "libtorch")]
use stoker_libtorch::cuda::{Convolutions, prepare};

/// A Burn backend that stoker has a bridge for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Burn's own CPU backend.
    Flex,
    /// LibTorch on the CPU (feature `libtorch`).
    LibTorch,
    /// LibTorch on CUDA (feature `libtorch`): rank `r` of the process computes on device `r` modulo their number.
    LibTorchCuda,
}

/// Burn's gradient checkpointing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpointing {
    /// Activations are kept.
    None,
    /// Memory-bound operations are computed again in backward.
    Balanced,
}

/// Where and how a rank computes.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSettings {
    /// The backend.
    pub backend: Backend,
    /// What backward computes again.
    pub checkpointing: Checkpointing,
    /// Parameters of fewer bytes are copied out of the slab, so that a graph that keeps one does not keep the slab.
    pub copy_below: u64,
    /// Type that f32 parameters are computed with: [`DType::F32`], [`DType::BF16`] or [`DType::F16`]. Float inputs of a
    /// unit are cast to the type of its parameters.
    pub compute: DType,
}

impl Default for DeviceSettings {
    fn default() -> Self {
        Self { backend: Backend::Flex, checkpointing: Checkpointing::None, copy_below: 256 << 10, compute: DType::F32 }
    }
}

impl DeviceSettings {
    /// The memory of a rank's device, for targets that keep shards there; `None` on Flex, whose memory is the host's. On
    /// LibTorch's CPU it is the host's too, but libtorch's kernels update what is in it.
    ///
    /// # Errors
    /// [`Error::NoCuda`].
    pub fn memory(&self, rank: usize) -> Result<Option<Arc<dyn DeviceMemory>>> {
        match self.backend {
            Backend::Flex => Ok(None),
            Backend::LibTorch | Backend::LibTorchCuda => self.libtorch_memory(rank),
        }
    }

    #[cfg(feature = "libtorch")]
    fn libtorch_memory(&self, rank: usize) -> Result<Option<Arc<dyn DeviceMemory>>> {
        Ok(Some(Arc::new(LibTorchMemory(self.tch_device(rank, 1)?.0))))
    }

    #[cfg(not(feature = "libtorch"))]
    fn libtorch_memory(&self, rank: usize) -> Result<Option<Arc<dyn DeviceMemory>>> {
        self.libtorch_device(rank).map(|_| None)
    }

    /// The Burn device of a rank, with autodiff.
    pub(crate) fn device(&self, rank: usize) -> Result<Device> {
        let device = match self.backend {
            Backend::Flex => Device::flex(),
            Backend::LibTorch | Backend::LibTorchCuda => self.libtorch_device(rank)?,
        };
        let device = device.autodiff();
        Ok(match self.checkpointing {
            Checkpointing::None => device,
            Checkpointing::Balanced => device.gradient_checkpointing(),
        })
    }

    #[cfg(feature = "libtorch")]
    fn libtorch_device(&self, rank: usize) -> Result<Device> {
        Ok(match self.tch_device(rank, 1)?.0 {
            tch::Device::Cuda(index) => Device::libtorch_cuda(index),
            _ => Device::libtorch(),
        })
    }

    #[cfg(not(feature = "libtorch"))]
    fn libtorch_device(&self, _rank: usize) -> Result<Device> {
        let backend = if self.backend == Backend::LibTorchCuda { "libtorch-cuda" } else { "libtorch" };
        Err(Error::BackendMissing { backend, feature: "libtorch" })
    }

    /// The LibTorch device of a rank, and how many of `world` ranks have it.
    #[cfg(feature = "libtorch")]
    pub(crate) fn tch_device(&self, rank: usize, world: usize) -> Result<(tch::Device, usize)> {
        if self.backend != Backend::LibTorchCuda {
            return Ok((tch::Device::Cpu, world));
        }
        let convolutions = if self.compute == DType::F32 { Convolutions::Own } else { Convolutions::CuDnn };
        let devices = prepare(convolutions).map_err(|error| Error::NoCuda { problem: error.to_string() })?;
        let index = rank.checked_rem(devices);
        let index = index.ok_or_else(|| Error::NoCuda { problem: "libtorch finds no CUDA device".to_owned() })?;
        Ok((tch::Device::Cuda(index), world.saturating_sub(index).div_ceil(devices)))
    }
}
