//! What a training step costs: `cargo xtask bench --features libtorch step seednet|lenet|chain [KEY=VALUE..]`.
//!
//! Prints, and writes as JSON in the last line: the median of `steps` steps after 3, as the loop sees them (the forward
//! waits for updates, the backward ends with the loss on the host, the update with its decision); then the parts of a
//! step when nothing runs beside anything else; bytes moved, how fast while they moved, and how fast the machine can
//! (`machine.rs`); the time below which a step cannot come here (`floor.rs`); memory, its growth over the steps, and
//! peaks (the most that was resident counts the measuring of the machine too). `seednet` and `lenet` take the images in
//! the file `CIFAR_BIN`, or built-in ones. STOKER_TEST_BACKEND chooses the backend.
//!
//! | key | value, default |
//! |---|---|
//! | `dtype` | `bf16`, `f16`, `f32` |
//! | `clip` | global norm, 1; 0 for none |
//! | `batch` | 128 images; chain 2048 rows |
//! | `divisor` | of seednet's widths, 1 |
//! | `width` | of chain's 16 layers, 8192 |
//! | `overlap`, `early` | `on` or `off`; `early` updates in backward |
//! | `checkpointing` | `on` or `off`: Burn's balanced checkpointing |
//! | `limit` | GiB of device memory, all |
//! | `pool` | GiB of slabs, 3 |
//! | `prefetch` | GiB, 1 |
//! | `steps`, `threads` | 12; all processors |
//! | `target` | `gpu-only`: shards on the device; `cpu-offload` |
//! | `moments` | `bf16`, for AdamW's in it; f32 |
//! | `triad` | millions of parameters that host memory's rate is measured with, 67 |
//! | `timeline` | a file for Perfetto, with four more steps after all others |
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench reports by panicking")]

mod arguments;
mod floor;
mod machine;
mod models;
mod report;
mod timeline;

use arguments::Arguments;
use floor::Needs;
use machine::Machine;
use models::{Loss, losses};
use report::Report;
use std::path::Path;
use std::time::Instant;
use stoker_burn::Rank;
use stoker_engine::{Clipping, LossScale};
use stoker_tests::{Setup, median};
use tracing::trace_span;

const WARM_UP: usize = 3;
const ALONE: usize = 5;
const ON_TIMELINE: usize = 4;

/// Seconds of the parts of a step, as the loop sees them.
#[derive(Debug, Clone, Copy)]
struct Parts {
    forward: f64,
    backward: f64,
    decision: f64,
}

/// One step, and its loss. `wait`: the backward begins when the device has made the forward.
fn step(rank: &Rank, loss: &Loss, number: usize, wait: bool) -> (Parts, f64) {
    let _step = trace_span!("step", number).entered();
    rank.announce_step(1e-3).unwrap();
    let begun = Instant::now();
    let (mut forward, mut in_backward) = (0.0, None);
    let in_forward = trace_span!("forward").entered();
    let value = rank
        .accumulate(|| {
            let loss = loss(number);
            if wait {
                rank.device().sync().unwrap();
            }
            drop(in_forward);
            in_backward = Some(trace_span!("backward").entered());
            forward = begun.elapsed().as_secs_f64();
            loss
        })
        .unwrap();
    drop(in_backward);
    let backward = begun.elapsed().as_secs_f64() - forward;
    let _deciding = trace_span!("decision").entered();
    let deciding = Instant::now();
    rank.update(1e-3).unwrap();
    (Parts { forward, backward, decision: deciding.elapsed().as_secs_f64() }, value)
}

fn measure(rank: &Rank, setup: &Setup, arguments: &Arguments, machine: &Machine) -> Report {
    let steps = arguments.number("steps", 12.0) as usize;
    let begun = Instant::now();
    let (loss, parameters) = losses(arguments, rank);
    let built = begun.elapsed().as_secs_f64();
    let mut values = Vec::new();
    (0..WARM_UP).for_each(|number| values.push(step(rank, &loss, number, false).1));
    let (moved, busy, before) = (rank.moved().unwrap(), rank.busy().unwrap(), machine.taken());
    let (mut parts, mut totals) = (Vec::new(), Vec::new());
    for number in WARM_UP..WARM_UP + steps {
        let begun = Instant::now();
        let (took, value) = step(rank, &loss, number, false);
        totals.push(begun.elapsed().as_secs_f64());
        parts.push(took);
        values.push(value);
    }
    rank.flush().unwrap();
    let (moved_after, busy_after, after) = (rank.moved().unwrap(), rank.busy().unwrap(), machine.taken());
    // One thing after the other.
    let (mut forwards, mut backwards, mut updates) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..ALONE {
        let (Parts { forward, backward, decision }, _) = step(rank, &loss, number, true);
        forwards.push(forward);
        backwards.push(backward);
        let begun = Instant::now();
        rank.flush().unwrap();
        updates.push(decision + begun.elapsed().as_secs_f64());
    }
    let alone = rank.busy().unwrap().updates.since(busy_after.updates);
    let per_step = |bytes: u64| bytes as f64 / steps as f64;
    let settings = &setup.settings;
    let needs = Needs {
        forward: median(forwards),
        backward: median(backwards),
        update: alone.bytes as f64 / ALONE as f64,
        to_device: per_step(moved_after.to_device - moved.to_device),
        from_device: per_step(moved_after.from_device - moved.from_device),
        waits: matches!(settings.clipping, Clipping::Norm(_))
            || settings.loss_scale != LossScale::None
            || !settings.update_in_backward,
    };
    if let Some(path) = arguments.pairs.get("timeline") {
        timeline::record(Path::new(path), || {
            for number in 0..ON_TIMELINE {
                step(rank, &loss, number, false);
            }
            rank.flush().unwrap();
        });
    }
    let middle = |part: fn(&Parts) -> f64| median(parts.iter().map(part).collect());
    Report {
        parameters,
        built,
        step: median(totals.clone()),
        steps: totals,
        forward: middle(|parts| parts.forward),
        backward: middle(|parts| parts.backward),
        decision: middle(|parts| parts.decision),
        update_alone: median(updates),
        needs,
        rates: machine.rates,
        updating: busy_after.updates.since(busy.updates).rate(),
        updating_alone: alone.rate(),
        copying: busy_after.copies.zip(busy.copies).map(|(after, before)| {
            [after.to_device.since(before.to_device), after.from_device.since(before.from_device)]
        }),
        before,
        after,
        peaks: rank.ledger().unwrap().peaks(),
        losses: values,
    }
}

fn main() {
    let arguments = Arguments::given();
    let setup = arguments.setup();
    let machine = Machine::measure(&arguments);
    let report = setup.run(|rank| measure(rank, &setup, &arguments, &machine)).remove(0);
    report.print(&arguments);
}
