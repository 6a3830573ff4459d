//! A stage-3 step of a deep chain needs memory for a few units, not for all: measured by a counting allocator, so by
//! when buffers are really dropped, not by what the engine believes.
//!
//! The shards are allocated when the model is built, and building takes one parameter more. What a step needs beyond them is: the slab pool, at most two
//! gradient buckets, the gradient that autodiff has just made (and a contiguous copy of it), and activations, which
//! are small here. If gathered weights or gradients piled up with depth, the chain's own size would be needed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code reports by panicking")]

use burn::tensor::{Device, Int, Tensor};
use peak_alloc::PeakAlloc;
use stoker_burn::{Checkpointing, Rank};
use stoker_core::{Place, Role};
use stoker_tests::Setup;
use stoker_tests::models::{Chain, Kind};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const DEPTH: usize = 12;

struct Case {
    kind: Kind,
    width: usize,
    tokens: Option<usize>,
}

impl Case {
    /// Bytes of a block's parameters.
    fn unit(&self) -> usize {
        4 * match self.kind {
            Kind::Linear | Kind::Norm => self.width * self.width,
            Kind::Convolution | Kind::GroupNorm => self.width * self.width * 9,
        }
    }

    fn loss(&self, chain: &Chain, device: &Device) -> Tensor<1> {
        let width = self.width;
        match (self.kind, self.tokens) {
            (_, Some(tokens)) => {
                let input = Tensor::<2, Int>::from_data([[1], [tokens as i32 - 1]], device);
                chain.tokens(input).square().mean()
            }
            (Kind::Linear | Kind::Norm, None) => chain.flat(Tensor::ones([2, width], device)).square().mean(),
            _ => chain.spatial(Tensor::ones([2, width, 2, 2], device)).square().mean(),
        }
    }
}

/// Bytes that were needed.
struct Needed {
    /// To keep the model.
    shards: usize,
    /// To build it, beyond keeping it.
    building: usize,
    /// For a step, beyond what there was before it.
    step: usize,
    /// For slabs, by the books.
    slabs: u64,
}

fn measure(case: &Case, checkpointing: Checkpointing, pool: usize) -> Needed {
    let mut setup = Setup::new(1, 3);
    setup.settings.pool_bytes = pool as u64;
    setup.settings.overlap = false;
    setup.device.checkpointing = checkpointing;
    let results = setup.run(|rank: &Rank| {
        let device = rank.device();
        let make = |device: &Device| Chain::new(case.kind, DEPTH, case.width, case.tokens, device);
        ALLOCATOR.reset_peak_usage();
        let empty = ALLOCATOR.current_usage();
        let chain = rank.build(make, None).unwrap();
        let building = ALLOCATOR.peak_usage() - ALLOCATOR.current_usage();
        let shards = ALLOCATOR.current_usage() - empty;
        rank.step(1e-3, || case.loss(&chain, &device)).unwrap();
        ALLOCATOR.reset_peak_usage();
        let before = ALLOCATOR.current_usage();
        rank.step(1e-3, || case.loss(&chain, &device)).unwrap();
        let needed = ALLOCATOR.peak_usage() - before;
        let slabs = rank.ledger().unwrap().peaks().into_iter();
        let slabs = slabs.filter(|peak| peak.place == Place::Device && peak.role == Some(Role::Slab));
        Needed { shards, building, step: needed, slabs: slabs.map(|peak| peak.bytes).sum() }
    });
    results.into_iter().next().unwrap()
}

fn check(case: &Case) {
    let unit = case.unit();
    // Small parameters and padding.
    let slack = unit / 8;
    let pool = 2 * (unit + slack);
    let embedding = case.tokens.map_or(0, |tokens| tokens * case.width * 4);
    for checkpointing in [Checkpointing::None, Checkpointing::Balanced] {
        let pool = pool.max(embedding + slack);
        let Needed { shards, building, step: needed, slabs } = measure(case, checkpointing, pool);
        // One parameter at a time, and no copy of it.
        let one = unit.max(embedding);
        assert!(building <= one + one / 4, "{:?}: {building} bytes to build, a parameter has {one}", case.kind);
        assert!(shards >= 4 * DEPTH * unit, "{:?}: {shards} bytes cannot hold the model's state", case.kind);
        assert!(slabs <= pool as u64, "{:?} {checkpointing:?}: {slabs} bytes of slabs, the pool has {pool}", case.kind);
        // The pool was filled before the step began; what is gathered anew reuses it or replaces it.
        let largest = unit.max(embedding);
        let allowed = pool + 2 * largest + 2 * largest + 4 * slack;
        let piled_up = DEPTH * unit;
        assert!(allowed < piled_up + pool, "the test cannot tell streaming from piling up");
        assert!(needed <= allowed, "{:?} {checkpointing:?}: {needed} bytes needed, {allowed} allowed", case.kind);
        println!(
            "{:?} {checkpointing:?}: {:.1} units to build, {:.1} to step of {} allowed",
            case.kind,
            building as f64 / unit as f64,
            needed as f64 / unit as f64,
            allowed / unit
        );
    }
}

// One test, since the allocator counts the whole process.
#[test]
fn memory_does_not_grow_with_depth() {
    for case in [
        Case { kind: Kind::Linear, width: 512, tokens: None },
        Case { kind: Kind::Norm, width: 512, tokens: None },
        Case { kind: Kind::Convolution, width: 128, tokens: None },
        Case { kind: Kind::GroupNorm, width: 128, tokens: None },
        Case { kind: Kind::Linear, width: 512, tokens: Some(1024) },
    ] {
        check(&case);
    }
}
