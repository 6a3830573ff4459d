//! `stoker_burn::nn::relu` gives what Burn's gives: values and gradients, bit for bit.

use burn::tensor::activation;
use burn::tensor::{Device, Tensor};
use proptest::prelude::*;
use stoker_burn::nn::relu;

type Function = fn(Tensor<1>) -> Tensor<1>;

fn bits(tensor: Tensor<1>) -> Vec<u32> {
    tensor.into_data().try_to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

/// Output and gradient of a graph that uses the input of `function` once more after it, if `shared`, and its output twice.
fn results(function: Function, values: &[f32], shared: bool, device: &Device) -> [Vec<u32>; 2] {
    let leaf = Tensor::<1>::from_data(values, device).require_grad();
    let input = leaf.clone() * 0.75;
    let other = if shared { input.clone() * 3.0 } else { Tensor::zeros_like(&input) };
    let output = function(input);
    let loss = (output.clone() * output.clone() * 0.5 + output.clone() + other).sum();
    let gradients = loss.backward();
    [bits(output), bits(leaf.grad(&gradients).unwrap())]
}

fn agree(values: &[f32]) {
    let device = stoker_tests::device();
    for device in [device.clone().autodiff(), device.autodiff().gradient_checkpointing()] {
        for shared in [false, true] {
            let wanted = results(activation::relu, values, shared, &device);
            assert_eq!(results(relu, values, shared, &device), wanted, "{values:?}, shared: {shared}");
        }
    }
}

#[test]
fn borders_are_burns() {
    let tiny = f32::from_bits(1);
    agree(&[0.0, -0.0, tiny, -tiny, f32::MIN_POSITIVE, 1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0]);
}

#[test]
fn what_it_gives_is_a_rectifiers() {
    let device = stoker_tests::device().autodiff();
    let [output, gradient] = results(relu, &[-2.0, 4.0], true, &device);
    // 0.75 x = 3; the loss is y^2 / 2 + y + 3 z with z = 0.75 x, whether y is there or not.
    assert_eq!(output, [0.0f32, 3.0].map(f32::to_bits));
    assert_eq!(gradient, [2.25f32, 0.75 * (3.0 + 1.0 + 3.0)].map(f32::to_bits));
}

/// libtorch's backward writes into a gradient that nobody else has: here somebody has it, and one is not all memory.
#[test]
fn a_gradient_of_others_stays_as_it_is() {
    let device = stoker_tests::device().autodiff();
    let [x, other] = [[-1.0f32, 2.0], [5.0, 6.0]].map(|values| Tensor::<1>::from_data(values, &device).require_grad());
    let weight = Tensor::<1>::from_data([3.0, 7.0], &device);
    let gradients = ((relu(x.clone()) + other.clone()) * weight).sum().backward();
    assert_eq!(bits(x.grad(&gradients).unwrap()), [0.0f32, 7.0].map(f32::to_bits));
    assert_eq!(bits(other.grad(&gradients).unwrap()), [3.0f32, 7.0].map(f32::to_bits));
    let gradients = relu(x.clone()).sum().backward();
    assert_eq!(bits(x.grad(&gradients).unwrap()), [0.0f32, 1.0].map(f32::to_bits));
}

proptest! {
    #[test]
    fn anything_is_burns(values in prop::collection::vec(-3f32..3.0, 1..40)) {
        agree(&values);
    }
}
