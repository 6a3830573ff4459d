//! CPU kernels of stoker: optimizer steps, conversions, reductions, norms.
//!
//! Plain loops that the compiler vectorises for each [`Level`] of instructions. Every kernel is a pure function of its
//! slices and gives the same bits at every level and however its input is cut into pieces: that is what lets a caller
//! shard, chunk and parallelise without changing a run. Read `pass.rs` first: the loop of all optimizer steps; on a thread
//! of a rayon pool they use all of it.
#![deny(unsafe_code)]

pub mod adagrad;
pub mod adam;
mod calm;
pub mod convert;
mod denormal;
mod gradient;
mod level;
pub mod lion;
pub mod noise;
pub mod norm;
mod pass;
mod prefetch;
mod real;
pub mod reduce;
pub mod sgd;
mod shard;
mod stream;
#[cfg(test)]
mod testing;
pub mod traffic;

pub use adagrad::{Adagrad, adagrad};
pub use adam::{Adam, Decay, adam};
pub use gradient::Gradient;
pub use level::Level;
pub use lion::{Lion, lion};
pub use norm::{SquareSum, sum_of_squares};
pub use sgd::{Momentum, Sgd, sgd, sgd_momentum};
pub use shard::Shard;

/// All slices of a kernel call are equally long. Anything else is a mistake in the caller, which has checked its input:
/// it must not pass silently, as a shorter update would.
#[inline]
fn same_length(what: &str, found: usize, wanted: usize) {
    assert_eq!(found, wanted, "{what} has {found} elements, {wanted} were wanted: the caller checks this");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_elements_are_fine() {
        let (level, gradient) = (Level::best(), Gradient::AS_IT_IS);
        let rule = Adam {
            decay: Decay::L2,
            learning_rate: 0.1,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.1,
            update: 1,
            gradient,
        };
        adam(level, &rule, Shard::of_f32(&mut [], &[], [&mut [], &mut []]));
        let rule = Adagrad {
            learning_rate: 0.1,
            lr_decay: 0.1,
            eps: 1e-10,
            weight_decay: 0.1,
            initial_accumulator_value: 0.1,
            update: 1,
            gradient,
        };
        adagrad(level, &rule, Shard::of_f32(&mut [], &[], [&mut []]));
        let rule = Lion { learning_rate: 0.1, beta1: 0.9, beta2: 0.99, weight_decay: 0.1, update: 1, gradient };
        lion(level, &rule, Shard::of_f32(&mut [], &[], [&mut []]));
        let rule = Sgd { learning_rate: 0.1, weight_decay: 0.1, gradient };
        sgd(level, &rule, Shard::of_f32(&mut [], &[], []));
        let past = Momentum { momentum: 0.9, dampening: 0.1, nesterov: false, update: 1 };
        sgd_momentum(level, &rule, &past, Shard::of_f32(&mut [], &[], [&mut []]));
    }
}
