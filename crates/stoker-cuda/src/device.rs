//! A device, and how much memory it has left.

use crate::{Error, Result, failed};
use cudarc::driver::{CudaContext, result, sys};
use std::sync::{Arc, Mutex, PoisonError};

/// A CUDA device's primary context, which libtorch uses as well.
#[derive(Debug, Clone)]
pub struct Device(Arc<CudaContext>);

/// Bytes of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// That nobody has.
    pub free: u64,
    /// In all.
    pub total: u64,
}

/// Device memory that nobody else can have while this lives: it makes a device smaller.
#[derive(Debug)]
pub struct Held {
    device: Device,
    memory: sys::CUdeviceptr,
}

impl Device {
    /// Opens device `ordinal`.
    ///
    /// # Errors
    /// [`Error::NoDriver`]; what the driver fails with.
    pub fn open(ordinal: usize) -> Result<Self> {
        // SAFETY: it loads a library by the names of NVIDIA's driver, which has no initialisation that could be disturbed.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoDriver);
        }
        Ok(Self(CudaContext::new(ordinal).map_err(failed("opening a device"))?))
    }

    pub(crate) fn context(&self) -> &Arc<CudaContext> {
        &self.0
    }

    /// Makes the device the calling thread's.
    pub(crate) fn bind(&self) -> Result<()> {
        self.0.bind_to_thread().map_err(failed("making a device the thread's"))
    }

    /// What is left of its memory now.
    ///
    /// # Errors
    /// What the driver fails with.
    pub fn memory(&self) -> Result<Memory> {
        let (free, total) = self.0.mem_get_info().map_err(failed("asking for free memory"))?;
        Ok(Memory { free: free as u64, total: total as u64 })
    }

    /// Takes `bytes` of its memory, at least one.
    ///
    /// # Errors
    /// When there is not so much, or none is asked for.
    pub fn hold(&self, bytes: usize) -> Result<Held> {
        self.bind()?;
        // SAFETY: the context is the thread's, and `Held` frees the memory, which nobody else knows.
        let memory = unsafe { result::malloc_sync(bytes) }.map_err(failed("holding memory"))?;
        Ok(Held { device: self.clone(), memory })
    }

    /// Takes all free memory but `left` bytes. Of several ranks on one device the first takes it, and the others find no more.
    ///
    /// # Errors
    /// What the driver fails with.
    pub fn hold_all_but(&self, left: u64) -> Result<Option<Held>> {
        // Two that see the same memory free would both want it.
        static ONE_AFTER_THE_OTHER: Mutex<()> = Mutex::new(());
        let _turn = ONE_AFTER_THE_OTHER.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = self.memory()?.free.saturating_sub(left);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes == 0 { Ok(None) } else { self.hold(bytes).map(Some) }
    }
}

impl Held {
    /// Where it is.
    pub(crate) fn address(&self) -> u64 {
        self.memory
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: `hold_all_but` allocated it in this context, and nobody else frees it. A driver that fails here has
            // nothing left to free.
            let _ = unsafe { result::free_sync(self.memory) };
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code reports by panicking")]

    use super::*;

    #[test]
    fn a_machine_without_a_driver_says_so() {
        match Device::open(0) {
            Err(Error::NoDriver) => {
                let error = stoker_core::Error::from(Error::NoDriver).to_string();
                assert!(error.contains("opening a device"), "{error}");
            }
            Err(error) => assert!(error.to_string().starts_with("CUDA failed while opening a device"), "{error}"),
            Ok(device) => {
                let before = device.memory().unwrap();
                let held = device.hold_all_but(before.free / 2).unwrap();
                assert!(device.memory().unwrap().free <= before.free / 2 + (64 << 20));
                drop(held);
            }
        }
    }
}
