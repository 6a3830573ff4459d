//! What models have beside plain layers: shared and frozen weights, groups, adapters, dropout, running statistics.

use burn::module::{Module, Param, ParamId, Reparameterization, Reparameterizer};
use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData, activation};
use burn_store::{ModuleSnapshot, SafetensorsStore};
use safetensors::SafeTensors;
use stoker_burn::{Checkpointing, ParameterGroup, ParameterRules, RunningStatistics, Unit, init};
use stoker_core::{Place, Role};
use stoker_tests::plain::{self, Values};
use stoker_tests::{Setup, relative_distance};

pub(crate) fn input(rows: std::ops::Range<usize>, device: &Device) -> Tensor<2> {
    let values: Vec<f32> = (rows.start * 4..rows.end * 4).map(|i| (i * 5 % 13) as f32 / 6.5 - 1.0).collect();
    Tensor::<1>::from_floats(values.as_slice(), device).reshape([rows.len(), 4])
}

pub(crate) fn linear(device: &Device) -> Linear {
    LinearConfig::new(4, 4).init(device)
}

#[derive(Module, Debug)]
struct Two {
    first: Unit<Linear>,
    second: Unit<Linear>,
}

fn two(device: &Device) -> Two {
    Two { first: Unit::new(linear(device)), second: Unit::new(linear(device)) }
}

pub(crate) fn tanh(linear: &Linear, x: Tensor<2>) -> Tensor<2> {
    activation::tanh(linear.forward(x))
}

fn two_loss(model: &Two, device: &Device) -> Tensor<1> {
    let x = model.first.call(input(0..6, device), tanh);
    model.second.call(x, tanh).square().mean()
}

/// Trains with the settings and gives all values, by a file.
pub(crate) fn trained<M: Module + 'static>(
    setup: &Setup,
    steps: usize,
    make: impl Fn(&Device) -> M + Sync,
    loss: impl Fn(&M, &Device) -> Tensor<1> + Sync,
) -> Values {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("model.safetensors");
    setup.run(|rank| {
        let device = rank.device();
        let model = rank.build(&make, None).unwrap();
        for _ in 0..steps {
            rank.step(1e-2, || loss(&model, &device)).unwrap();
        }
        rank.save(&model, &file).unwrap();
    });
    let mut plain = make(&stoker_tests::device());
    plain.load_from(&mut SafetensorsStore::from_file(&file)).unwrap();
    plain::values(&plain)
}

#[test]
fn equal_weights_are_equal_files() {
    let directory = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..8).map(|number| directory.path().join(format!("{number}.safetensors"))).collect();
    Setup::new(2, 3).run(|rank| {
        let model = rank.build(two, None).unwrap();
        for file in &files {
            rank.save(&model, file).unwrap();
        }
    });
    let bytes: Vec<_> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(bytes.iter().all(|other| *other == bytes[0]));
}

/// Types of one width, a mask and a table.
#[derive(Module, Debug)]
struct Kinds {
    a_half: Unit<Linear>,
    b_brain: Unit<Linear>,
    held: Unit<Held>,
}

#[derive(Module, Debug)]
struct Held {
    mask: Param<Tensor<1, Bool>>,
    table: Param<Tensor<1, Int>>,
}

fn kinds(mask: [bool; 3], table: [i32; 3], device: &Device) -> Kinds {
    let narrow = |dtype: DType| {
        let Linear { weight, .. } = LinearConfig::new(4, 4).with_bias(false).init(device);
        let cast = |weight: Tensor<2>| {
            let weight = weight.cast(dtype).detach();
            if device.is_autodiff() { weight.require_grad() } else { weight }
        };
        Unit::new(Linear { weight: weight.map(cast), bias: None })
    };
    let mask = Param::initialized(ParamId::new(), Tensor::from_data(TensorData::from(mask), device));
    let table = Param::initialized(ParamId::new(), Tensor::from_data(TensorData::from(table), device));
    Kinds { a_half: narrow(DType::F16), b_brain: narrow(DType::BF16), held: Unit::new(Held { mask, table }) }
}

#[test]
fn a_file_brings_all_kinds_of_values_and_is_written_by_all_ranks_in_one_order() {
    let directory = tempfile::tempdir().unwrap();
    let (before, after) = (directory.path().join("before.safetensors"), directory.path().join("after.safetensors"));
    let given = init::initialise(kinds([true, false, true], [3, 1, 2], &stoker_tests::device()), 5);
    given.save_into(&mut SafetensorsStore::from_file(&before)).unwrap();
    Setup::new(2, 3).run(|rank| {
        let model = rank.build(|device| kinds([false; 3], [0; 3], device), Some(&before)).unwrap();
        rank.save(&model, &after).unwrap();
    });
    let [before, after] = [before, after].map(|file| std::fs::read(file).unwrap());
    let [before, after] = [&before, &after].map(|file| SafeTensors::deserialize(file).unwrap());
    assert_eq!(before.len(), 4);
    for (name, wanted) in before.tensors() {
        let found = after.tensor(&name).unwrap();
        assert_eq!((found.dtype(), found.data()), (wanted.dtype(), wanted.data()), "{name}");
    }
}

#[track_caller]
fn assert_near(found: &Values, wanted: &Values, what: &str) {
    for (path, wanted) in wanted {
        let distance = relative_distance(&found[path], wanted);
        assert!(distance < 1e-5, "{what}: {path} is off by {distance:e}");
    }
}

/// The same matrix as the only weight of two units.
#[derive(Module, Debug)]
struct Shared {
    first: Unit<Linear>,
    between: Unit<Linear>,
    again: Unit<Linear>,
}

fn shared(device: &Device) -> Shared {
    let first = linear(device);
    let again = Linear { weight: first.weight.clone(), bias: linear(device).bias };
    Shared { first: Unit::new(first), between: Unit::new(linear(device)), again: Unit::new(again) }
}

/// What it is without units: one matrix that is used twice.
#[derive(Module, Debug)]
struct Reference {
    first: Linear,
    between: Linear,
    again: Bias,
}

#[derive(Module, Debug)]
struct Bias {
    bias: Option<Param<Tensor<1>>>,
}

#[test]
fn a_weight_that_two_units_share_is_trained_once_by_both() {
    let device = stoker_tests::device().autodiff();
    let reference =
        Reference { first: linear(&device), between: linear(&device), again: Bias { bias: linear(&device).bias } };
    let reference_loss = |model: &Reference, _| {
        let x = tanh(&model.between, tanh(&model.first, input(0..6, &device)));
        let bias = model.again.bias.clone();
        let again = Linear { weight: model.first.weight.clone(), bias };
        tanh(&again, x).square().mean()
    };
    let (model, _) = plain::train(init::initialise(reference, 7), 1e-3, 0.01, 1e-2, 5, reference_loss);
    let mut wanted = plain::values(&model);
    // A saved model has the weight under both names.
    wanted.insert("again.weight".to_owned(), wanted["first.weight"].clone());
    for (world, stage) in [(1, 0), (1, 3), (2, 1), (2, 2), (2, 3)] {
        let mut setup = Setup { eps: 1e-3, ..Setup::new(world, stage) };
        setup.settings.pool_bytes = 1;
        let found = trained(&setup, 5, shared, |model, device| {
            let x = model.first.call(input(0..6, device), tanh);
            let x = model.between.call(x, tanh);
            model.again.call(x, tanh).square().mean()
        });
        assert_near(&found, &wanted, &format!("world {world} stage {stage}"));
    }
}

#[test]
fn frozen_parameters_have_neither_gradients_nor_optimizer_state() {
    let frozen =
        |device: &Device| Two { first: Unit::new(linear(device).no_grad()), second: Unit::new(linear(device)) };
    let rules = ParameterRules {
        groups: vec![ParameterGroup {
            name: "body".to_owned(),
            patterns: vec!["first.*".to_owned()],
            learning_rate_scale: 1.0,
            weight_decay: None,
            frozen: true,
        }],
        decay_vectors: true,
    };
    let device = stoker_tests::device().autodiff();
    let initial = plain::values(&init::initialise(two(&device), 7));
    for stage in [0, 3] {
        for by_rule in [false, true] {
            let mut setup = Setup { eps: 1e-3, alignment: 1, ..Setup::new(1, stage) };
            if by_rule {
                setup.rules = rules.clone();
            }
            let make = |device: &Device| if by_rule { two(device) } else { frozen(device) };
            let bytes = setup.run(|rank| {
                let device = rank.device();
                let model = rank.build(make, None).unwrap();
                rank.step(1e-2, || two_loss(&model, &device)).unwrap();
                rank.ledger().unwrap().peaks()
            });
            let of = |role: Role| {
                let peak = bytes[0].iter().find(|peak| (peak.place, peak.role) == (Place::Host, Some(role)));
                peak.map_or(0, |peak| peak.bytes)
            };
            let unit = 20 * 4;
            assert_eq!(
                [of(Role::Parameters), of(Role::Gradients), of(Role::OptimizerState)],
                [2 * unit, unit, 2 * unit]
            );
            let found = trained(&setup, 3, make, two_loss);
            assert_eq!(found["first.weight"], initial["first.weight"]);
            assert_ne!(found["second.weight"], initial["second.weight"]);
        }
    }
}

#[test]
fn a_model_of_frozen_parameters_is_evaluated_and_not_trained() {
    let frozen = |device: &Device| Two {
        first: Unit::new(linear(device).no_grad()),
        second: Unit::new(linear(device).no_grad()),
    };
    let messages = Setup::new(2, 3).run(|rank| {
        let device = rank.device();
        let model = rank.build(frozen, None).unwrap();
        rank.evaluate(|| two_loss(&model, &stoker_tests::device())).unwrap();
        rank.step(1e-2, || two_loss(&model, &device)).unwrap_err().to_string()
    });
    assert!(messages[0].contains("all parameters are frozen"), "{messages:?}");
}

#[test]
fn groups_have_learning_rates_and_decays_of_their_own() {
    let group = |name: &str, pattern: &str, scale: f64, decay: Option<f64>| ParameterGroup {
        name: name.to_owned(),
        patterns: vec![pattern.to_owned()],
        learning_rate_scale: scale,
        weight_decay: decay,
        frozen: false,
    };
    let train = |rules: ParameterRules, weight_decay: f64| {
        let setup = Setup { eps: 1e-3, weight_decay, rules, ..Setup::new(2, 3) };
        trained(&setup, 4, two, two_loss)
    };
    let still = train(ParameterRules { groups: vec![group("still", "first.*", 0.0, None)], decay_vectors: true }, 0.1);
    let device = stoker_tests::device().autodiff();
    let initial = plain::values(&init::initialise(two(&device), 7));
    assert_eq!(still["first.weight"], initial["first.weight"]);
    assert_ne!(still["second.bias"], initial["second.bias"]);
    // Without decay of biases, and with the decay of weights given by a group, only weights feel it.
    let none = train(ParameterRules::default(), 0.0);
    let weights =
        train(ParameterRules { groups: vec![group("weights", "*.weight", 1.0, Some(0.0))], decay_vectors: false }, 0.5);
    assert_near(&weights, &none, "neither weights nor biases decay");
    let all = train(ParameterRules::default(), 0.5);
    assert!(relative_distance(&all["second.bias"], &none["second.bias"]) > 1e-3);
}

/// W + A B, after Hu et al., 2021.
#[derive(Module, Debug)]
struct LowRank {
    a: Param<Tensor<2>>,
    b: Param<Tensor<2>>,
}

impl Reparameterization for LowRank {
    const NAME: &'static str = "low_rank";

    fn apply<const D: usize>(&self, base: Tensor<D>) -> Tensor<D> {
        let shape = base.shape();
        base + self.a.val().matmul(self.b.val()).reshape(shape)
    }
}

struct Adapt;

impl Reparameterizer for Adapt {
    type Reparam = LowRank;

    fn reparameterize<const D: usize>(
        &mut self,
        _path: &str,
        param: Param<Tensor<D>>,
    ) -> (Param<Tensor<D>>, Option<LowRank>) {
        if D != 2 {
            return (param, None);
        }
        let device = param.lazy_device();
        let low_rank = LowRank {
            a: Param::from_tensor(Tensor::full([4, 2], 0.1, &device)),
            b: Param::from_tensor(Tensor::full([2, 4], 0.2, &device)),
        };
        (param.set_require_grad(false), Some(low_rank))
    }
}

#[test]
fn adapters_are_trained_and_their_base_is_not() {
    let adapted = |device: &Device| {
        let model = Two {
            first: Unit::new(linear(device).apply_reparameterization(Adapt)),
            second: Unit::new(linear(device).apply_reparameterization(Adapt)),
        };
        init::initialise(model, 7)
    };
    let device = stoker_tests::device().autodiff();
    let initial = plain::values(&adapted(&device));
    let (model, _) = plain::train(adapted(&device), 1e-3, 0.01, 1e-2, 4, |model, _| two_loss(model, &device));
    let wanted = plain::values(&model);
    assert_ne!(wanted["first.weight.low_rank.a"], initial["first.weight.low_rank.a"]);
    assert_eq!(wanted["first.weight"], initial["first.weight"]);
    for (world, stage) in [(1, 0), (1, 3), (2, 2), (2, 3)] {
        let mut setup = Setup { eps: 1e-3, ..Setup::new(world, stage) };
        setup.settings.pool_bytes = 1;
        let found = trained(&setup, 4, adapted, two_loss);
        assert_near(&found, &wanted, &format!("world {world} stage {stage}"));
    }
}

#[derive(Module, Debug)]
struct Dropping {
    first: Unit<Linear>,
    second: Unit<Linear>,
    dropout: Dropout,
}

/// A graph that computes activations again must drop the same ones.
#[test]
fn dropout_is_the_same_under_gradient_checkpointing() {
    let make = |device: &Device| Dropping {
        first: Unit::new(linear(device)),
        second: Unit::new(linear(device)),
        dropout: DropoutConfig::new(0.5).init(),
    };
    let train = |stage: u8, checkpointing: Checkpointing| {
        let mut setup = Setup::new(1, stage);
        setup.device.checkpointing = checkpointing;
        setup.settings.pool_bytes = 1;
        trained(&setup, 4, make, |model: &Dropping, device: &Device| {
            // One rank alone draws from the process's generator here; nextest gives every test a process.
            device.seed(11);
            let x = model.first.call(input(0..6, device), tanh);
            let x = model.second.call(model.dropout.forward(x), |linear, x| linear.forward(activation::relu(x)));
            model.dropout.forward(x).square().mean()
        })
    };
    let wanted = train(0, Checkpointing::None);
    assert_eq!(train(3, Checkpointing::None), wanted);
    assert_eq!(train(3, Checkpointing::Balanced), wanted);
    assert_eq!(train(0, Checkpointing::Balanced), wanted);
}

#[derive(Module, Debug)]
struct Normed {
    linear: Unit<Linear>,
    norm: Unit<BatchNorm>,
}

/// Ranks that see other records have other running statistics, until they are shared.
#[test]
fn running_statistics_are_local_or_the_first_ranks() {
    let make = |device: &Device| Normed {
        linear: Unit::new(linear(device)),
        norm: Unit::new(BatchNormConfig::new(4).init(device)),
    };
    let forward = |model: &Normed, x: Tensor<2>| {
        let x = model.linear.call(x, tanh);
        model.norm.call(x, |norm, x| norm.forward(x.unsqueeze_dim::<3>(2)))
    };
    for (running_statistics, shared) in
        [(RunningStatistics::Local, false), (RunningStatistics::BroadcastFromFirst, true)]
    {
        let setup = Setup { running_statistics, ..Setup::new(2, 3) };
        let outputs = setup.run(|rank| {
            let device = rank.device();
            let model = rank.build(make, None).unwrap();
            let number = rank.communicator().rank();
            let train = || {
                let x = input(number * 6..number * 6 + 6, &device) + number as f32;
                rank.step(1e-2, || forward(&model, x).square().mean()).unwrap();
            };
            let evaluate = || {
                let x = input(0..6, &stoker_tests::device());
                rank.evaluate(|| forward(&model, x).into_data().try_to_vec::<f32>().unwrap()).unwrap()
            };
            (0..3).for_each(|_| train());
            let first = evaluate();
            (0..3).for_each(|_| train());
            (first, evaluate())
        });
        assert_eq!(outputs[0] == outputs[1], shared, "{running_statistics:?}");
        assert_ne!(outputs[0].0, outputs[0].1);
    }
}

/// What is handed to the engine in pieces is what a plain model starts with.
#[test]
fn a_large_parameter_is_shared_out_in_pieces() {
    let make = |device: &Device| Unit::new(LinearConfig::new(611, 523).init(device));
    let plain = init::initialise(make(&stoker_tests::device()), 7);
    for world in [1, 3] {
        let found = trained(&Setup::new(world, 3), 0, make, |_, device| Tensor::zeros([1], device));
        assert_eq!(found, plain::values(&plain), "{world} ranks");
    }
}

#[test]
fn updates_in_backward_and_no_overlap_change_no_bit() {
    let wanted = trained(&Setup::new(1, 3), 6, two, two_loss);
    for (overlap, update_in_backward) in [(true, true), (false, true), (false, false)] {
        for stage in [2, 3] {
            let mut setup = Setup::new(1, stage);
            setup.settings.overlap = overlap;
            setup.settings.update_in_backward = update_in_backward;
            let found = trained(&setup, 6, two, two_loss);
            assert_eq!(found, wanted, "stage {stage}, overlap {overlap}, update in backward {update_in_backward}");
        }
    }
}
