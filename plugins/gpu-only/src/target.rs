//! The target for devices whose memory the host can address.

use std::sync::Arc;
use stoker_core::offload::{Allowance, MemoryRegion};
use stoker_core::registry::{Build, Plugin, TargetContext};
use stoker_core::{Error, OffloadTarget, Options, Place, Region, RegionSpec, Result, TargetTraits, inventory};

const NAME: &str = "gpu-only";

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

inventory::submit! {
    Plugin {
        name: NAME,
        description: "shards stay in the memory of the device that computes: nothing is offloaded",
        options: &[],
        build: Build::OffloadTarget(build),
    }
}

fn build(_options: &Options, context: &TargetContext) -> Result<Arc<dyn OffloadTarget>> {
    if context.device_is_host {
        return Ok(Arc::new(HostDevice::default()));
    }
    Err(Error::Plugin {
        plugin: NAME.to_owned(),
        doing: format!(
            "the host cannot address the device of rank {}. Choose offload target `cpu-offload`, or a CPU backend",
            context.rank
        ),
        source: "`gpu-only` has no form for such a device yet".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;
    use stoker_core::registry;
    use stoker_testkit::offload;

    #[test]
    fn keeps_every_law() {
        offload::conforms(|| Arc::new(HostDevice::default()));
    }

    #[test]
    fn is_found_by_its_name_and_counts_as_the_device() {
        let context = TargetContext { rank: 2, device_is_host: true };
        let found = registry::offload_target(NAME, &Default::default(), &context).unwrap();
        assert_eq!((found.traits().place, found.traits().host_addressable), (Place::Device, true));
    }

    #[test]
    fn a_device_out_of_reach_is_refused() {
        let context = TargetContext { rank: 2, device_is_host: false };
        let error = registry::offload_target(NAME, &Default::default(), &context).unwrap_err();
        assert_eq!(
            error.to_string(),
            "gpu-only: the host cannot address the device of rank 2. Choose offload target `cpu-offload`, or a CPU backend"
        );
        assert_eq!(error.source().unwrap().to_string(), "`gpu-only` has no form for such a device yet");
    }
}
