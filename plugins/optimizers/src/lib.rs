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
//! `adamw`, `adam` and `lion` keep their moments in bf16 if the option `moments` says so: half of the memory, rounded at
//! random (`stoker_kernels::noise`). All of these update a shard in one pass, at the level of instructions that the
//! machine has and on the threads of the pool that they are called on.
//!
//! And, with the feature `burn`, which is on by default, Burn's own, run by burn-optim on Flex, with its names and defaults,
//! bit for bit what Burn would do (module `from_burn`). They make and drop tensors all the time, and are several times slower than the above:
//!
//! | name | rule | state |
//! |---|---|---|
//! | `burn:adamw` | `burn::optim::AdamW` | `momentum.moment_1`, `momentum.moment_2`, with amsgrad `momentum.max_moment_2` |
//! | `burn:adam` | `burn::optim::Adam` | the same |
//! | `burn:adagrad` | `burn::optim::AdaGrad` | `lr_decay.sum` |
//! | `burn:adan` | `burn::optim::Adan` | `momentum.exp_avg`, `.exp_avg_sq`, `.exp_avg_diff`, `.neg_pre_grad` |
//! | `burn:lion` | `burn::optim::Lion` | `momentum` |
//! | `burn:rmsprop` | `burn::optim::RmsProp` | `square_avg.square_avg`, `centered.avg`, if centered `centered.grad_avg`, with momentum `momentum.buf` |
//! | `burn:sgd` | `burn::optim::Sgd` | with momentum `momentum.velocity` |
//!
//! All of these treat every element by itself, which is what lets a parameter be cut anywhere between ranks. Burn's
//! LAMB, Muon, Adafactor and L-BFGS do not: they look at whole parameters (norms, rows and columns, all of the model),
//! and are left out.
#![forbid(unsafe_code)]

pub mod adagrad;
pub mod adam;
#[cfg(feature = "burn")]
pub mod from_burn;
pub mod lion;
mod segments;
pub mod sgd;
mod specs;
#[cfg(test)]
mod testing;
