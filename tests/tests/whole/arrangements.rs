//! Units among other units: cut in other places they stay equal, empty they do no harm, shared they are planned for.

use crate::features::{input, linear, tanh, trained};
use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor, activation};
use burn_store::{ModuleSnapshot, SafetensorsStore};
use stoker_burn::Unit;
use stoker_tests::{Setup, plain};

/// Units that start equal and get equal gradients, among others and cut in other places.
#[derive(Module, Debug)]
struct Equal {
    alone: Unit<Linear>,
    first: Unit<(Linear, Linear)>,
    last: Unit<(Linear, Linear)>,
}

fn equal(device: &Device) -> Equal {
    let constant = |value| burn::module::Initializer::Constant { value };
    let same = || LinearConfig::new(4, 3).with_initializer(constant(0.3)).init(device);
    let other = |width| LinearConfig::new(width, 5).with_initializer(constant(0.1)).init(device);
    Equal { alone: Unit::new(same()), first: Unit::new((same(), other(4))), last: Unit::new((other(3), same())) }
}

fn equal_loss(model: &Equal, step: usize, device: &Device) -> Tensor<1> {
    let x = input(step % 7..step % 7 + 6, device);
    let alone = model.alone.call(x.clone(), |linear, x| linear.forward(x));
    let first = model.first.call(x.clone(), |(same, other), x| (same.forward(x.clone()), other.forward(x)));
    let last = model.last.call((x, first.0.clone() * 0.0), |(other, same), (x, y)| (same.forward(x), other.forward(y)));
    let sum = |tensor: Tensor<2>| activation::tanh(tensor).sum();
    sum(alone) + sum(first.0) + sum(last.0) + sum(first.1) + sum(last.1)
}

#[test]
fn equal_parameters_of_several_units_stay_equal_with_every_optimizer() {
    let optimizers = stoker_core::registry::plugins(stoker_core::registry::Kind::Optimizer);
    assert!(optimizers.len() >= 12, "{optimizers:?}");
    for optimizer in optimizers {
        for (world, stage) in [(1, 0), (2, 3), (3, 1)] {
            let mut setup = Setup { optimizer: optimizer.name, alignment: 1, ..Setup::new(world, stage) };
            setup.settings.pool_bytes = 1;
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("model.safetensors");
            setup.run(|rank| {
                let device = rank.device();
                let model = rank.build(equal, None).unwrap();
                for step in 0..100 {
                    rank.step(1e-3, || equal_loss(&model, step, &device)).unwrap();
                }
                rank.save(&model, &file).unwrap();
            });
            let mut plain = equal(&stoker_tests::device());
            plain.load_from(&mut SafetensorsStore::from_file(&file)).unwrap();
            let values = plain::values(&plain);
            for name in ["weight", "bias"] {
                let alone = &values[&format!("alone.{name}")];
                assert!(alone.iter().all(|value| value.is_finite() && *value != 0.3), "{}", optimizer.name);
                for place in ["first.0", "last.1"] {
                    let found = &values[&format!("{place}.{name}")];
                    assert_eq!(found, alone, "{} world {world} stage {stage}: {place}.{name}", optimizer.name);
                }
            }
        }
    }
}

#[derive(Module, Debug)]
struct Empty {
    nothing: Unit<Hollow>,
    linear: Unit<Linear>,
}

/// A unit of no elements at all.
#[derive(Module, Debug)]
struct Hollow {
    nothing: Param<Tensor<2>>,
}

#[test]
fn a_unit_without_elements_is_trained_and_saved() {
    let make = |device: &Device| Empty {
        nothing: Unit::new(Hollow { nothing: Param::from_tensor(Tensor::zeros([0, 3], device)) }),
        linear: Unit::new(linear(device)),
    };
    for (world, stage) in [(1, 0), (1, 3), (2, 2), (2, 3)] {
        let found = trained(&Setup::new(world, stage), 3, make, |model: &Empty, device: &Device| {
            let sum = model.nothing.call((), |hollow, ()| hollow.nothing.val().sum());
            let x = model.linear.call(input(0..6, device), tanh);
            x.square().mean() + sum
        });
        assert!(found["nothing.nothing"].is_empty());
    }
}

/// With the device memory that the plan asks for, and no byte more, a model with shared and frozen weights trains. On a
/// GPU a limit holds for libtorch's own memory too, which is more than this model needs.
#[test]
fn what_the_plan_needs_is_enough_for_shared_and_frozen_weights() {
    use stoker_core::DType;
    use stoker_tests::odd::Odd;

    if stoker_tests::backend() == stoker_burn::Backend::LibTorchCuda {
        return;
    }
    for compute in [DType::F32, DType::BF16] {
        for world in [1, 2] {
            for stage in 0..4 {
                for reshard_after_forward in [true, false] {
                    let mut setup = Setup::new(world, stage);
                    setup.device.compute = compute;
                    setup.settings.reshard_after_forward = reshard_after_forward;
                    setup.settings.pool_bytes = 1;
                    setup.settings.device_memory_limit = Some(1);
                    let train = |setup: &Setup| {
                        let results = setup.run(|rank| {
                            let device = rank.device();
                            let model = rank.build(|device| Odd::new(true, device), None)?;
                            (0..3).try_for_each(|step| rank.step(1e-2, || model.loss(step, 6, 0..6, &device)).map(drop))
                        });
                        results.into_iter().next().unwrap()
                    };
                    let refused = train(&setup).unwrap_err();
                    let stoker_burn::Error::Engine(stoker_engine::Error::DoesNotFit { needed, .. }) = refused else {
                        panic!("{refused}")
                    };
                    setup.settings.device_memory_limit = Some(needed);
                    let what = format!("{compute} world {world} stage {stage} reshard {reshard_after_forward}");
                    train(&setup).unwrap_or_else(|error| panic!("{what}: {error}"));
                }
            }
        }
    }
}
