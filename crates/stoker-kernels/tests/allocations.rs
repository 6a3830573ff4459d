//! Updates allocate nothing, on however many threads.
#![allow(clippy::unwrap_used, reason = "a test reports by panicking")]

use peak_alloc::PeakAlloc;
use stoker_core::half::bf16;
use stoker_kernels::{Adam, Decay, Gradient, Level, Shard, adam};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

#[test]
fn an_update_allocates_nothing() {
    let elements = 1 << 19;
    let (mut p, mut m, mut v) = (vec![0.5f32; elements], vec![bf16::ZERO; elements], vec![bf16::ZERO; elements]);
    let (g, mut rounded) = (vec![bf16::ONE; elements], vec![bf16::ZERO; elements]);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let (before, peak) = pool.install(|| {
        let mut step = |update| {
            let gradient = Gradient::AS_IT_IS;
            let rule = Adam {
                decay: Decay::Decoupled,
                learning_rate: 1e-3,
                beta1: 0.9,
                beta2: 0.999,
                eps: 1e-8,
                weight_decay: 0.01,
                update,
                gradient,
            };
            let shard = Shard {
                parameters: &mut p,
                gradient: g.as_slice().into(),
                state: [m.as_mut_slice().into(), v.as_mut_slice().into()],
                rounded: Some(rounded.as_mut_slice().into()),
            };
            adam(Level::best(), &rule, shard);
        };
        // The pool's own queues grow in the first ones.
        (1..20).for_each(&mut step);
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        (20..120).for_each(&mut step);
        (before, MEMORY.peak_usage())
    });
    // Whatever is allocated raises the peak, also if it is freed at once.
    assert_eq!(peak, before);
    assert_ne!(rounded[elements - 1], bf16::ZERO);
}
