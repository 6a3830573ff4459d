//! A layer of experts, of which each record uses one or two.

use super::routing::{Routing, capacity};
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::softmax;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use stoker_burn::Unit;
use stoker_burn::nn::relu;

/// Makes a [`Mixture`].
#[derive(Debug, Clone, Copy)]
pub struct MixtureConfig {
    /// Features of a token.
    pub input: usize,
    /// Features that an expert makes of them.
    pub output: usize,
    /// Number of experts; at least one.
    pub experts: usize,
    /// Experts that a token chooses: from one to all of them.
    pub top_k: usize,
    /// Rows of an expert, relative to its fair share of the choices.
    pub capacity_factor: f64,
}

/// A mixture of experts, each a linear layer with ReLU: the Switch layer
/// ([Fedus et al., 2021](https://arxiv.org/abs/2101.03961)) if a token chooses one expert, else that of GShard
/// ([Lepikhin et al., 2020](https://arxiv.org/abs/2006.16668)).
///
/// - A token's experts are the most probable ones by the router's softmax, in f32. One expert is weighed by its
///   probability; several by theirs over their sum. (GShard leaves its second expert to chance; here it is always used.)
/// - An expert has `ceil(top_k * tokens / experts * capacity_factor)` rows, at most one for each token. First choices are
///   seated before second ones, in the order of the tokens. What finds no row is dropped: that expert adds zero, and a
///   token that all its experts dropped is zero.
/// - `tokens` are those of this rank: capacity is counted rank by rank.
///
/// The router and each expert are units. Every step calls all of them with tensors of the same shapes, empty rows being
/// zero, so what ranks exchange does not depend on where their tokens go.
#[derive(Module, Debug)]
pub struct Mixture {
    router: Unit<Linear>,
    experts: Vec<Unit<Linear>>,
    top_k: usize,
    capacity_factor: f64,
}

/// What a [`Mixture`] makes of a batch.
#[derive(Debug, Clone)]
pub struct Mixed {
    /// `[tokens, output]`.
    pub output: Tensor<2>,
    /// Switch's load-balancing loss, in f32: the number of experts times the sum over them of the part of the tokens whose
    /// first choice it is, times its mean probability. 1 when balanced, the number of experts when all choose one.
    pub load_balance: Tensor<1>,
    /// How many tokens each expert is the first choice of, dropped ones among them.
    pub loads: Vec<usize>,
}

impl MixtureConfig {
    /// The layer on `device`; its parameters are drawn when they are first used. Numbers out of range become the nearest
    /// in it.
    pub fn init(&self, device: &Device) -> Mixture {
        let experts = self.experts.max(1);
        let linear = |output| Unit::new(LinearConfig::new(self.input, output).init(device));
        Mixture {
            router: linear(experts),
            experts: (0..experts).map(|_| linear(self.output)).collect(),
            top_k: self.top_k.clamp(1, experts),
            capacity_factor: self.capacity_factor,
        }
    }
}

impl Mixture {
    /// Of `tokens`, `[tokens, input]`.
    pub fn forward(&self, tokens: Tensor<2>) -> Mixed {
        let [count, _] = tokens.dims();
        let capacity = capacity(count, self.experts.len(), self.top_k, self.capacity_factor);
        let logits = self.router.call(tokens.clone(), |router, x| router.forward(x));
        let probabilities = softmax(logits.cast(DType::F32), 1);
        let known: Vec<f32> = probabilities.clone().into_data().iter().collect();
        let routing = Routing::new(&known, self.experts.len(), self.top_k, capacity);
        let outputs = self.through_experts(tokens, &routing.tokens(), capacity);
        let loads = routing.loads();
        Mixed {
            output: combine(outputs, probabilities.clone(), &routing),
            load_balance: load_balance(probabilities, &loads),
            loads,
        }
    }

    /// Every expert's rows, one after another, each holding the token named in `places` or zero.
    fn through_experts(&self, tokens: Tensor<2>, places: &[Option<usize>], capacity: usize) -> Tensor<2> {
        let [count, _] = tokens.dims();
        let device = tokens.device();
        // An empty row holds the row of zeros after the tokens.
        let tokens = with_zero_row(tokens);
        let outputs = self.experts.iter().zip(places.chunks(capacity)).map(|(expert, places)| {
            let rows = tokens.clone().select(0, indices(places.iter().map(|place| place.unwrap_or(count)), &device));
            expert.call(rows, |linear, rows| relu(linear.forward(rows)))
        });
        Tensor::cat(outputs.collect(), 0)
    }
}

/// The sum over a token's experts of gate times output.
fn combine(outputs: Tensor<2>, probabilities: Tensor<2>, routing: &Routing) -> Tensor<2> {
    let (device, dtype) = (outputs.device(), outputs.dtype());
    let [rows, width] = outputs.dims();
    let [count, _] = probabilities.dims();
    let gates = routing.chosen.iter().map(|experts| {
        let experts = indices(experts.iter().copied(), &device);
        probabilities.clone().gather(1, experts.reshape([count, 1]))
    });
    let mut gates: Vec<Tensor<2>> = gates.collect();
    if gates.len() > 1 {
        let sum = Tensor::cat(gates.clone(), 1).sum_dim(1);
        gates = gates.into_iter().map(|gate| gate / sum.clone()).collect();
    }
    // Whoever was dropped gets the row of zeros after the outputs.
    let outputs = with_zero_row(outputs);
    let parts = gates.into_iter().zip(&routing.seats).map(|(gate, seats)| {
        let seats = indices(seats.iter().map(|seat| seat.unwrap_or(rows)), &device);
        outputs.clone().select(0, seats) * gate.cast(dtype)
    });
    parts.reduce(|sum, part| sum + part).unwrap_or_else(|| Tensor::zeros([count, width], (&device, dtype)))
}

fn load_balance(probabilities: Tensor<2>, loads: &[usize]) -> Tensor<1> {
    let [count, experts] = probabilities.dims();
    // The choice itself has no gradient: these are plain numbers.
    let parts: Vec<f32> = loads.iter().map(|&load| load as f32 / count as f32).collect();
    let parts = Tensor::<2>::from_data(TensorData::new(parts, [1, experts]), (&probabilities.device(), DType::F32));
    (probabilities.mean_dim(0) * parts).sum() * experts as f64
}

fn with_zero_row(x: Tensor<2>) -> Tensor<2> {
    let [_, width] = x.dims();
    let zeros = Tensor::zeros([1, width], (&x.device(), x.dtype()));
    Tensor::cat(vec![x, zeros], 0)
}

fn indices(values: impl Iterator<Item = usize>, device: &Device) -> Tensor<1, Int> {
    let values: Vec<i64> = values.map(|value| value as i64).collect();
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().iter().collect()
    }

    fn close(found: &[f32], wanted: &[f32]) {
        assert_eq!(found.len(), wanted.len());
        assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} instead of {wanted:?}");
    }

    #[test]
    fn balanced_routing_costs_one_and_collapsed_routing_the_number_of_experts() {
        let device = Device::flex();
        let cost = |rows: [[f32; 3]; 3], loads: &[usize]| {
            load_balance(Tensor::from_data(rows, &device), loads).into_scalar::<f32>()
        };
        let third = 1.0 / 3.0;
        close(&[cost([[third; 3]; 3], &[1, 1, 1])], &[1.0]);
        close(&[cost([[1.0, 0.0, 0.0]; 3], &[3, 0, 0])], &[3.0]);
        // 3 * (2/3 * 0.6 + 1/3 * 0.3)
        close(&[cost([[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.3, 0.6, 0.1]], &[2, 1, 0])], &[1.5]);
    }

    /// Two experts with one row each, of which token 2 gets none.
    fn outputs_and_probabilities(device: &Device) -> (Tensor<2>, Tensor<2>) {
        let outputs = Tensor::from_data([[1.0f32, 10.0], [2.0, 20.0]], device);
        let probabilities = Tensor::from_data([[0.75f32, 0.25], [0.4, 0.6], [0.9, 0.1]], device);
        (outputs.require_grad(), probabilities.require_grad())
    }

    #[test]
    fn one_expert_is_weighed_by_its_probability_and_who_is_dropped_is_zero() {
        let (outputs, probabilities) = outputs_and_probabilities(&Device::flex().autodiff());
        let routing = Routing::new(&numbers(probabilities.clone()), 2, 1, 1);
        let combined = combine(outputs.clone(), probabilities.clone(), &routing);
        close(&numbers(combined.clone()), &[0.75, 7.5, 1.2, 12.0, 0.0, 0.0]);
        let gradients = combined.sum().backward();
        close(&numbers(outputs.grad(&gradients).unwrap()), &[0.75, 0.75, 0.6, 0.6]);
        close(&numbers(probabilities.grad(&gradients).unwrap()), &[11.0, 0.0, 0.0, 22.0, 0.0, 0.0]);
    }

    #[test]
    fn two_experts_share_one() {
        let device = Device::flex().autodiff();
        let probabilities = Tensor::<2>::from_data([[0.5f32, 0.25, 0.25], [0.1, 0.3, 0.6]], &device);
        let outputs = Tensor::<2>::from_data([[1.0f32], [0.0], [3.0], [5.0], [7.0], [0.0]], &device);
        let routing = Routing::new(&numbers(probabilities.clone()), 3, 2, 2);
        assert_eq!(routing.seats, [[Some(0), Some(4)], [Some(2), Some(3)]]);
        let combined = combine(outputs.clone(), probabilities.clone(), &routing);
        close(&numbers(combined), &[(2.0 * 1.0 + 3.0) / 3.0, (2.0 * 7.0 + 5.0) / 3.0]);
        // With one row an expert, the second choice of token 1 is dropped, and its part is lost.
        let routing = Routing::new(&numbers(probabilities.clone()), 3, 2, 1);
        assert_eq!(routing.seats, [[Some(0), Some(2)], [Some(1), None]]);
        let outputs = Tensor::<2>::from_data([[1.0f32], [3.0], [7.0]], &device);
        close(&numbers(combine(outputs, probabilities, &routing)), &[(2.0 * 1.0 + 3.0) / 3.0, 2.0 * 7.0 / 3.0]);
    }

    #[test]
    fn tokens_go_through_their_experts() {
        let device = Device::flex();
        for (top_k, factor) in [(1, 1.0), (1, 4.0), (2, 1.0), (2, 4.0), (4, 1.0)] {
            let config = MixtureConfig { input: 6, output: 3, experts: 4, top_k, capacity_factor: factor };
            let mixture = config.init(&device);
            let values: Vec<f32> = (0..60).map(|i| ((i * 7919) % 101) as f32 / 50.0 - 1.0).collect();
            let tokens = Tensor::<2>::from_data(TensorData::new(values, [10, 6]), &device);
            let mixed = mixture.forward(tokens.clone());
            // The same, token by token and expert by expert.
            let probabilities = softmax(mixture.router.call(tokens.clone(), |router, x| router.forward(x)), 1);
            let probabilities = numbers(probabilities);
            let routing = Routing::new(&probabilities, 4, top_k, capacity(10, 4, top_k, factor));
            let outputs = mixture.experts.iter();
            let outputs: Vec<Vec<f32>> = outputs
                .map(|expert| numbers(expert.call(tokens.clone(), |linear, x| relu(linear.forward(x)))))
                .collect();
            let mut wanted = vec![0.0; 30];
            for token in 0..10 {
                let chosen: Vec<usize> = routing.chosen.iter().map(|choice| choice[token]).collect();
                let sum: f32 = chosen.iter().map(|expert| probabilities[token * 4 + expert]).sum();
                for (choice, &expert) in chosen.iter().enumerate() {
                    let gate = probabilities[token * 4 + expert] / if top_k == 1 { 1.0 } else { sum };
                    for feature in 0..3 {
                        if routing.seats[choice][token].is_some() {
                            wanted[token * 3 + feature] += gate * outputs[expert][token * 3 + feature];
                        }
                    }
                }
            }
            close(&numbers(mixed.output), &wanted);
            assert_eq!(mixed.loads, routing.loads());
        }
    }

    #[test]
    fn numbers_out_of_range_become_the_nearest() {
        let config = MixtureConfig { input: 2, output: 2, experts: 0, top_k: 7, capacity_factor: -1.0 };
        let mixture = config.init(&Device::flex());
        assert_eq!((mixture.experts.len(), mixture.top_k), (1, 1));
        assert_eq!(mixture.forward(Tensor::zeros([3, 2], &Device::flex())).output.dims(), [3, 2]);
    }
}
