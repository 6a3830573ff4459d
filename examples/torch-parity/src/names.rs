//! The one place that knows how PyTorch names and lays out what Burn has.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

/// A parameter or running statistic of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// Burn's path.
    pub(crate) path: String,
    /// Burn's shape.
    pub(crate) shape: Vec<usize>,
}

/// All of a model, in the order of its fields. None of them is made.
pub(crate) fn of<M: Module>(model: &M) -> Vec<Named> {
    let mut collect = Collect::default();
    model.visit(&mut collect);
    collect.found
}

impl Named {
    /// PyTorch's name: its batch norm calls `weight` and `bias` what Burn's calls `gamma` and `beta`.
    pub(crate) fn torch_name(&self) -> String {
        let (module, name) = self.path.rsplit_once('.').unwrap_or(("", &self.path));
        let name = match name {
            "gamma" => "weight",
            "beta" => "bias",
            same => same,
        };
        if module.is_empty() { name.to_owned() } else { format!("{module}.{name}") }
    }

    /// Name of the last values to compare with. Burn keeps the biased variance, PyTorch the unbiased one; a file has both.
    pub(crate) fn torch_name_of_last(&self) -> String {
        let name = self.torch_name();
        if name.ends_with("running_var") { format!("{name}_biased") } else { name }
    }

    /// PyTorch's shape: its linear weights are [out, in], Burn's [in, out]. Everything else is alike.
    pub(crate) fn torch_shape(&self) -> Vec<usize> {
        match *self.shape.as_slice() {
            [inputs, outputs] => vec![outputs, inputs],
            _ => self.shape.clone(),
        }
    }

    /// PyTorch's values in Burn's order.
    pub(crate) fn in_order_of_burn(&self, torch: Vec<f32>) -> Vec<f32> {
        match *self.shape.as_slice() {
            [inputs, _] => (0..inputs).flat_map(|input| torch.iter().skip(input).step_by(inputs)).copied().collect(),
            _ => torch,
        }
    }
}

#[derive(Default)]
struct Collect {
    path: Vec<String>,
    found: Vec<Named>,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.found.push(Named { path: self.path.join("."), shape: param.lazy_shape().as_slice().to_vec() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, shape: &[usize]) -> Named {
        Named { path: path.to_owned(), shape: shape.to_vec() }
    }

    #[test]
    fn linear_weights_are_transposed_and_nothing_else() {
        let linear = named("fc.weight", &[3, 2]);
        assert_eq!(linear.torch_shape(), [2, 3]);
        // Row o of PyTorch's has the weights of output o.
        let torch = vec![11.0, 12.0, 13.0, 21.0, 22.0, 23.0];
        assert_eq!(linear.in_order_of_burn(torch.clone()), [11.0, 21.0, 12.0, 22.0, 13.0, 23.0]);
        let convolution = named("conv.weight", &[1, 2, 3, 1]);
        assert_eq!(convolution.torch_shape(), [1, 2, 3, 1]);
        assert_eq!(convolution.in_order_of_burn(torch.clone()), torch);
    }

    #[test]
    fn batch_norms_have_pytorchs_names() {
        for (path, name, last) in [
            ("bn1.gamma", "bn1.weight", "bn1.weight"),
            ("bn1.beta", "bn1.bias", "bn1.bias"),
            ("bn1.running_mean", "bn1.running_mean", "bn1.running_mean"),
            ("bn1.running_var", "bn1.running_var", "bn1.running_var_biased"),
            ("conv1.weight", "conv1.weight", "conv1.weight"),
        ] {
            let named = named(path, &[4]);
            assert_eq!((named.torch_name().as_str(), named.torch_name_of_last().as_str()), (name, last));
        }
    }
}
