//! How bytes move between host memory and the device that computes.

use crate::on_device::OnDevice;
use std::fmt::Debug;
use std::ops::Range;
use stoker_core::{DType, HostBuffer, Reading, Result, Ticket};

/// Whether a gradient is the first of its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// Replace what is there.
    Set,
    /// Add to what is there.
    Add,
}

/// A gradient that is a slab.
#[derive(Debug)]
pub struct Adopted<S> {
    /// It.
    pub slab: S,
    /// As [`Bridge::land`] tells it.
    pub finite: bool,
}

/// Whose a device's memory is, and how much of it there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceRoom {
    /// The host's: what is on the device is in the machine's memory.
    Host,
    /// Its own.
    Own {
        /// Bytes that nobody has now.
        free: u64,
        /// Ranks that compute on the device, this one included.
        ranks: usize,
    },
    /// Not known.
    Unknown,
}

impl DeviceRoom {
    pub(crate) fn free(self) -> Option<u64> {
        if let Self::Own { free, .. } = self { Some(free) } else { None }
    }

    pub(crate) fn ranks(self) -> usize {
        if let Self::Own { ranks, .. } = self { ranks } else { 1 }
    }
}

/// Copies that are done, and the time in which the device made them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Copies {
    /// To slabs.
    pub to_device: Reading,
    /// From slabs.
    pub from_device: Reading,
}

/// A device, as the engine sees it: flat buffers, copies with tickets, gradients that land.
///
/// Copies may run on streams of their own; the bridge orders them with the device's computation: what
/// [`copy_in`](Self::copy_in) writes is seen by computation that is asked for after
/// [`before_use`](Self::before_use), what [`copy_out`](Self::copy_out) reads is what was asked for before it, and a slab
/// that nobody shares may be dropped or copied to once copies to it have seen their `before_use`, and copies from it are
/// done.
pub trait Bridge: Debug + Send {
    /// A buffer on the device. What the computation uses are views of it.
    type Slab: Debug + Send + 'static;
    /// A gradient as it comes out of the computation.
    type Gradient;

    /// A slab of `elements` zeros.
    ///
    /// # Errors
    /// When the device has no room.
    fn allocate(&mut self, dtype: DType, elements: usize) -> Result<Self::Slab>;

    /// Whether views of the slab are still alive, or queued work still uses it.
    fn is_shared(&self, slab: &Self::Slab) -> bool;

    /// The slab's own memory, to be filled in place, if the host can address it and nobody shares it.
    /// [`restore`](Self::restore) gives it back.
    fn lend(&mut self, slab: &mut Self::Slab) -> Option<HostBuffer>;

    /// Puts lent memory back.
    fn restore(&mut self, slab: &mut Self::Slab, memory: HostBuffer);

    /// Copies all of `source`, which has the slab's type, to the start of a slab that nobody shares.
    ///
    /// # Errors
    /// What the device failed with.
    fn copy_in(&mut self, source: HostBuffer, slab: &mut Self::Slab) -> Result<Ticket<HostBuffer>>;

    /// The computation will use the slab: what was copied to it must be seen. A device that works in the background is
    /// told to wait; the host does not. Buffers still come back by their tickets.
    ///
    /// # Errors
    /// What the device failed with.
    fn before_use(&mut self, slab: &mut Self::Slab) -> Result<()>;

    /// Copies elements `range` of a slab to `into`, which is as long and has its type.
    ///
    /// # Errors
    /// What the device failed with.
    fn copy_out(&mut self, slab: &Self::Slab, range: Range<usize>, into: HostBuffer) -> Result<Ticket<HostBuffer>>;

    /// Writes a gradient, contiguous or not, to elements `range` of a slab in row-major order, in the slab's type.
    ///
    /// Tells whether all its elements are finite, as far as that is known without waiting for the device: a step with
    /// one that is not is skipped in any case, this is only to say whose it was.
    ///
    /// # Errors
    /// When the gradient has another size.
    fn land(
        &mut self,
        gradient: Self::Gradient,
        slab: &mut Self::Slab,
        range: Range<usize>,
        landing: Landing,
    ) -> Result<bool>;

    /// Makes a gradient that is all of a bucket the bucket itself: a copy less, and on the device half of the memory.
    ///
    /// # Errors
    /// Gives the gradient back, to be landed, unless it has `elements` elements of this type, in row-major order, in memory
    /// that nobody else has.
    fn adopt(
        &mut self,
        gradient: Self::Gradient,
        _dtype: DType,
        _elements: usize,
    ) -> std::result::Result<Adopted<Self::Slab>, Self::Gradient> {
        Err(gradient)
    }

    /// The sums of the squares of these ranges of a slab, as it is now, if the device can tell them without the host
    /// reading the elements; not finite where an element is not. `None`: the host does it.
    ///
    /// # Errors
    /// What the device failed with.
    fn sums_of_squares(&mut self, _slab: &Self::Slab, _ranges: &[Range<usize>]) -> Result<Option<Ticket<Vec<f64>>>> {
        Ok(None)
    }

    /// What it does with slabs that are regions of shards, if it gives out such regions
    /// ([`DeviceMemory`](stoker_core::DeviceMemory)).
    fn on_device(&mut self) -> Option<&mut dyn OnDevice<Self::Slab>> {
        None
    }

    /// Its memory, before the engine has any of it.
    ///
    /// # Errors
    /// What the device failed with.
    fn memory(&self) -> Result<DeviceRoom> {
        Ok(DeviceRoom::Unknown)
    }

    /// Whether [`pin`](Self::pin) moves anything.
    fn pins(&self) -> bool {
        false
    }

    /// All copies so far, if the device times them.
    fn copies(&self) -> Option<Copies> {
        None
    }

    /// The same elements, in memory that the device copies from and to by itself, if it can have some and that is of use.
    fn pin(&mut self, memory: HostBuffer) -> HostBuffer {
        memory
    }
}
