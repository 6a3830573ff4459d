//! The reference: the same model as a plain Burn module, with no engine, trained by the same rule.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Gradients, Tensor, TensorData};
use std::collections::BTreeMap;

/// Values of every float parameter and buffer by path.
pub type Values = BTreeMap<String, Vec<f32>>;

/// Reads them out of a plain module.
pub fn values<M: Module>(model: &M) -> Values {
    let mut collect = Collect::default();
    // Burn shows the last update of running statistics only once a module is made valid.
    model.valid().visit(&mut collect);
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

/// Trains `model` by AdamW as stoker (and PyTorch) means it: one step for each loss; returns it with its losses.
///
/// Burn's own AdamW is the same rule with its scalars rounded to f32, `1 - 0.999` for one, which alone makes its updates
/// differ by up to 2.4e-5. So the update is written out here, in f64, sharing nothing with stoker's kernels.
pub fn train<M: Module>(
    mut model: M,
    eps: f64,
    weight_decay: f64,
    learning_rate: f64,
    steps: usize,
    loss: impl Fn(&M, usize) -> Tensor<1>,
) -> (M, Vec<f64>) {
    let mut moments = BTreeMap::new();
    let mut losses = Vec::new();
    for step in 0..steps {
        let loss = loss(&model, step);
        losses.push(f64::from(loss.clone().into_scalar::<f32>()));
        let mut update = AdamW {
            path: Vec::new(),
            gradients: loss.backward(),
            moments: &mut moments,
            eps,
            weight_decay,
            learning_rate,
        };
        model = model.map(&mut update);
    }
    (model, losses)
}

/// Of one parameter.
#[derive(Default)]
struct Moments {
    /// Updates so far: a parameter that has no gradient in a step counts none.
    updates: i32,
    values: Vec<(f64, f64)>,
}

struct AdamW<'a> {
    path: Vec<String>,
    gradients: Gradients,
    moments: &'a mut BTreeMap<String, Moments>,
    eps: f64,
    weight_decay: f64,
    learning_rate: f64,
}

impl ModuleMapper for AdamW<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = param.val().grad(&self.gradients) else { return param };
        let gradient = gradient.into_data();
        let gradient = gradient.as_slice::<f32>().unwrap();
        let moments = self.moments.entry(self.path.join(".")).or_default();
        moments.updates += 1;
        moments.values.resize(gradient.len(), (0.0, 0.0));
        let correction = |beta: f64| 1.0 - beta.powi(moments.updates);
        let (correction1, correction2) = (correction(0.9), correction(0.999));
        param.map(|value| {
            let (device, shape) = (value.device(), value.shape());
            let mut values = value.into_data().as_slice::<f32>().unwrap().to_vec();
            for ((p, g), (m, v)) in values.iter_mut().zip(gradient).zip(&mut moments.values) {
                let g = f64::from(*g);
                *m = 0.9 * *m + 0.1 * g;
                *v = 0.999 * *v + 0.001 * g * g;
                let decayed = f64::from(*p) * (1.0 - self.learning_rate * self.weight_decay);
                *p =
                    (decayed - self.learning_rate * (*m / correction1) / ((*v / correction2).sqrt() + self.eps)) as f32;
            }
            Tensor::from_data(TensorData::new(values, shape), &device).require_grad()
        })
    }
}
