//! The target.

use crate::machine::{self, Machine};
use std::sync::{Arc, Mutex, PoisonError};
use stoker_core::offload::{Allowance, MemoryRegion};
use stoker_core::registry::{Build, Plugin, TargetContext};
use stoker_core::{
    Error, OffloadTarget, OptionKind, OptionSpec, OptionValue, Options, Place, Region, RegionSpec, Result,
    TargetTraits, inventory,
};

const FULL: &str =
    "Spread the model over more ranks or machines, or choose an offload target that keeps shards on disk";

/// Hands out host memory, as much as `capacity` and the machine allow.
#[derive(Debug, Clone)]
pub struct CpuOffload {
    capacity: Option<u64>,
    machine: Machine,
    used: Allowance,
}

impl CpuOffload {
    /// At most `capacity` bytes, or what the machine has.
    pub fn new(capacity: Option<u64>) -> Self {
        Self::on(Machine::default(), capacity)
    }

    /// On a machine that describes itself in other files: for tests.
    pub fn on(machine: Machine, capacity: Option<u64>) -> Self {
        Self { capacity, machine, used: Allowance::default() }
    }
}

impl OffloadTarget for CpuOffload {
    fn traits(&self) -> TargetTraits {
        let of_capacity = self.capacity.map(|capacity| capacity.saturating_sub(self.used.used()));
        TargetTraits {
            place: Place::Host,
            host_addressable: true,
            capacity_left: machine::smaller(of_capacity, self.machine.available()),
        }
    }

    fn allocate(&self, spec: RegionSpec) -> Result<Box<dyn Region>> {
        // All ranks of this process take from one machine: what is there is measured and taken by one at a time, and a
        // region's pages are touched before the next one measures.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = spec.bytes();
        let full = |available, advice| Error::Full {
            unit: spec.unit.clone(),
            role: spec.role,
            place: Place::Host,
            needed,
            available,
            advice,
        };
        let capacity = self.capacity.unwrap_or(u64::MAX);
        let taken = self.used.take(needed, capacity).map_err(|left| {
            full(
                left,
                format!("Raise `capacity` of `cpu-offload` ({capacity} bytes now) if the machine has more. {FULL}"),
            )
        })?;
        match self.machine.available() {
            Some(available) if available < needed => {
                Err(full(available, format!("This is all that the machine and its cgroup have now. {FULL}")))
            }
            _ => Ok(Box::new(MemoryRegion::new(spec, taken, Place::Host, FULL)?)),
        }
    }
}

inventory::submit! {
    Plugin {
        name: "cpu-offload",
        description: "shards in host memory",
        options: &[OptionSpec {
            name: "capacity",
            kind: OptionKind::Bytes,
            default: || OptionValue::Integer(0),
            help: "bytes of host memory that one rank may use; 0: what the machine and its cgroup have",
        }],
        build: Build::OffloadTarget(build),
    }
}

fn build(options: &Options, _context: &TargetContext) -> Result<Arc<dyn OffloadTarget>> {
    let capacity = options.bytes("capacity");
    Ok(Arc::new(CpuOffload::new((capacity > 0).then_some(capacity))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoker_core::{DType, Role, registry};
    use stoker_testkit::offload;

    const CONTEXT: TargetContext = TargetContext { rank: 0, device: None };

    fn spec(elements: usize) -> RegionSpec {
        RegionSpec { unit: "net.block".into(), role: Role::Parameters, dtype: DType::F32, elements }
    }

    #[test]
    fn keeps_every_law() {
        offload::conforms(|| Arc::new(CpuOffload::new(None)));
        offload::conforms(|| Arc::new(CpuOffload::new(Some(1 << 20))));
        offload::conforms(|| Arc::new(CpuOffload::new(Some(100_003))));
    }

    #[test]
    fn is_found_by_its_name() {
        let found = registry::offload_target("cpu-offload", &Default::default(), &CONTEXT).unwrap();
        let traits = found.traits();
        assert_eq!((traits.place, traits.host_addressable), (Place::Host, true));
        assert!(traits.capacity_left.is_none_or(|left| left > 0));
        let given = [("capacity".to_owned(), OptionValue::Text("1 MiB".to_owned()))];
        let found = registry::offload_target("cpu-offload", &given.into(), &CONTEXT).unwrap();
        assert_eq!(found.traits().capacity_left, Some(1 << 20));
    }

    #[test]
    fn clones_share_their_capacity() {
        let target = CpuOffload::new(Some(1000));
        let _region = target.clone().allocate(spec(200)).unwrap();
        assert_eq!(target.traits().capacity_left, Some(200));
    }

    #[test]
    fn a_refusal_says_what_binds() {
        let target = CpuOffload::new(Some(1000));
        let error = target.allocate(spec(251)).unwrap_err().to_string();
        assert_eq!(
            error,
            "unit `net.block` wants 1004 bytes of host memory for parameters, 1000 are left. Raise `capacity` of \
             `cpu-offload` (1000 bytes now) if the machine has more. Spread the model over more ranks or machines, or \
             choose an offload target that keeps shards on disk"
        );
    }

    #[test]
    fn a_machine_without_memory_refuses() {
        let folder = std::env::temp_dir().join(format!("stoker-cpu-offload-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("meminfo"), "MemTotal: 8 kB\nMemAvailable:          4 kB\n").unwrap();
        let machine = Machine { proc: folder.clone(), cgroup: folder.join("none") };
        let target = CpuOffload::on(machine, Some(1 << 20));
        assert_eq!(target.traits().capacity_left, Some(4096));
        assert!(target.allocate(spec(1024)).is_ok());
        let error = target.allocate(spec(1025)).unwrap_err().to_string();
        assert!(
            error.contains("wants 4100 bytes of host memory for parameters, 4096 are left. This is all"),
            "{error}"
        );
        // What was refused is not counted.
        assert_eq!(target.used.used(), 0);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
