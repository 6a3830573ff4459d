//! What the machine can do, measured in the same run: before there is a model, so that nothing runs beside it.

use crate::arguments::Arguments;
use rayon::ThreadPoolBuilder;
use stoker_core::DType;
#[cfg(feature = "libtorch")]
use stoker_cuda::{Device, PinnedRates, pinned_bytes};
use stoker_tests::memory::{Memory, status};

/// Rounds of the plain loop.
const ROUNDS: usize = 7;
/// Bytes of a copy whose rate is measured.
#[cfg(feature = "libtorch")]
const COPY: usize = 512 << 20;

/// Bytes a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    /// Of host memory that is read and written as by Adam's update, on as many threads.
    pub(crate) host: f64,
    /// Of pinned memory copied to the device, nothing else running; on a GPU.
    pub(crate) to_device: Option<f64>,
    /// The other way.
    pub(crate) from_device: Option<f64>,
}

/// The machine, which is asked for its memory again and again.
pub(crate) struct Machine {
    pub(crate) rates: Rates,
    #[cfg(feature = "libtorch")]
    device: Option<Device>,
}

impl Machine {
    #[cfg(feature = "libtorch")]
    pub(crate) fn measure(arguments: &Arguments) -> Self {
        let mut rates = Rates { host: host(arguments), to_device: None, from_device: None };
        let device = (stoker_tests::backend() == stoker_burn::Backend::LibTorchCuda).then(|| Device::open(0).unwrap());
        if let Some(device) = &device {
            match PinnedRates::measure(device, COPY, std::time::Duration::from_secs(60)) {
                Ok(found) => {
                    (rates.to_device, rates.from_device) = (Some(found.to_device), Some(found.from_device));
                }
                Err(error) => println!("pinned copies cannot be measured: {}", stoker_core::error::chain(&error)),
            }
        }
        Self { rates, device }
    }

    #[cfg(not(feature = "libtorch"))]
    pub(crate) fn measure(arguments: &Arguments) -> Self {
        Self { rates: Rates { host: host(arguments), to_device: None, from_device: None } }
    }

    /// What is taken of its memory now, and should not grow.
    pub(crate) fn taken(&self) -> Taken {
        #[cfg(feature = "libtorch")]
        let (device, pinned) = match &self.device {
            Some(device) => {
                let memory = device.memory().unwrap();
                (Some(gib(memory.total - memory.free)), Some(gib(pinned_bytes())))
            }
            None => (None, None),
        };
        #[cfg(not(feature = "libtorch"))]
        let (device, pinned) = (None, None);
        Taken { resident: status("VmRSS").unwrap(), device, pinned }
    }
}

/// Memory that is taken, in GiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    /// Host memory that the process has.
    pub(crate) resident: f64,
    /// Device memory that anybody has, by the driver.
    pub(crate) device: Option<f64>,
    /// Pinned memory of the process.
    pub(crate) pinned: Option<f64>,
}

#[cfg(feature = "libtorch")]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// The best of some rounds: what is compared with it cannot have been slowed by a neighbour less.
fn host(arguments: &Arguments) -> f64 {
    let parameters = (arguments.number("triad", 67.0) * 1e6) as usize;
    let pool = ThreadPoolBuilder::new().num_threads(arguments.threads()).build().unwrap();
    let mut memory = Memory::new(parameters, DType::F32, DType::F32, 1e-2);
    (0..ROUNDS).map(|_| memory.plain_rate(&pool)).fold(0.0, f64::max)
}
