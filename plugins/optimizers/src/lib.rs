//! How shards are updated.
//!
//! stoker's own kernels, with the names, defaults and meaning of PyTorch where it has the optimizer:
//!
//! | name | rule | state, each as long as the shard |
//! |---|---|---|
//! | `adamw` | [Adam with decoupled weight decay](adam) | `exp_avg`, `exp_avg_sq` |
//! | `adam` | [Adam with an L2 penalty](adam) | `exp_avg`, `exp_avg_sq` |
//! | `adagrad` | [Adagrad](adagrad) | `sum` |
//! | `lion` | [Lion](lion) | `exp_avg` |
//! | `sgd` | [gradient descent](sgd) | with momentum `momentum_buffer` |
//!
//! All of these treat every element by itself, which is what lets a parameter be cut anywhere between ranks.
#![forbid(unsafe_code)]

pub mod adagrad;
pub mod adam;
pub mod lion;
mod segments;
pub mod sgd;
mod specs;
#[cfg(test)]
mod testing;
