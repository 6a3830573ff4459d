//! AdamW in turn with another program.
//!
//! Where the speed of memory changes from one second to the next, two programs run one after the other cannot be
//! compared. So this one waits: `optimizer turns MILLIONS THREADS` makes its memory, says `ready`, and answers each line
//! of its input, one of `KINDS`, with the seconds that one update took. `tests/peers/adam_in_turn.py` asks.

use crate::update;
use rayon::ThreadPoolBuilder;
use std::io::{BufRead, Write};
use stoker_core::DType;
use stoker_kernels::Level;
use stoker_tests::memory::{Memory, seconds};

/// Names, and the types of gradient and moments. `plain` is the loop that moves what `f32` does and computes nothing.
const KINDS: [(&str, DType, DType); 4] = [
    ("f32", DType::F32, DType::F32),
    ("bf16", DType::BF16, DType::F32),
    ("bf16-moments", DType::F32, DType::BF16),
    ("plain", DType::F32, DType::F32),
];

/// Answers until its input ends.
pub(crate) fn answer(millions: f64, threads: usize) {
    let elements = (millions * 1e6) as usize;
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let mut memories = KINDS.map(|(_, gradient, state)| Memory::new(elements, gradient, state, 1e-2));
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let at = KINDS.iter().position(|(name, ..)| *name == line).unwrap();
        let memory = &mut memories[at];
        let took = match line.as_str() {
            "plain" => (memory.bytes(2) * elements) as f64 / memory.plain_rate(&pool),
            _ => seconds(&pool, || update("adamw", Level::best(), memory)),
        };
        println!("{took}");
        std::io::stdout().flush().unwrap();
    }
}
