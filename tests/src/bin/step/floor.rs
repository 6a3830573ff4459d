//! The time below which a step cannot come on this machine.
//!
//! [Note: Floor] Each resource is given what a step needs of it, at the rate that it has when nothing else runs, and all
//! of them run beside each other. So a step takes at least as long as the busiest one:
//!
//! - host memory: what updates read and write, and what is copied from and to it;
//! - the device: forward and backward alone, with the shards where they are;
//! - the copies to the device; the copies from it.
//!
//! Where the update needs a number of the whole gradient (its norm, or whether all of it is finite), or is just not
//! begun in backward, one thing follows another: updates begin when backward ends, and the next backward needs them all.
//! Then a step takes at least backward alone and the bytes of the update; forward and copies may run beside the update.
//! (`shared/design/seed-example.md` has it so: 0.056 + 0.114 = 0.17 s with the norm, 0.14 s without.)
//!
//! Host memory's rate is that of a loop that does no more than it must. A good update can be faster by a few per cent, so
//! that a fraction of 1 may be passed. Where the device is the host's own processor the resources are not apart, and the
//! floor is far too low.

use crate::machine::Rates;

/// What a step needs. Bytes are those of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Seconds of the forward alone.
    pub(crate) forward: f64,
    /// Seconds of the backward alone.
    pub(crate) backward: f64,
    /// Read and written by updates.
    pub(crate) update: f64,
    /// Copied to the device.
    pub(crate) to_device: f64,
    /// Copied from it.
    pub(crate) from_device: f64,
    /// Whether updates begin after backward.
    pub(crate) waits: bool,
}

/// Seconds that each limit asks for.
pub(crate) fn limits(needs: &Needs, rates: &Rates) -> Vec<(&'static str, f64)> {
    let Needs { forward, backward, update, to_device, from_device, waits } = *needs;
    let mut limits =
        vec![("host memory", (update + to_device + from_device) / rates.host), ("computation", forward + backward)];
    limits.extend(rates.to_device.map(|rate| ("copies to the device", to_device / rate)));
    limits.extend(rates.from_device.map(|rate| ("copies from the device", from_device / rate)));
    if waits {
        limits.push(("backward, then the update", backward + update / rates.host));
    }
    limits
}

/// The highest of them.
pub(crate) fn floor(limits: &[(&'static str, f64)]) -> (&'static str, f64) {
    limits.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1)).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// seednet on the machine of the design's estimate.
    fn seednet(waits: bool) -> Vec<(&'static str, f64)> {
        let parameters = 561e6;
        let needs = Needs {
            forward: 0.026,
            backward: 0.056,
            update: 28.0 * parameters,
            to_device: 4.0 * parameters,
            from_device: 2.0 * parameters,
            waits,
        };
        limits(&needs, &Rates { host: 138e9, to_device: Some(50e9), from_device: Some(50e9) })
    }

    #[test]
    fn the_design_s_estimates_come_out() {
        let (what, seconds) = floor(&seednet(true));
        assert_eq!((what, (seconds * 100.0).round()), ("backward, then the update", 17.0));
        let (what, seconds) = floor(&seednet(false));
        assert_eq!((what, (seconds * 100.0).round()), ("host memory", 14.0));
    }

    #[test]
    fn the_slowest_resource_decides() {
        let needs = Needs { forward: 1.0, backward: 2.0, update: 10.0, to_device: 8.0, from_device: 4.0, waits: false };
        let decides = |host: f64, to: f64, from: f64| {
            floor(&limits(&needs, &Rates { host, to_device: Some(to), from_device: Some(from) }))
        };
        assert_eq!(decides(100.0, 100.0, 100.0), ("computation", 3.0));
        assert_eq!(decides(2.0, 100.0, 100.0), ("host memory", 11.0));
        assert_eq!(decides(100.0, 2.0, 100.0), ("copies to the device", 4.0));
        assert_eq!(decides(100.0, 100.0, 0.5), ("copies from the device", 8.0));
    }
}
