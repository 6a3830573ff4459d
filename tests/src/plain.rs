//! The reference: the same model as a plain Burn module, trained by Burn's own optimizer, with no engine.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::Tensor;
use std::collections::BTreeMap;

/// Values of every float parameter and buffer by path.
pub type Values = BTreeMap<String, Vec<f32>>;

/// Reads them out of a plain module.
pub fn values<M: Module>(model: &M) -> Values {
    let mut collect = Collect::default();
    model.visit(&mut collect);
    collect.values
}

#[derive(Default)]
struct Collect {
    path: Vec<String>,
    values: Values,
}

impl ModuleVisitor for Collect {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let data = param.val().into_data();
        self.values.insert(self.path.join("."), data.as_slice::<f32>().unwrap().to_vec());
    }
}

/// Trains `model` with Burn's AdamW: one step for each loss; returns it with its losses.
pub fn train<M: Module>(
    mut model: M,
    eps: f32,
    weight_decay: f32,
    learning_rate: f64,
    steps: usize,
    loss: impl Fn(&M, usize) -> Tensor<1>,
) -> (M, Vec<f64>) {
    let config =
        AdamWConfig::new().with_beta_1(0.9).with_beta_2(0.999).with_epsilon(eps).with_weight_decay(weight_decay);
    let mut optimizer = config.init();
    let mut losses = Vec::new();
    for step in 0..steps {
        let loss = loss(&model, step);
        losses.push(f64::from(loss.clone().into_scalar::<f32>()));
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(learning_rate, model, gradients);
    }
    (model, losses)
}
