//! `stoker_burn::nn::Conv2d` gives what Burn's gives: output and gradients, whatever the geometry.

use burn::module::{Module, Param};
use burn::nn::PaddingConfig2d;
use burn::nn::conv::Conv2dConfig;
use burn::tensor::{Device, Distribution, Tensor};
use burn_store::{ModuleSnapshot, SafetensorsStore};
use proptest::prelude::*;
use stoker_burn::nn::Conv2d;
use stoker_tests::relative_distance;

/// A convolution and what it is given.
#[derive(Debug, Clone)]
struct Case {
    config: Conv2dConfig,
    batch: usize,
    size: [usize; 2],
}

fn cases() -> impl Strategy<Value = Case> {
    let pair = |range: std::ops::Range<usize>| [range.clone(), range];
    let padding = prop_oneof![
        Just(PaddingConfig2d::Valid),
        Just(PaddingConfig2d::Same),
        (0usize..3, 0usize..3).prop_map(|(height, width)| PaddingConfig2d::Explicit(height, width, height, width)),
        (0usize..3, 0usize..3, 0usize..3, 0usize..3)
            .prop_map(|(top, left, bottom, right)| PaddingConfig2d::Explicit(top, left, bottom, right)),
    ];
    let geometry = (pair(1..5), pair(1..4), pair(1..3), padding, any::<bool>());
    let channels = (1usize..4, 1usize..4, 1usize..4);
    (geometry, channels, 1usize..4, pair(9..14)).prop_map(
        |((kernel, stride, dilation, padding, bias), (groups, inputs, outputs), batch, size)| {
            let config = Conv2dConfig::new([groups * inputs, groups * outputs], kernel)
                .with_stride(stride)
                .with_dilation(dilation)
                .with_groups(groups)
                .with_padding(padding)
                .with_bias(bias);
            Case { config, batch, size }
        },
    )
}

/// Output, and gradients of input, weight and bias, of the sum of the output times `factors`.
fn results(
    module: impl Fn(Tensor<4>) -> Tensor<4>,
    weight: &Param<Tensor<4>>,
    bias: Option<&Param<Tensor<1>>>,
    input: &Tensor<4>,
) -> Vec<Vec<f32>> {
    let input = input.clone().detach().require_grad();
    let output = module(input.clone());
    // Factors that differ from place to place.
    let factors = output.clone().detach().cos();
    let gradients = (output.clone() * factors).sum().backward();
    let values = |data: burn::tensor::TensorData| data.try_to_vec::<f32>().unwrap();
    let mut found = vec![
        values(output.into_data()),
        values(input.grad(&gradients).unwrap().into_data()),
        values(weight.val().grad(&gradients).unwrap().into_data()),
    ];
    found.extend(bias.map(|bias| values(bias.val().grad(&gradients).unwrap().into_data())));
    found
}

fn device() -> Device {
    stoker_tests::device().autodiff()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn is_burns(case in cases()) {
        let device = device();
        let Case { config, batch, size: [height, width] } = case;
        let plain = config.init(&device);
        let ours = Conv2d::from(plain.clone());
        let shape = [batch, config.channels[0], height, width];
        let input = Tensor::<4>::random(shape, Distribution::Normal(0.0, 1.0), &device);
        let wanted = results(|x| plain.forward(x), &plain.weight, plain.bias.as_ref(), &input);
        let found = results(|x| ours.forward(x), &ours.weight, ours.bias.as_ref(), &input);
        prop_assert_eq!(found.len(), 3 + usize::from(config.bias));
        for (found, wanted) in found.iter().zip(&wanted) {
            prop_assert_eq!(found.len(), wanted.len());
            let distance = relative_distance(found, wanted);
            prop_assert!(distance < 1e-5, "{}", distance);
        }
    }
}

#[test]
fn the_record_is_burns() {
    let device = device();
    let config = Conv2dConfig::new([2, 3], [3, 5]);
    let plain = config.init(&device);
    let mut ours = Conv2d::from(config.init(&device));
    let mut store = SafetensorsStore::from_bytes(None);
    plain.save_into(&mut store).unwrap();
    let read = ours.load_from(&mut SafetensorsStore::from_bytes(Some(store.get_bytes().unwrap()))).unwrap();
    let mut applied = read.applied;
    applied.sort();
    assert_eq!(applied, ["bias", "weight"]);
    ours.weight.val().into_data().assert_eq(&plain.weight.val().into_data(), true);
    ours.bias.unwrap().val().into_data().assert_eq(&plain.bias.unwrap().val().into_data(), true);
}

#[test]
fn it_looks_like_burns() {
    let plain = Conv2dConfig::new([4, 6], [3, 5]).with_groups(2).with_stride([2, 1]).init(&device());
    let shown = |module: String| module.split_once('{').map(|(_, rest)| rest.to_owned());
    assert_eq!(shown(Conv2d::from(plain.clone()).to_string()), shown(plain.to_string()));
}

#[test]
fn what_is_not_tracked_gets_no_gradient() {
    let device = device();
    let ours = Conv2d::from(Conv2dConfig::new([1, 2], [3, 3]).init(&device));
    let input = Tensor::<4>::ones([1, 1, 4, 4], &device);
    let gradients = ours.forward(input.clone()).sum().backward();
    assert!(input.grad(&gradients).is_none());
    assert_eq!(
        ours.bias.as_ref().unwrap().val().grad(&gradients).unwrap().to_data().try_to_vec::<f32>().unwrap(),
        [4.0; 2]
    );
    // And in evaluation there is no graph.
    let valid = ours.valid();
    assert_eq!(valid.forward(input.inner()).dims(), [1, 2, 2, 2]);
}
