//! The target.

use crate::machine::{Available, Machine};
use std::sync::{Arc, Mutex, PoisonError};
use stoker_core::offload::{Allowance, MemoryRegion};
use stoker_core::registry::{Build, Plugin, TargetContext};
use stoker_core::{
    Bound, Error, OffloadTarget, OptionKind, OptionSpec, OptionValue, Options, Place, Region, RegionSpec, Result,
    TargetTraits, inventory,
};

const FULL: &str =
    "Spread the model over more ranks or machines, or choose an offload target that keeps shards on disk";

/// Hands out host memory, as much as `capacity` and the machine allow.
#[derive(Debug, Clone)]
pub struct CpuOffload {
    capacity: Option<u64>,
    /// None if it is not asked.
    machine: Option<Machine>,
    used: Allowance,
}

impl CpuOffload {
    /// At most `capacity` bytes, or what the machine has.
    pub fn new(capacity: Option<u64>) -> Self {
        Self::on(Machine::default(), capacity)
    }

    /// On a machine that describes itself in other files: for tests.
    pub fn on(machine: Machine, capacity: Option<u64>) -> Self {
        Self { capacity, machine: Some(machine), used: Allowance::default() }
    }

    /// Takes what is wanted whatever the machine says that it has: a virtual machine's memory may grow with its use.
    #[must_use]
    pub fn without_asking_the_machine(self) -> Self {
        Self { machine: None, ..self }
    }

    fn capacity_left(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity.saturating_sub(self.used.used()))
    }

    fn available(&self) -> Option<Available> {
        self.machine.as_ref().and_then(Machine::available)
    }
}

impl OffloadTarget for CpuOffload {
    fn traits(&self) -> TargetTraits {
        let of_machine = self.available().map(|available| available.bytes);
        TargetTraits {
            place: Place::Host,
            host_addressable: true,
            capacity_left: self.capacity_left().into_iter().chain(of_machine).min(),
        }
    }

    fn bounds(&self) -> Vec<Bound> {
        let of_capacity = self.capacity_left().map(|bytes| Bound {
            bytes,
            shared: false,
            source: "offload.cpu-offload.capacity".to_owned(),
        });
        let of_machine = self.available().map(|Available { bytes, source }| Bound { bytes, shared: true, source });
        of_capacity.into_iter().chain(of_machine).collect()
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
        match self.available() {
            Some(Available { bytes, source }) if bytes < needed => {
                Err(full(bytes, format!("This is all that the machine has now ({source}). {FULL}")))
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

fn build(options: &Options, context: &TargetContext) -> Result<Arc<dyn OffloadTarget>> {
    let capacity = options.bytes("capacity");
    let target = CpuOffload::new((capacity > 0).then_some(capacity));
    Ok(Arc::new(if context.host_memory_is_given { target.without_asking_the_machine() } else { target }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoker_core::{DType, Role, registry};
    use stoker_testkit::offload;

    const CONTEXT: TargetContext = TargetContext { rank: 0, device: None, host_memory_is_given: false };

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
    fn what_binds_is_told_with_its_source() {
        let bounds = CpuOffload::new(Some(1000)).bounds();
        let own = Bound { bytes: 1000, shared: false, source: "offload.cpu-offload.capacity".to_owned() };
        assert_eq!(bounds.first(), Some(&own));
        if cfg!(target_os = "linux") {
            assert!(bounds.last().is_some_and(|bound| bound.shared && bound.bytes > 1000), "{bounds:?}");
        }
        let context = TargetContext { host_memory_is_given: true, ..CONTEXT };
        let found = registry::offload_target("cpu-offload", &Default::default(), &context).unwrap();
        assert_eq!((found.bounds(), found.traits().capacity_left), (Vec::new(), None));
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
            error.contains("wants 4100 bytes of host memory for parameters, 4096 are left. This is all that the machine has now (MemAvailable)"),
            "{error}"
        );
        // What was refused is not counted.
        assert_eq!(target.used.used(), 0);
        // Whoever knows better is believed.
        assert!(target.without_asking_the_machine().allocate(spec(1025)).is_ok());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
