//! How fast pinned memory is copied when nothing else runs.

use crate::device::Device;
use crate::pinned::PinnedMemory;
use crate::stream::CopyStream;
use std::time::Duration;
use stoker_core::{HostBuffer, Reading, Result};

/// Copies of each direction; the first of them is not counted.
const COPIES: usize = 6;

/// Bytes a second of copies between pinned memory and the device's, one at a time: the fastest of some.
#[derive(Debug, Clone, Copy)]
pub struct PinnedRates {
    /// From pinned memory.
    pub to_device: f64,
    /// To pinned memory.
    pub from_device: f64,
}

impl PinnedRates {
    /// Measures with copies of `bytes`, which it takes of either memory meanwhile. Nothing else should run.
    ///
    /// # Errors
    /// When there is not so much memory, or it cannot be pinned; what a copy fails with.
    pub fn measure(device: &Device, bytes: usize, timeout: Duration) -> Result<Self> {
        let held = device.hold(bytes.max(4))?;
        let mut memory = HostBuffer::zeros::<f32>(bytes / 4);
        if let Some(pinned) = PinnedMemory::zeros(device, bytes.div_ceil(8).max(1))? {
            memory = memory.moved_to(Box::new(pinned)).unwrap_or_else(|memory| memory);
        }
        let stream = CopyStream::new(device, timeout)?;
        let mut to_device = 0.0f64;
        let mut from_device = 0.0f64;
        for copy in 0..COPIES {
            let before = stream.copied();
            // SAFETY: `held` has as many bytes and is nobody else's. It is dropped last, and a ticket's wait and drop are
            // over when the copy is.
            memory = unsafe { stream.copy_in(memory, held.address()) }?.0.wait()?;
            let between = stream.copied();
            // SAFETY: as above.
            memory = unsafe { stream.copy_out(held.address(), memory) }?.wait()?;
            let rate = |reading: Reading| if copy == 0 { 0.0 } else { reading.rate().unwrap_or_default() };
            to_device = to_device.max(rate(between.since(before)));
            from_device = from_device.max(rate(stream.copied().since(between)));
        }
        Ok(Self { to_device, from_device })
    }
}
