//! Where a shard's bytes live.

mod memory;

pub use memory::{Allowance, MemoryRegion, Taken};

use crate::{DType, HostBuffer, Result, Ticket};
use std::any::Any;
use std::fmt::{self, Debug};

/// The kind of memory that bytes are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Memory of the device that computes.
    Device,
    /// Ordinary host memory.
    Host,
    /// Host memory that the device can copy from and to by itself.
    Pinned,
    /// A file.
    Disk,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Device => "device",
            Place::Host => "host",
            Place::Pinned => "pinned",
            Place::Disk => "disk",
        })
    }
}

/// What bytes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Parameters in the type that the device computes with. If that is f32, they are the master parameters as well.
    Parameters,
    /// Master parameters in f32, where [`Role::Parameters`] are narrower: what the optimizer updates.
    MasterParameters,
    /// Reduced gradients of a shard.
    Gradients,
    /// Optimizer moments.
    OptimizerState,
    /// A gathered unit.
    Slab,
    /// Full gradients of a unit on their way to their shards.
    GradientBucket,
    /// Buffers of a copy or a collective in flight.
    Staging,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Parameters => "parameters",
            Role::MasterParameters => "master_parameters",
            Role::Gradients => "gradients",
            Role::OptimizerState => "optimizer_state",
            Role::Slab => "slab",
            Role::GradientBucket => "gradient_bucket",
            Role::Staging => "staging",
        })
    }
}

/// What a region is wanted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSpec {
    /// The unit that it belongs to.
    pub unit: String,
    /// What it holds.
    pub role: Role,
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub elements: usize,
}

impl RegionSpec {
    /// Bytes of the region.
    pub fn bytes(&self) -> u64 {
        (self.elements as u64).saturating_mul(self.dtype.size() as u64)
    }
}

/// What a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetTraits {
    /// Where its regions are.
    pub place: Place,
    /// Whether [`Region::host`] gives the memory itself.
    pub host_addressable: bool,
    /// Bytes that can still be handed out, where the target knows.
    pub capacity_left: Option<u64>,
}

/// What binds how much a target can still hand out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Bytes that are left.
    pub bytes: u64,
    /// Whether the targets of all ranks of this process take from them together, as from the memory of the machine. If
    /// not, they are this target's own.
    pub shared: bool,
    /// Where the number comes from: a setting's key, or what the machine calls it.
    pub source: String,
}

/// Hands out memory for shards: the bunker of the furnace (ZeRO-Offload, ZeRO-Infinity).
pub trait OffloadTarget: Debug + Send + Sync {
    /// What it is, and what is left of it.
    fn traits(&self) -> TargetTraits;

    /// All that binds it now. A plan is held against each of them before anything is allocated.
    ///
    /// A target that knows more than [`TargetTraits::capacity_left`], such as what all ranks share, says it here.
    fn bounds(&self) -> Vec<Bound> {
        let own = |bytes| Bound { bytes, shared: false, source: "what the offload target has left".to_owned() };
        self.traits().capacity_left.map(own).into_iter().collect()
    }

    /// A region of zeros.
    ///
    /// Dropping the region gives its bytes back.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full) before the target is full, with the bytes wanted and the bytes left; nothing
    /// was allocated then.
    fn allocate(&self, spec: RegionSpec) -> Result<Box<dyn Region>>;
}

/// A piece of a target.
///
/// A failed write leaves the region's earlier contents readable. Ranges outside the region are refused with
/// [`Error::OutOfRange`](crate::Error::OutOfRange), buffers of another type with
/// [`Error::WrongType`](crate::Error::WrongType), before anything is moved. [`RegionSpec::check`] does both. Elements are
/// kept to the bit, NaN included.
pub trait Region: Debug + Send {
    /// What it was made for.
    fn spec(&self) -> &RegionSpec;

    /// Fills `into` from element `at` on.
    ///
    /// # Errors
    /// As described for the trait; what the medium failed with.
    fn read(&mut self, at: usize, into: HostBuffer) -> Result<Ticket<HostBuffer>>;

    /// Stores `from` at element `at` on; the ticket is ready when a later `read` sees it.
    ///
    /// # Errors
    /// As described for the trait; what the medium failed with.
    fn write(&mut self, at: usize, from: HostBuffer) -> Result<Ticket<HostBuffer>>;

    /// The memory itself, if the host can address it: kernels then work in place and collectives send from it.
    ///
    /// A caller may move the buffer out for the time of a call ([`HostBuffer::take`]) and must put it back.
    fn host(&mut self) -> Option<&mut HostBuffer>;

    /// The memory itself, if it is that of the device that computes ([`DeviceMemory`]): what the device's own bridge knows
    /// how to use. Nothing crosses to the host then.
    fn device(&mut self) -> Option<&mut dyn Any> {
        None
    }
}

/// Memory of a device that computes and that the host cannot address, for targets that keep shards there: its bridge
/// gives it out.
pub trait DeviceMemory: Debug + Send + Sync {
    /// A region of zeros on the device.
    ///
    /// # Errors
    /// When the device has no room.
    fn region(&self, spec: RegionSpec) -> Result<Box<dyn Region>>;
}
