//! Units that do unusual things are trained as the plain modules are, or refused with a sentence.

use burn::module::{Module, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, LinearLayout};
use burn::tensor::{DType, Device, Int, Tensor, TensorData, activation};
use burn_store::{ModuleSnapshot, SafetensorsStore};
use stoker_burn::{Checkpointing, Unit, init};
use stoker_tests::plain;
use stoker_tests::{Setup, relative_distance};

/// Trains `make`'s model under engines and as plain modules, and compares every parameter.
fn same_as_plain<M: Module + 'static>(
    make: impl Fn(&Device) -> M + Sync,
    loss: impl Fn(&M, &Device) -> Tensor<1> + Sync,
) {
    let device = stoker_tests::device().autodiff();
    let model = init::initialise(make(&device), 7);
    let wanted = plain::values(&plain::train(model, 1e-3, 0.01, 1e-2, 4, |model, _| loss(model, &device)).0);
    for (world, stage, checkpointing) in [
        (1, 0, Checkpointing::None),
        (1, 3, Checkpointing::Balanced),
        (2, 3, Checkpointing::None),
        (2, 2, Checkpointing::None),
    ] {
        let mut setup = Setup { eps: 1e-3, ..Setup::new(world, stage) };
        setup.device.checkpointing = checkpointing;
        // Nothing fits together: every gather must make room.
        setup.settings.pool_bytes = 1;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("model.safetensors");
        setup.run(|rank| {
            let device = rank.device();
            let model = rank.build(&make, None).unwrap();
            for _ in 0..4 {
                rank.step(1e-2, || loss(&model, &device)).unwrap();
            }
            rank.save(&model, &file).unwrap();
        });
        let mut found = make(&stoker_tests::device());
        found.load_from(&mut SafetensorsStore::from_file(&file)).unwrap();
        let found = plain::values(&found);
        let far: Vec<_> = wanted
            .iter()
            .map(|(path, wanted)| (path, relative_distance(&found[path], wanted)))
            .filter(|(_, distance)| *distance > 1e-5)
            .collect();
        assert!(far.is_empty(), "world {world} stage {stage} {checkpointing:?}: {far:?}");
    }
}

fn linear(device: &Device) -> Unit<Linear> {
    Unit::new(LinearConfig::new(4, 4).init(device))
}

fn input(device: &Device) -> Tensor<2> {
    let values = (0..12).map(|i| (i * 5 % 7) as f32 / 3.5 - 1.0).collect();
    Tensor::from_data(TensorData::new::<f32, _>(values, [3, 4]), device)
}

#[derive(Module, Debug)]
struct Three {
    first: Unit<Linear>,
    second: Unit<Linear>,
    third: Unit<Linear>,
}

fn three(device: &Device) -> Three {
    Three { first: linear(device), second: linear(device), third: linear(device) }
}

fn forward(linear: &Linear, x: Tensor<2>) -> Tensor<2> {
    activation::tanh(linear.forward(x))
}

#[test]
fn a_unit_that_ignores_its_tracked_input() {
    same_as_plain(three, |net, device| {
        let x = net.first.call(input(device), forward);
        // The plain module and the unit both see constants instead of x.
        let y = net.second.call(x.clone(), |linear, x| linear.forward(Tensor::ones_like(&x).detach()));
        (net.third.call(y, forward) + x * 0.0).square().mean()
    });
    same_as_plain(three, |net, device| {
        let x = net.first.call(input(device), forward);
        let y = net.second.call(x, |linear, _| linear.forward(Tensor::ones([3, 4], &linear.weight.device())));
        net.third.call(y, forward).square().mean()
    });
}

#[test]
fn a_unit_that_detaches_its_input() {
    same_as_plain(three, |net, device| {
        let x = net.first.call(input(device), forward);
        let y = net.second.call(x, |linear, x| linear.forward(x.detach()));
        net.third.call(y, forward).square().mean()
    });
}

#[test]
fn a_unit_without_float_input_after_an_unused_one() {
    same_as_plain(three, |net, device| {
        // Nobody uses this unit's output.
        let _unused = net.first.call(input(device), forward);
        let y = net.second.call((), |linear, ()| linear.forward(Tensor::ones([3, 4], &linear.weight.device())));
        net.third.call(y, forward).square().mean()
    });
}

#[test]
fn a_unit_whose_output_is_detached_and_one_that_is_never_called() {
    same_as_plain(three, |net, device| {
        let x = net.first.call(input(device), forward).detach();
        net.third.call(x, forward).square().mean()
    });
}

#[test]
fn a_unit_that_is_called_twice() {
    same_as_plain(three, |net, device| {
        let x = net.first.call(input(device), forward);
        let x = net.first.call(x, forward);
        (net.second.call(x.clone(), forward) + net.second.call(x, forward)).square().mean()
    });
}

#[test]
fn several_inputs_and_outputs() {
    same_as_plain(three, |net, device| {
        let x = net.first.call(input(device), forward);
        let z =
            net.second.call((x.clone(), input(device)), |linear, (a, b)| vec![linear.forward(a), linear.forward(b)]);
        let [a, b]: [Tensor<2>; 2] = z.try_into().unwrap();
        net.third.call([Some(a * 2.0), Some(b), None], |linear, [a, b, c]| {
            assert!(c.is_none());
            (linear.forward(a.unwrap()), b.unwrap())
        });
        net.third.call(x, forward).square().mean()
    });
}

#[derive(Module, Debug)]
enum Choice {
    Left(Linear),
    Right(Linear),
}

#[derive(Module, Debug)]
struct Everything {
    optional: Option<Linear>,
    nothing: Option<Linear>,
    several: Vec<Linear>,
    pair: (Linear, Linear),
    array: [Linear; 2],
    choice: Choice,
    norm: BatchNorm,
    table: Param<Tensor<1, Int>>,
    column: Linear,
}

#[derive(Module, Debug)]
struct Holder {
    everything: Unit<Everything>,
    nested: Unit<Nest>,
}

#[derive(Module, Debug)]
struct Nest {
    own: Linear,
    inner: Unit<Linear>,
}

fn holder(device: &Device) -> Holder {
    let linear = || LinearConfig::new(4, 4).init(device);
    let column = LinearConfig::new(4, 4).with_layout(LinearLayout::Col).init(device);
    let everything = Everything {
        optional: Some(linear()),
        nothing: None,
        several: vec![linear(), linear()],
        pair: (linear(), linear()),
        array: [linear(), linear()],
        choice: Choice::Right(linear()),
        norm: BatchNormConfig::new(4).init(device),
        table: Param::from_tensor_int(device),
        column,
    };
    let nested = Nest { own: linear(), inner: Unit::new(linear()) };
    Holder { everything: Unit::new(everything), nested: Unit::new(nested) }
}

trait FromTensorInt {
    fn from_tensor_int(device: &Device) -> Self;
}

impl FromTensorInt for Param<Tensor<1, Int>> {
    fn from_tensor_int(device: &Device) -> Self {
        Param::initialized(burn::module::ParamId::new(), Tensor::from_data([3, 1, 4, 1], device))
    }
}

fn everything(all: &Everything, x: Tensor<2>) -> Tensor<2> {
    // Every rank sees the same rows here, so batch statistics agree.
    let mut x = all.norm.forward(x.reshape([3, 4, 1, 1])).reshape([3, 4]);
    for linear in all.optional.iter().chain(&all.nothing).chain(&all.several).chain(&all.array) {
        x = activation::tanh(linear.forward(x));
    }
    x = all.pair.1.forward(all.pair.0.forward(x));
    x = match &all.choice {
        Choice::Left(linear) | Choice::Right(linear) => linear.forward(x),
    };
    let table = all.table.val().float().reshape([1, 4]);
    all.column.forward(activation::tanh(x)) * table
}

#[test]
fn options_lists_tuples_enums_int_parameters_buffers_and_units_in_units() {
    same_as_plain(holder, |net, device| {
        let x = net.everything.call(input(device), everything);
        let x = net.nested.call(x, |nest, x| nest.inner.call(nest.own.forward(x), forward));
        x.square().mean()
    });
}

#[test]
fn frozen_parameters_stay() {
    same_as_plain(
        |device| {
            let mut net = three(device);
            net.second = Unit::new(LinearConfig::new(4, 4).init(device).no_grad());
            net
        },
        |net, device| {
            let x = net.first.call(input(device), forward);
            let x = net.second.call(x, forward);
            net.third.call(x, forward).square().mean()
        },
    );
}

fn refused<M: Module + 'static>(make: impl Fn(&Device) -> M + Sync) -> String {
    let mut messages = Setup::new(1, 3).run(|rank| rank.build(&make, None).map(drop).unwrap_err().to_string());
    messages.remove(0)
}

#[test]
fn a_parameter_outside_units_is_refused() {
    #[derive(Module, Debug)]
    struct Outside {
        inside: Unit<Linear>,
        scale: Linear,
    }
    let message = refused(|device| Outside { inside: linear(device), scale: LinearConfig::new(2, 2).init(device) });
    assert_eq!(
        message,
        "parameter `scale.weight` lies outside every unit; put it, or the module that it belongs to, in a `Unit`"
    );
}

#[test]
fn one_identity_with_two_shapes_is_refused() {
    let message = refused(|device| {
        let shared: Linear = LinearConfig::new(4, 4).init(device);
        let mut other = shared.clone();
        other.weight = other.weight.map(|weight| weight.slice([0..2, 0..4]).detach().require_grad());
        Three { first: Unit::new(shared), second: Unit::new(other), third: linear(device) }
    });
    assert!(message.starts_with("parameters `first.weight` and `second.weight` have one identity"), "{message}");
}

#[test]
fn another_type_is_refused() {
    let message = refused(|device| {
        let mut layer: Linear = LinearConfig::new(4, 4).init(device);
        layer.weight = layer.weight.map(|weight| weight.cast(DType::F64).detach().require_grad());
        Unit::new(layer)
    });
    assert!(
        message.starts_with("parameter `weight` is F64; f32, bf16 and f16 parameters can be sharded."),
        "{message}"
    );
}

#[test]
fn a_sharded_parameter_names_itself_when_it_is_read() {
    let messages = Setup::new(1, 3).run(|rank| {
        let net = rank.build(three, None).unwrap();
        let record = rank.evaluate(|| net.clone().into_record().into_bytes().map(drop).unwrap());
        record.unwrap_err().to_string()
    });
    assert!(messages[0].contains("parameter `first.weight` is sharded: use it inside `Unit::call`"), "{}", messages[0]);
}

#[test]
fn a_model_is_built_once() {
    let messages = Setup::new(1, 3).run(|rank| {
        rank.build(three, None).unwrap();
        rank.build(three, None).map(drop).unwrap_err().to_string()
    });
    assert!(messages[0].starts_with("the rank has built a model already"), "{}", messages[0]);
}

#[test]
fn a_shape_that_does_not_fit_becomes_an_error_with_the_unit() {
    let messages = Setup::new(1, 3).run(|rank| {
        let device = rank.device();
        let net = rank.build(three, None).unwrap();
        rank.step(1e-2, || net.second.call(Tensor::ones([3, 5], &device), forward).mean()).unwrap_err().to_string()
    });
    assert!(messages[0].starts_with("panic during forward of unit `second`: "), "{}", messages[0]);
}
