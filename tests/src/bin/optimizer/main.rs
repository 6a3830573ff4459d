//! How fast the optimizer kernels are: every optimizer, type of gradient, level of instructions and number of threads, in
//! GB/s of the bytes that the algorithm must move, beside what memory allows on the same machine at the same time.
//!
//! `cargo xtask bench optimizer [MILLIONS [FILE.json]]`: millions of parameters, 67 if not given; the same as JSON.
//!
//! `cargo xtask bench optimizer turns MILLIONS THREADS` is for comparing with another program: see `turns.rs`.
//!
//! Each figure is the best of several calls. Between them the loop that only moves Adam's bytes is timed again, so that a
//! machine whose speed drifts does not decide: `of memory` is the median of the ratios of neighbours.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a bench reports by panicking")]

mod turns;

use rayon::{ThreadPool, ThreadPoolBuilder};
use serde_json::{Value, json};
use stoker_core::DType;
use stoker_kernels::{
    Adagrad, Adam, Decay, Gradient, Level, Lion, Momentum, Sgd, adagrad, adam, lion, sgd, sgd_momentum, traffic,
};
use stoker_tests::median;
use stoker_tests::memory::{Memory, least, seconds};

const ROUNDS: usize = 7;

const NAMES: [&str; 6] = ["adamw", "adam", "adagrad", "lion", "sgd", "sgd_momentum"];

fn slots(name: &str) -> usize {
    match name {
        "adamw" | "adam" => 2,
        "sgd" => 0,
        _ => 1,
    }
}

fn update(name: &str, level: Level, memory: &mut Memory) {
    let gradient = Gradient { scale: 0.5, clip: f32::INFINITY };
    let (learning_rate, weight_decay, eps, update) = (1e-3, 0.01, 1e-8, 7);
    let adam_with =
        |decay| Adam { decay, learning_rate, beta1: 0.9, beta2: 0.999, eps, weight_decay, update, gradient };
    let plain = Sgd { learning_rate, weight_decay, gradient };
    match name {
        "adamw" => adam(level, &adam_with(Decay::Decoupled), memory.shard()),
        "adam" => adam(level, &adam_with(Decay::L2), memory.shard()),
        "adagrad" => {
            let rule = Adagrad {
                learning_rate,
                lr_decay: 0.0,
                eps,
                weight_decay,
                initial_accumulator_value: 0.0,
                update,
                gradient,
            };
            adagrad(level, &rule, memory.shard());
        }
        "lion" => {
            lion(
                level,
                &Lion { learning_rate, beta1: 0.9, beta2: 0.99, weight_decay, update, gradient },
                memory.shard(),
            );
        }
        "sgd" => sgd(level, &plain, memory.shard()),
        _ => {
            let past = Momentum { momentum: 0.9, dampening: 0.0, nesterov: false, update };
            sgd_momentum(level, &plain, &past, memory.shard());
        }
    }
}

/// What is measured against what memory allows.
struct Measured {
    /// Of the best call.
    gigabytes_a_second: f64,
    /// Median over rounds of the ratio to the plain loop of the same round.
    of_memory: f64,
    seconds: f64,
}

fn measure(pool: &ThreadPool, plain: &mut Memory, bytes: f64, mut work: impl FnMut() + Send) -> Measured {
    let mut rounds: Vec<_> = (0..=ROUNDS)
        .map(|_| {
            let memory = plain.plain_rate(pool);
            (seconds(pool, &mut work), memory)
        })
        .collect();
    rounds.remove(0); // The first one touches the memory.
    let took = least(&rounds.iter().map(|round| round.0).collect::<Vec<_>>());
    let ratios = rounds.iter().map(|(took, memory)| bytes / took / memory).collect();
    Measured { gigabytes_a_second: bytes / took / 1e9, of_memory: median(ratios), seconds: took }
}

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if_eq("turns").is_some() {
        let mut number = || arguments.next().unwrap().parse::<f64>().unwrap();
        return turns::answer(number(), number() as usize);
    }
    let millions: f64 = arguments.next().map_or(67.0, |text| text.parse().unwrap());
    let elements = (millions * 1e6) as usize;
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    let mut plain = Memory::new(elements, DType::F32, DType::F32, 1e-2);
    let mut rows = Vec::new();
    let mut threads: Vec<usize> =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|c| *c < most).collect();
    threads.push(most);
    for count in threads {
        let pool = ThreadPoolBuilder::new().num_threads(count).build().unwrap();
        let mut others = plain.parameters.clone();
        let source = vec![1.0f32; elements];
        let triad = (0..ROUNDS)
            .map(|_| seconds(&pool, || traffic::triad(Level::best(), &mut plain.parameters, &mut others, &source)));
        let triad = elements as f64 * 12.0 / least(&triad.collect::<Vec<_>>()) / 1e9;
        drop((others, source));
        println!("{count} threads: triad {triad:.1} GB/s at 12 bytes, {millions} million parameters");
        println!("optimizer     gradient  moments  level   ms a call  GB/s  of triad  of memory");
        let show = |name: &str,
                    gradient: DType,
                    state: DType,
                    level: Level,
                    found: &Measured,
                    rows: &mut Vec<Value>| {
            let Measured { gigabytes_a_second, of_memory, seconds } = found;
            println!(
                "{name:13} {gradient:8}  {state:7}  {level:7} {:8.2} {gigabytes_a_second:6.1} {:8.2} {of_memory:9.2}",
                seconds * 1e3,
                gigabytes_a_second / triad,
            );
            rows.push(json!({
                "optimizer": name, "gradient": gradient.to_string(), "moments": state.to_string(),
                "level": level.to_string(), "threads": count, "parameters": elements, "seconds": seconds,
                "gigabytes_a_second": gigabytes_a_second, "of_triad": gigabytes_a_second / triad, "of_memory": of_memory,
            }));
        };
        let sorts =
            [(DType::F32, DType::F32), (DType::BF16, DType::F32), (DType::F16, DType::F32), (DType::F32, DType::BF16)];
        for (gradient, state) in sorts {
            let mut memory = Memory::new(elements, gradient, state, 1e-2);
            for level in Level::ALL.into_iter().filter(|level| level.is_available()) {
                for name in NAMES.into_iter().filter(|name| state == DType::F32 || slots(name) > 0) {
                    let bytes = (memory.bytes(slots(name)) * elements) as f64;
                    let found = measure(&pool, &mut plain, bytes, || update(name, level, &mut memory));
                    show(name, gradient, state, level, &found, &mut rows);
                }
            }
        }
        // Squares of these are denormal.
        for size in [1e-15f32, 1e-19, 1e-22] {
            let mut memory = Memory::new(elements, DType::F32, DType::F32, size);
            let bytes = (memory.bytes(2) * elements) as f64;
            let found = measure(&pool, &mut plain, bytes, || update("adamw", Level::best(), &mut memory));
            show(&format!("adamw {size:e}"), DType::F32, DType::F32, Level::best(), &found, &mut rows);
        }
        let mut tiny = Memory::new(1024, DType::F32, DType::F32, 1e-2);
        let calls = 10_000;
        let took: Vec<_> = (0..ROUNDS)
            .map(|_| seconds(&pool, || (0..calls).for_each(|_| update("adamw", Level::best(), &mut tiny))))
            .collect();
        let nanoseconds = least(&took) / f64::from(calls) * 1e9;
        println!("adamw of 1024 elements: {nanoseconds:.0} ns a call\n");
        rows.push(json!({ "optimizer": "adamw", "threads": count, "parameters": 1024, "seconds": nanoseconds / 1e9 }));
    }
    if let Some(path) = arguments.next() {
        std::fs::write(path, serde_json::to_vec_pretty(&rows).unwrap()).unwrap();
    }
}
