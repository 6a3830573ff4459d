//! What a step reports and does: norms, clipping, accumulation, several backwards.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use stoker_burn::{Rank, Unit};
use stoker_engine::{Clipping, Outcome};
use stoker_tests::models::{Chain, Kind};
use stoker_tests::odd::Odd;
use stoker_tests::plain::{self, Values};
use stoker_tests::{Setup, relative_distance};

const BATCH: usize = 24;

/// Runs `body` on every rank and gives what the first returns.
fn first<T: Send>(setup: &Setup, body: impl Fn(&Rank) -> T + Sync) -> T {
    setup.run(body).remove(0)
}

/// One step over the batch, in `accumulation` micro-batches.
fn step(rank: &Rank, setup: &Setup, model: &Odd, accumulation: usize, learning_rate: f64) -> stoker_engine::StepReport {
    let device = rank.device();
    let share = BATCH / accumulation / setup.world;
    for micro_batch in 0..accumulation {
        let first = (micro_batch * setup.world + rank.communicator().rank()) * share;
        rank.accumulate(|| model.loss(0, BATCH, first..first + share, &device)).unwrap();
    }
    rank.update(learning_rate).unwrap()
}

#[test]
fn the_norm_is_one_number_everywhere() {
    let mut norms = Vec::new();
    for stage in 0..4 {
        for world in [1, 2, 3] {
            for accumulation in [1, 2, 4] {
                let mut setup = Setup::new(world, stage);
                setup.settings.clipping = Clipping::Norm(1e9);
                let norm = first(&setup, |rank| {
                    let model = rank.build(|device| Odd::new(true, device), None).unwrap();
                    let norms = [0, 1].map(|_| step(rank, &setup, &model, accumulation, 0.0).gradient_norm);
                    assert_eq!(norms[0], norms[1], "a learning rate of 0 changed the model");
                    norms[0]
                });
                norms.push((norm, format!("stage {stage}, {world} ranks, accumulation {accumulation}")));
            }
        }
    }
    // That it is the right number, too, is what the test below holds against plain Burn.
    let wanted = norms[0].0;
    assert!(wanted > 0.01);
    for (norm, what) in norms {
        assert!((norm / wanted - 1.0).abs() <= 1e-6, "{what}: {norm} instead of {wanted}");
    }
}

fn parameters(rank: &Rank, model: &Chain, directory: &std::path::Path) -> Values {
    let file = directory.join("model.safetensors");
    rank.save(model, &file).unwrap();
    let mut plain = chain(&stoker_tests::device());
    burn_store::ModuleSnapshot::load_from(&mut plain, &mut burn_store::SafetensorsStore::from_file(&file)).unwrap();
    plain::values(&plain)
}

fn chain(device: &Device) -> Chain {
    Chain::new(Kind::Linear, 3, 4, None, device)
}

fn chain_loss(model: &Chain, step: usize, device: &Device) -> Tensor<1> {
    let values: Vec<f32> = (0..24).map(|i| ((i * 5 + step * 3) % 11) as f32 / 5.5 - 1.0).collect();
    let x = Tensor::<1>::from_floats(values.as_slice(), device).reshape([6, 4]);
    model.flat(x).square().mean()
}

/// Gradients of a fresh chain, and their global norm, by plain Burn.
fn reference_norm() -> f64 {
    let device = stoker_tests::device().autodiff();
    let model = stoker_burn::init::initialise(chain(&device), 7);
    let gradients = chain_loss(&model, 0, &device).backward();
    struct Sum<'a>(f64, &'a burn::tensor::Gradients);
    impl burn::module::ModuleVisitor for Sum<'_> {
        fn visit_float<const D: usize>(&mut self, param: &burn::module::Param<Tensor<D>>) {
            let gradient = param.val().grad(self.1).unwrap().into_data();
            self.0 += gradient.as_slice::<f32>().unwrap().iter().map(|g| f64::from(*g).powi(2)).sum::<f64>();
        }
    }
    let mut sum = Sum(0.0, &gradients);
    model.visit(&mut sum);
    sum.0.sqrt()
}

/// With SGD the displacement is the gradient that was updated with.
fn displacement(clipping: Clipping) -> (f64, Vec<f32>) {
    let directory = tempfile::tempdir().unwrap();
    let mut setup = Setup { optimizer: "sgd", ..Setup::new(1, 3) };
    setup.settings.clipping = clipping;
    first(&setup, |rank| {
        let device = rank.device();
        let model = rank.build(chain, None).unwrap();
        let before = parameters(rank, &model, directory.path());
        let report = rank.step(1.0, || chain_loss(&model, 0, &device)).unwrap().report;
        let after = parameters(rank, &model, directory.path());
        let moved = before.values().flatten().zip(after.values().flatten()).map(|(before, after)| before - after);
        (report.gradient_norm, moved.collect())
    })
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn the_norm_is_that_of_plain_burn_and_clipping_keeps_to_its_limit() {
    let wanted = reference_norm();
    let (found, free) = displacement(Clipping::None);
    assert!((found / wanted - 1.0).abs() < 1e-6, "{found} instead of {wanted}");
    assert!((norm(&free) / wanted - 1.0).abs() < 1e-5);
    let (reported, clipped) = displacement(Clipping::Norm(wanted / 4.0));
    assert_eq!(reported, found, "the norm is the one before clipping");
    assert!((norm(&clipped) * 4.0 / wanted - 1.0).abs() < 1e-4, "{}", norm(&clipped));
    let expected: Vec<f32> = free.iter().map(|g| g / 4.0).collect();
    assert!(relative_distance(&clipped, &expected) < 1e-4);
    let (_, unclipped) = displacement(Clipping::Norm(wanted * 2.0));
    assert_eq!(unclipped, free, "a gradient that is short enough is left alone");
    let limit = free.iter().fold(0.0f32, |max, g| max.max(g.abs())) / 3.0;
    let (_, cut) = displacement(Clipping::Value(f64::from(limit)));
    let expected: Vec<f32> = free.iter().map(|g| g.clamp(-limit, limit)).collect();
    assert!(relative_distance(&cut, &expected) < 1e-5);
    assert!(relative_distance(&cut, &free) > 0.1);
}

#[test]
fn an_update_without_a_micro_batch_is_refused() {
    first(&Setup::new(1, 3), |rank| {
        rank.build(chain, None).unwrap();
        assert!(rank.update(0.1).unwrap_err().to_string().contains("without a micro-batch"));
    });
}

#[test]
fn an_evaluation_inside_a_step_is_refused() {
    first(&Setup::new(1, 3), |rank| {
        let device = rank.device();
        let model = rank.build(chain, None).unwrap();
        let mut inside = String::new();
        let _ = rank.step(1e-2, || {
            inside = rank.evaluate(|| ()).unwrap_err().to_string();
            chain_loss(&model, 0, &device)
        });
        assert!(inside.contains("inside the closure of another"), "{inside}");
    });
}

/// Ranks that accumulate unequally, or learn at different rates, would part without a word.
#[test]
fn ranks_that_mean_different_steps_are_told() {
    for stage in 0..4 {
        for unequal_rates in [false, true] {
            let setup = Setup { timeout: std::time::Duration::from_secs(20), ..Setup::new(2, stage) };
            let errors = setup.run(|rank| {
                let device = rank.device();
                let model = rank.build(chain, None).unwrap();
                let number = rank.communicator().rank();
                let micro_batches = if unequal_rates { 1 } else { 1 + number };
                let train = || {
                    (0..micro_batches)
                        .try_for_each(|_| rank.accumulate(|| chain_loss(&model, 0, &device)).map(drop))?;
                    rank.update(if unequal_rates { 1e-2 * (number + 1) as f64 } else { 1e-2 })
                };
                train().unwrap_err().to_string()
            });
            assert!(errors.iter().all(|error| error.contains("ranks disagree")), "stage {stage}: {errors:?}");
        }
    }
}

/// Two losses of one micro-batch, each with a backward of its own, are one loss that is their sum.
#[test]
fn several_backwards_add_up() {
    let train = |world: usize, stage: u8, separately: bool| {
        let directory = tempfile::tempdir().unwrap();
        let setup = Setup { eps: 1e-3, ..Setup::new(world, stage) };
        first(&setup, |rank| {
            let device = rank.device();
            let model = rank.build(chain, None).unwrap();
            for step in 0..3 {
                let report = rank.step(1e-2, || {
                    let one = chain_loss(&model, step, &device);
                    if separately {
                        rank.backward(one);
                        return chain_loss(&model, step + 7, &device);
                    }
                    one + chain_loss(&model, step + 7, &device)
                });
                assert_eq!(report.unwrap().report.outcome, Outcome::Updated);
            }
            parameters(rank, &model, directory.path())
        })
    };
    for (world, stage) in [(1, 0), (1, 3), (2, 1), (2, 2), (2, 3)] {
        let (wanted, found) = (train(world, stage, false), train(world, stage, true));
        for (path, wanted) in &wanted {
            let distance = relative_distance(&found[path], wanted);
            assert!(distance < 1e-6, "world {world} stage {stage} {path}: {distance:e}");
        }
    }
}

#[derive(Module, Debug)]
struct Heads {
    body: Unit<burn::nn::Linear>,
    one: Unit<burn::nn::Linear>,
    other: Unit<burn::nn::Linear>,
}

fn heads(device: &Device) -> Heads {
    let linear = || Unit::new(burn::nn::LinearConfig::new(4, 4).init(device));
    Heads { body: linear(), one: linear(), other: linear() }
}

/// What each rank makes of its heads.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Use {
    /// Calls both and uses the output of one.
    CallsBoth,
    /// Calls one and skips the other.
    Skips,
    /// As `CallsBoth`; on the other ranks both outputs count.
    Both,
}

fn heads_loss(model: &Heads, rank: usize, how: Use, device: &Device) -> Tensor<1> {
    let x = Tensor::<1>::from_floats([0.5, -0.25, 1.0, 0.125, 0.75, -1.0, 0.25, 0.5], device).reshape([2, 4]);
    let x = model.body.call(x, |linear, x| linear.forward(x));
    let call = |unit: &Unit<burn::nn::Linear>, used: bool| {
        if !used && how == Use::Skips {
            unit.skip();
            return None;
        }
        let y = unit.call(x.clone(), |linear, x| linear.forward(x));
        (used || how == Use::Both && rank > 0).then_some(y)
    };
    let outputs = [call(&model.one, rank == 0), call(&model.other, rank != 0)];
    outputs.into_iter().flatten().map(|y| y.square().mean()).reduce(|a, b| a + b).unwrap()
}

/// A unit that one rank does not call, or whose output it does not use, is trained by the gradients of the others; at
/// every stage, and whatever fits in the pool.
#[test]
fn ranks_may_use_different_units() {
    for how in [Use::CallsBoth, Use::Skips, Use::Both] {
        let mut results = Vec::new();
        for stage in 0..4 {
            for (pool_bytes, overlap) in [(1, true), (1 << 20, true), (1, false)] {
                for world in [2, 3] {
                    let directory = tempfile::tempdir().unwrap();
                    let file = directory.path().join("model.safetensors");
                    let mut setup = Setup { eps: 1e-3, ..Setup::new(world, stage) };
                    setup.settings.pool_bytes = pool_bytes;
                    setup.settings.overlap = overlap;
                    setup.run(|rank| {
                        let device = rank.device();
                        let model = rank.build(heads, None).unwrap();
                        for _ in 0..4 {
                            let number = rank.communicator().rank();
                            rank.step(1e-2, || heads_loss(&model, number, how, &device)).unwrap();
                            rank.evaluate(|| {
                                if number == 0 {
                                    model.body.skip();
                                } else {
                                    let x = Tensor::<2>::ones([1, 4], &stoker_tests::device());
                                    model.body.call(x, |linear, x| linear.forward(x));
                                }
                            })
                            .unwrap();
                        }
                        rank.save(&model, &file).unwrap();
                    });
                    let mut plain = heads(&stoker_tests::device());
                    burn_store::ModuleSnapshot::load_from(
                        &mut plain,
                        &mut burn_store::SafetensorsStore::from_file(&file),
                    )
                    .unwrap();
                    results.push((world, stage, plain::values(&plain)));
                }
            }
        }
        for world in [2, 3] {
            let of_world: Vec<_> = results.iter().filter(|(of, ..)| *of == world).collect();
            let initial = plain::values(&stoker_burn::init::initialise(heads(&stoker_tests::device()), 7));
            let (_, _, wanted) = of_world[0];
            for path in ["body.weight", "one.weight", "other.weight"] {
                assert!(relative_distance(&wanted[path], &initial[path]) > 1e-3, "{how:?}: {path} was not trained");
            }
            for (_, stage, found) in &of_world {
                assert_eq!(found, wanted, "{how:?}: stage {stage}, {world} ranks");
            }
        }
    }
}

#[derive(Module, Debug)]
struct Block {
    router: burn::nn::Linear,
    expert: Unit<burn::nn::Linear>,
}

/// The same inside of another unit: the inner call has its place in the order although the outer one has not ended.
#[test]
fn a_rank_may_skip_a_unit_inside_of_another() {
    let make = |device: &Device| {
        let linear = || burn::nn::LinearConfig::new(4, 4).init(device);
        let block = || Unit::new(Block { router: linear(), expert: Unit::new(linear()) });
        [block(), block()]
    };
    let mut results: Vec<Values> = Vec::new();
    for stage in 0..4 {
        for (pool_bytes, overlap) in [(1, true), (1 << 20, true), (1, false)] {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("model.safetensors");
            let mut setup = Setup { eps: 1e-3, ..Setup::new(2, stage) };
            setup.settings.pool_bytes = pool_bytes;
            setup.settings.overlap = overlap;
            setup.run(|rank| {
                let device = rank.device();
                let blocks = rank.build(make, None).unwrap();
                for step in 0..4 {
                    let chosen = (rank.communicator().rank() + step) % 2;
                    rank.step(1e-2, || {
                        let x = Tensor::<1>::from_floats([0.5, -0.25, 1.0, 0.125], &device).reshape([1, 4]);
                        let x = blocks.iter().enumerate().fold(x, |x, (number, block)| {
                            block.call(x, |block, x| {
                                let x = block.router.forward(x);
                                if number == chosen {
                                    return block.expert.call(x, |expert, x| expert.forward(x));
                                }
                                block.expert.skip();
                                x
                            })
                        });
                        x.square().mean()
                    })
                    .unwrap();
                }
                rank.save(&blocks, &file).unwrap();
            });
            let mut plain = make(&stoker_tests::device());
            burn_store::ModuleSnapshot::load_from(&mut plain, &mut burn_store::SafetensorsStore::from_file(&file))
                .unwrap();
            results.push(plain::values(&plain));
        }
    }
    let initial = plain::values(&stoker_burn::init::initialise(make(&stoker_tests::device()), 7));
    assert!(relative_distance(&results[0]["1.expert.weight"], &initial["1.expert.weight"]) > 1e-3);
    assert!(results.iter().all(|result| *result == results[0]), "a stage or a schedule gives other bits");
}

/// Ranks that do not agree are told, with the calls that they made.
#[test]
fn ranks_that_call_different_units_hear_of_each_others_calls() {
    let setup = Setup { timeout: std::time::Duration::from_secs(20), ..Setup::new(2, 3) };
    let errors = setup.run(|rank| {
        let device = rank.device();
        let model = rank.build(heads, None).unwrap();
        let step = rank.step(1e-2, || {
            let x = model.body.call(Tensor::<2>::ones([1, 4], &device), |linear, x| linear.forward(x));
            let head = if rank.communicator().rank() == 0 { &model.one } else { &model.other };
            head.call(x, |linear, x| linear.forward(x)).mean()
        });
        step.unwrap_err().to_string()
    });
    for error in errors {
        for part in ["ranks disagree", "gather one", "gather other", "gather body", "Unit::skip"] {
            assert!(error.contains(part), "`{part}` is missing: {error}");
        }
    }
}
