//! Which Burn device a rank computes on.

use crate::{Error, Result};
use burn::tensor::Device;
use stoker_core::DType;

/// A Burn backend that stoker has a bridge for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Burn's own CPU backend.
    Flex,
    /// LibTorch on the CPU (feature `libtorch`).
    LibTorch,
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
    /// The Burn device, with autodiff.
    pub(crate) fn device(&self) -> Result<Device> {
        let device = match self.backend {
            Backend::Flex => Device::flex(),
            #[cfg(feature = "libtorch")]
            #[allow(deprecated, reason = "burn-tch is deprecated upstream; 0.22 is its last release, which we pin")]
            Backend::LibTorch => Device::libtorch(),
            #[cfg(not(feature = "libtorch"))]
            Backend::LibTorch => return Err(Error::BackendMissing { backend: "libtorch", feature: "libtorch" }),
        };
        let device = device.autodiff();
        Ok(match self.checkpointing {
            Checkpointing::None => device,
            Checkpointing::Balanced => device.gradient_checkpointing(),
        })
    }
}
