//! The targets: for devices whose memory the host can address, and for others.

use std::sync::Arc;
use stoker_core::offload::{Allowance, DeviceMemory, MemoryRegion};
use stoker_core::registry::{Build, Plugin, TargetContext};
use stoker_core::{Error, OffloadTarget, Options, Place, Region, RegionSpec, Result, TargetTraits, inventory};

/// The device is the host (CPU backends): its memory is ordinary memory and counts as the device's.
#[derive(Debug, Clone, Default)]
pub struct HostDevice {
    used: Allowance,
}

impl OffloadTarget for HostDevice {
    fn traits(&self) -> TargetTraits {
        // How much the device has is the engine's to know and to limit.
        TargetTraits { place: Place::Device, host_addressable: true, capacity_left: None }
    }

    fn allocate(&self, spec: RegionSpec) -> Result<Box<dyn Region>> {
        let advice = "The device has no more: choose offload target `cpu-offload`, or use more ranks";
        let taken = self.used.take(spec.bytes(), u64::MAX).map_err(|available| Error::Full {
            unit: spec.unit.clone(),
            role: spec.role,
            place: Place::Device,
            needed: spec.bytes(),
            available,
            advice: advice.to_owned(),
        })?;
        Ok(Box::new(MemoryRegion::new(spec, taken, Place::Device, advice)?))
    }
}

/// A device of its own (a GPU): regions are its memory, in which it updates shards itself.
#[derive(Debug, Clone)]
pub struct OwnDevice {
    memory: Arc<dyn DeviceMemory>,
}

impl OwnDevice {
    /// Keeps shards in this memory.
    pub fn new(memory: Arc<dyn DeviceMemory>) -> Self {
        Self { memory }
    }
}

impl OffloadTarget for OwnDevice {
    fn traits(&self) -> TargetTraits {
        TargetTraits { place: Place::Device, host_addressable: false, capacity_left: None }
    }

    fn allocate(&self, spec: RegionSpec) -> Result<Box<dyn Region>> {
        self.memory.region(spec)
    }
}

inventory::submit! {
    Plugin {
        name: "gpu-only",
        description: "shards stay in the memory of the device that computes: nothing is offloaded",
        options: &[],
        build: Build::OffloadTarget(build),
    }
}

fn build(_options: &Options, context: &TargetContext) -> Result<Arc<dyn OffloadTarget>> {
    Ok(match &context.device {
        Some(memory) => Arc::new(OwnDevice::new(memory.clone())),
        None => Arc::new(HostDevice::default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoker_core::{DType, Role, registry};
    use stoker_testkit::offload;

    /// A device whose memory is the host's after all, which it keeps to itself.
    #[derive(Debug)]
    struct Elsewhere;

    impl DeviceMemory for Elsewhere {
        fn region(&self, spec: RegionSpec) -> Result<Box<dyn Region>> {
            HostDevice::default().allocate(spec)
        }
    }

    #[test]
    fn keeps_every_law() {
        offload::conforms(|| Arc::new(HostDevice::default()));
    }

    #[test]
    fn is_found_by_its_name_and_counts_as_the_device() {
        for (device, host_addressable) in [(None, true), (Some(Arc::new(Elsewhere) as _), false)] {
            let context = TargetContext { rank: 2, device, host_memory_is_given: false };
            let found = registry::offload_target("gpu-only", &Default::default(), &context).unwrap();
            assert_eq!((found.traits().place, found.traits().host_addressable), (Place::Device, host_addressable));
            let spec = RegionSpec { unit: "u".into(), role: Role::Gradients, dtype: DType::F32, elements: 3 };
            assert_eq!(found.allocate(spec.clone()).unwrap().spec(), &spec);
        }
    }
}
