//! Host memory that the device copies from and to by itself.

use crate::device::Device;
use crate::{Result, failed};
use cudarc::driver::result;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use stoker_core::HostMemory;

/// Bytes of all [`PinnedMemory`] of the process.
static PINNED: AtomicU64 = AtomicU64::new(0);

/// Bytes that the process has pinned by [`PinnedMemory`] now.
pub fn pinned_bytes() -> u64 {
    PINNED.load(Ordering::Relaxed)
}

/// Page-locked memory of the driver's. It is allocated as large as asked for: the driver does not round up to a power of
/// two, as caching allocators above it do.
#[derive(Debug)]
pub struct PinnedMemory {
    device: Device,
    words: NonNull<u64>,
    count: usize,
}

// SAFETY: it is plain memory with one owner, and the driver may be called from any thread.
unsafe impl Send for PinnedMemory {}
// SAFETY: shared references only read.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// `count` zeros, at least one; `None` if the driver gives nothing and says nothing.
    ///
    /// # Errors
    /// When the driver cannot lock that much, or is asked for none.
    pub fn zeros(device: &Device, count: usize) -> Result<Option<Self>> {
        device.bind()?;
        // SAFETY: the context is the thread's; `Drop` frees it.
        let memory = unsafe { result::malloc_host(count.saturating_mul(8), 0) }.map_err(failed("pinning memory"))?;
        let Some(words) = NonNull::new(memory.cast::<u64>()) else { return Ok(None) };
        // SAFETY: `count` words were allocated there, page-aligned.
        unsafe { words.write_bytes(0, count) };
        PINNED.fetch_add(count as u64 * 8, Ordering::Relaxed);
        Ok(Some(Self { device: device.clone(), words, count }))
    }
}

impl HostMemory for PinnedMemory {
    fn words(&self) -> &[u64] {
        // SAFETY: `zeros` made `count` initialised words there, and this borrows them.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_ptr(), self.count) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        PINNED.fetch_sub(self.count as u64 * 8, Ordering::Relaxed);
        if self.device.bind().is_ok() {
            // SAFETY: `malloc_host` gave it in this context, and copies from and to it are done: whoever starts one keeps
            // the memory until then. A driver that fails here has nothing left to free.
            let _ = unsafe { result::free_host(self.words.as_ptr().cast()) };
        }
    }
}
