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
