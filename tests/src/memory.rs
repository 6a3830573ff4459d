//! Host memory that an update goes through, and how fast that can be done at best.

use rayon::ThreadPool;
use std::time::Instant;
use stoker_core::{DType, HostBuffer, Values, ValuesMut};
use stoker_kernels::{Level, Shard, traffic};

/// Memory of a shard with state for any optimizer.
pub struct Memory {
    /// What is updated.
    pub parameters: Vec<f32>,
    gradient: HostBuffer,
    rounded: Option<HostBuffer>,
    state: [HostBuffer; 2],
}

impl Memory {
    /// A gradient of about `size`; narrow gradients come with narrow parameters.
    pub fn new(elements: usize, gradient: DType, state: DType, size: f32) -> Self {
        let filled = |dtype: DType, scale: f32| {
            let mut buffer = HostBuffer::zeros_of(dtype, elements);
            let values: Vec<f32> = (0..elements).map(|at| scale * (0.5 + (at % 1021) as f32 / 1021.0)).collect();
            stoker_kernels::convert::from_f32(ValuesMut::of(&mut buffer).unwrap(), &values);
            buffer
        };
        Self {
            parameters: vec![0.5; elements],
            gradient: filled(gradient, size),
            rounded: (gradient != DType::F32).then(|| HostBuffer::zeros_of(gradient, elements)),
            state: [filled(state, size), filled(state, size * size)],
        }
    }

    /// All of it, with `N` slots of state.
    pub fn shard<const N: usize>(&mut self) -> Shard<'_, N> {
        let mut slots = self.state.iter_mut();
        Shard {
            parameters: &mut self.parameters,
            gradient: Values::of(&self.gradient).unwrap(),
            state: std::array::from_fn(|_| ValuesMut::of(slots.next().unwrap()).unwrap()),
            rounded: self.rounded.as_mut().map(|rounded| ValuesMut::of(rounded).unwrap()),
        }
    }

    /// Bytes an element that `slots` slots of state make an update move.
    pub fn bytes(&self, slots: usize) -> usize {
        let rounded = self.rounded.as_ref().map_or(0, |rounded| rounded.dtype().size());
        8 + self.gradient.dtype().size() + rounded + slots * 2 * self.state[0].dtype().size()
    }

    /// Bytes a second of the loop that only moves what Adam's update in f32 moves, on the threads of `pool`; for memory
    /// that is f32 throughout.
    pub fn plain_rate(&mut self, pool: &ThreadPool) -> f64 {
        let bytes = (self.bytes(2) * self.parameters.len()) as f64;
        bytes / seconds(pool, || traffic::read_modify_write(Level::best(), self.shard()))
    }
}

/// How long `work` takes on the threads of `pool`.
pub fn seconds(pool: &ThreadPool, work: impl FnOnce() + Send) -> f64 {
    let start = Instant::now();
    pool.install(work);
    start.elapsed().as_secs_f64()
}

/// Memory of this process in GiB, by the name of its line in `/proc/self/status`; none where that is not kept.
pub fn status(name: &str) -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: f64 = line.trim_start_matches(':').split_whitespace().next()?.parse().ok()?;
    Some(kib / f64::from(1 << 20))
}

/// The least of some figures.
pub fn least(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::INFINITY, f64::min)
}
