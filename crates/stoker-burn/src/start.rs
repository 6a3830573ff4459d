//! An engine over the bridge of the device's backend: planned, or made.

use crate::Result;
use crate::bridge::flex::FlexBridge;
#[cfg(feature = "libtorch")]
use crate::bridge::libtorch::LibTorchBridge;
use crate::device::{Backend, DeviceSettings};
use crate::shared::AnyEngine;
use stoker_engine::{Engine, MemoryPlan, Plugins, Settings, UnitSpec};

/// # Errors
/// As [`Engine::new`]; a backend that is not there.
pub(crate) fn start(
    device: &DeviceSettings,
    settings: Settings,
    plugins: Plugins,
    specs: Vec<UnitSpec>,
) -> Result<AnyEngine> {
    match device.backend {
        Backend::Flex => Ok(AnyEngine::Flex(Engine::new(settings, FlexBridge, plugins, specs)?)),
        #[cfg(feature = "libtorch")]
        Backend::LibTorch | Backend::LibTorchCuda => {
            let bridge = libtorch(device, &settings, &plugins, settings.device_memory_limit)?;
            Ok(AnyEngine::LibTorch(Engine::new(settings, bridge, plugins, specs)?))
        }
        #[cfg(not(feature = "libtorch"))]
        Backend::LibTorch | Backend::LibTorchCuda => Err(missing()),
    }
}

/// What [`start`] would need.
///
/// # Errors
/// As [`Engine::plan`]; a backend that is not there.
pub(crate) fn plan(
    device: &DeviceSettings,
    settings: &Settings,
    plugins: &Plugins,
    specs: &[UnitSpec],
) -> Result<MemoryPlan> {
    match device.backend {
        Backend::Flex => Ok(Engine::plan(settings, &FlexBridge, plugins, specs)?),
        #[cfg(feature = "libtorch")]
        Backend::LibTorch | Backend::LibTorchCuda => {
            // Its limit is held against the plan; only training takes the rest of a GPU away from others.
            let bridge = libtorch(device, settings, plugins, None)?;
            Ok(Engine::plan(settings, &bridge, plugins, specs)?)
        }
        #[cfg(not(feature = "libtorch"))]
        Backend::LibTorch | Backend::LibTorchCuda => Err(missing()),
    }
}

/// `memory_limit`: how small a GPU is made.
#[cfg(feature = "libtorch")]
fn libtorch(
    device: &DeviceSettings,
    settings: &Settings,
    plugins: &Plugins,
    memory_limit: Option<u64>,
) -> Result<LibTorchBridge> {
    let (rank, world) = (plugins.communicator.rank(), plugins.communicator.world());
    let (device, ranks) = device.tch_device(rank, world)?;
    Ok(LibTorchBridge::new(device, ranks, settings.timeout, memory_limit)?)
}

#[cfg(not(feature = "libtorch"))]
fn missing() -> crate::Error {
    // A rank has no such device.
    crate::Error::BackendMissing { backend: "libtorch", feature: "libtorch" }
}
