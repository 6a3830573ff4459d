//! Initial weights that depend on the run's seed and the parameter's path, and on nothing else.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use fnv::FnvHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

/// Every Burn backend has one random generator per process: whoever seeds it and draws must not be disturbed.
static GENERATOR: Mutex<()> = Mutex::new(());

/// Draws the parameter's initial value, if it has none yet, with a seed of its own.
pub(crate) fn draw<const D: usize>(param: Param<Tensor<D>>, seed: u64, path: &str) -> Param<Tensor<D>> {
    if !param.is_initialized() {
        // A hash that stays the same from one compiler to the next, as the standard one need not.
        let mut hasher = FnvHasher::default();
        (seed, path).hash(&mut hasher);
        let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
        param.lazy_device().seed(hasher.finish());
        let _ = param.val();
    }
    param
}

/// Gives a plain model the weights that [`Rank::build`](crate::Rank::build) would give it with this seed.
///
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Device;
/// let linear = |seed| stoker_burn::init::initialise(LinearConfig::new(2, 2).init(&Device::flex()), seed);
/// let weights = |seed| linear(seed).weight.val().into_data();
/// assert_eq!(weights(7), weights(7));
/// assert_ne!(weights(7), weights(8));
/// ```
pub fn initialise<M: Module>(model: M, seed: u64) -> M {
    model.map(&mut Initialise { seed, path: Vec::new() })
}

struct Initialise {
    seed: u64,
    path: Vec<String>,
}

impl ModuleMapper for Initialise {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        draw(param, self.seed, &self.path.join("."))
    }
}
