//! What the kernels cost on one thread, in a cache and in memory: `cargo xtask bench kernels`.
//!
//! In a cache the figure is what computing costs; where a shard in memory takes as long, memory is not what it waits for.
//! What memory allows is measured by `cargo xtask bench optimizer`.
#![allow(clippy::unwrap_used, reason = "a bench reports by panicking")]

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use stoker_core::{DType, HostBuffer, Values, ValuesMut};
use stoker_kernels::{Adam, Decay, Gradient, Level, Shard, adam, convert, norm};

/// Elements: of a shard whose slices fill half of a second-level cache, and of one that no cache holds.
const SIZES: [usize; 2] = [1 << 14, 1 << 24];

fn main() {
    divan::main();
}

fn buffer(dtype: DType, elements: usize, size: f32) -> HostBuffer {
    let mut buffer = HostBuffer::zeros_of(dtype, elements);
    let values: Vec<f32> = (0..elements).map(|at| size * (0.5 + (at % 1021) as f32 / 1021.0)).collect();
    convert::from_f32(ValuesMut::of(&mut buffer).unwrap(), &values);
    buffer
}

fn adamw(bencher: Bencher<'_, '_>, elements: usize, gradient: DType, state: DType, level: Level) {
    let rule = Adam {
        decay: Decay::Decoupled,
        learning_rate: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.01,
        update: 7,
        gradient: Gradient { scale: 0.5, clip: f32::INFINITY },
    };
    let mut parameters = vec![0.5f32; elements];
    let from = buffer(gradient, elements, 1e-2);
    let mut rounded = (gradient != DType::F32).then(|| HostBuffer::zeros_of(gradient, elements));
    let mut moments = [buffer(state, elements, 1e-2), buffer(state, elements, 1e-4)];
    let narrow = if gradient == DType::F32 { gradient.size() } else { 2 * gradient.size() };
    let bytes = elements * (8 + narrow + 4 * state.size());
    bencher.counter(BytesCount::new(bytes)).counter(ItemsCount::new(elements)).bench_local(|| {
        let shard = Shard {
            parameters: black_box(&mut parameters),
            gradient: Values::of(&from).unwrap(),
            state: moments.each_mut().map(|state| ValuesMut::of(state).unwrap()),
            rounded: rounded.as_mut().map(|rounded| ValuesMut::of(rounded).unwrap()),
        };
        adam(level, &rule, shard);
    });
}

#[divan::bench(args = SIZES)]
fn adamw_f32(bencher: Bencher<'_, '_>, elements: usize) {
    adamw(bencher, elements, DType::F32, DType::F32, Level::best());
}

#[divan::bench(args = SIZES)]
fn adamw_f32_portable(bencher: Bencher<'_, '_>, elements: usize) {
    adamw(bencher, elements, DType::F32, DType::F32, Level::Portable);
}

#[divan::bench(args = SIZES)]
fn adamw_bf16_gradient(bencher: Bencher<'_, '_>, elements: usize) {
    adamw(bencher, elements, DType::BF16, DType::F32, Level::best());
}

#[divan::bench(args = SIZES)]
fn adamw_f16_gradient(bencher: Bencher<'_, '_>, elements: usize) {
    adamw(bencher, elements, DType::F16, DType::F32, Level::best());
}

#[divan::bench(args = SIZES)]
fn adamw_bf16_moments(bencher: Bencher<'_, '_>, elements: usize) {
    adamw(bencher, elements, DType::F32, DType::BF16, Level::best());
}

#[divan::bench(args = SIZES)]
fn adamw_all_bf16(bencher: Bencher<'_, '_>, elements: usize) {
    adamw(bencher, elements, DType::BF16, DType::BF16, Level::best());
}

#[divan::bench(args = SIZES)]
fn sum_of_squares(bencher: Bencher<'_, '_>, elements: usize) {
    let values = vec![1e-3f32; elements];
    bencher.counter(BytesCount::new(elements * 4)).bench_local(|| norm::sum_of_squares(black_box(&values)));
}

#[divan::bench(args = SIZES)]
fn bf16_to_f32(bencher: Bencher<'_, '_>, elements: usize) {
    to_f32(bencher, elements, DType::BF16);
}

#[divan::bench(args = SIZES)]
fn f16_to_f32(bencher: Bencher<'_, '_>, elements: usize) {
    to_f32(bencher, elements, DType::F16);
}

fn to_f32(bencher: Bencher<'_, '_>, elements: usize, dtype: DType) {
    let from = buffer(dtype, elements, 1.0);
    let mut into = vec![0f32; elements];
    bencher
        .counter(BytesCount::new(elements * 6))
        .bench_local(|| convert::to_f32(black_box(&mut into), Values::of(&from).unwrap()));
}
