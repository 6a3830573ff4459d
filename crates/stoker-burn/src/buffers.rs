//! Telling running statistics from parameters.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;
use std::cell::Cell;
use std::collections::HashMap;

thread_local! {
    static IN_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Walks Burn's batch norm inside of ours, which gives it statistics of their own type whatever is computed in.
pub(crate) fn in_ours<T>(walk: impl FnOnce() -> T) -> T {
    let before = IN_OURS.replace(true);
    let walked = walk();
    IN_OURS.set(before);
    walked
}

/// Paths of the float tensors of `model` that are no parameters, and the kind of module that holds each (nothing for our
/// own).
pub(crate) fn buffers<M: Module>(model: &M) -> HashMap<String, String> {
    let mut buffers = Buffers::default();
    model.clone().map(&mut Thaw).visit(&mut buffers);
    buffers.found
}

/// A running statistic is visited like a frozen parameter; the difference is that it cannot be made to require a
/// gradient. Parameters that are not initialised are left alone: clones share them, so the model would be thawed too.
struct Thaw;

impl ModuleMapper for Thaw {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if param.is_initialized() { param.set_require_grad(true) } else { param }
    }
}

#[derive(Default)]
struct Buffers {
    path: Vec<String>,
    containers: Vec<String>,
    found: HashMap<String, String>,
}

impl ModuleVisitor for Buffers {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push(name.to_owned());
        self.containers.push(container.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
        self.containers.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_initialized() && !param.is_require_grad() {
            let container =
                if IN_OURS.get() { String::new() } else { self.containers.last().cloned().unwrap_or_default() };
            self.found.insert(self.path.join("."), container);
        }
    }
}
