//! A mixture of experts is exact, and cannot hang however ranks route.

use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_dataset::Dataset;
use burn_store::{ModuleSnapshot, SafetensorsStore};
use stoker_burn::{Checkpointing, init};
use stoker_data::{Builtin, ImageItem, Split};
use stoker_tests::pictures::pictures;
use stoker_tests::plain::{self, Values};
use stoker_tests::{Setup, relative_distance};
use stoker_trainer::models::{MoeLeNet, MoeLeNetConfig};
use stoker_trainer::{Classifier, cross_entropy};

const BATCH: usize = 24;
const SEED: u64 = 1;
const EPS: f64 = 1e-5;
const RATE: f64 = 1e-3;

/// Some pictures are dropped by both, and the load-balancing loss has a weight that shows.
const TOP_1: MoeLeNetConfig = MoeLeNetConfig { experts: 4, top_k: 1, capacity_factor: 1.25, load_balance: 0.1 };
const TOP_2: MoeLeNetConfig = MoeLeNetConfig { experts: 5, top_k: 2, capacity_factor: 1.0, load_balance: 0.1 };

fn loss(model: &MoeLeNet, images: Tensor<4>, labels: Tensor<1, Int>) -> Tensor<1> {
    let (logits, own) = model.forward_with_loss(images);
    cross_entropy(logits, labels) + own
}

fn setup(world: usize, stage: u8) -> Setup {
    let mut setup = Setup { eps: EPS, seed: SEED, ..Setup::new(world, stage) };
    // Less than the experts are together, so that they make room for each other.
    setup.settings.pool_bytes = 100 << 10;
    setup.settings.prefetch_bytes = 50 << 10;
    setup.settings.bucket_bytes = 16 << 10;
    setup
}

#[test]
fn one_rank_is_exact_at_every_stage() {
    const STEPS: usize = 10;
    for config in [TOP_1, TOP_2] {
        let device = stoker_tests::device().autodiff();
        let model = init::initialise(config.init(&device), SEED);
        let whole = |model: &MoeLeNet, step: usize, device: &Device| {
            let (images, labels) = pictures(step, BATCH, 0..BATCH, device);
            loss(model, images, labels)
        };
        let (model, losses) = plain::train(model, EPS, 0.01, RATE, STEPS, |model, step| whole(model, step, &device));
        let wanted = plain::values(&model);
        for (stage, checkpointing) in [
            (0, Checkpointing::None),
            (1, Checkpointing::None),
            (2, Checkpointing::None),
            (3, Checkpointing::None),
            (3, Checkpointing::Balanced),
        ] {
            let mut setup = setup(1, stage);
            setup.device.checkpointing = checkpointing;
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("model.safetensors");
            let found = setup.run(|rank| {
                let device = rank.device();
                let model = rank.build(|device| config.init(device), None).unwrap();
                let step = |step| rank.step(RATE, || whole(&model, step, &device)).unwrap().loss;
                let losses: Vec<f64> = (0..STEPS).map(step).collect();
                rank.save(&model, &file).unwrap();
                losses
            });
            let about = format!("top {} stage {stage} {checkpointing:?}", config.top_k);
            for (found, wanted) in found[0].iter().zip(&losses) {
                assert!((found / wanted - 1.0).abs() < 1e-6, "{about}: {found} instead of {wanted}");
            }
            let mut plain = config.init(&stoker_tests::device());
            plain.load_from(&mut SafetensorsStore::from_file(&file)).unwrap();
            let found: Values = plain::values(&plain);
            for (path, wanted) in &wanted {
                let distance = relative_distance(&found[path], wanted);
                assert!(distance <= 1e-5, "{about} {path}: {distance:e}");
            }
        }
    }
}

/// Each rank has pictures of classes of its own, and sees them in another light: two batches, which are soon learnt.
fn own_pictures(rank: usize, world: usize) -> Vec<ImageItem> {
    let data = Builtin::new(1, Split::Train, 600);
    let own = (0..data.len()).map(|i| data.get(i).unwrap()).filter(|image| usize::from(image.label) % world == rank);
    own.take(2 * BATCH).collect()
}

fn batch(images: &[ImageItem], step: usize, device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let records: Vec<_> = images.iter().cycle().skip(step * BATCH).take(BATCH).collect();
    let pixels: Vec<f32> = records.iter().flat_map(|record| record.to_f32()).collect();
    let labels: Vec<i32> = records.iter().map(|record| i32::from(record.label)).collect();
    (
        Tensor::from_data(TensorData::new(pixels, [BATCH, 3, 32, 32]), device),
        Tensor::from_data(TensorData::new(labels, [BATCH]), device),
    )
}

/// Losses of each rank, and what each rank's experts are loaded with in the beginning: of Flex's weights on every backend,
/// since others may draw some that send all pictures to one expert.
fn train(setup: &Setup, config: MoeLeNetConfig, steps: usize) -> Vec<(Vec<f64>, Vec<usize>)> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("initial.safetensors");
    let initial = init::initialise(config.init(&Device::flex()), SEED);
    initial.save_into(&mut SafetensorsStore::from_file(&file)).unwrap();
    setup.run(|rank| {
        let device = rank.device();
        let model = rank.build(|device| config.init(device), Some(&file)).unwrap();
        let number = rank.communicator().rank();
        let images = own_pictures(number, setup.world);
        let light = [1.0, -1.0, 4.0][number];
        let step = |step| {
            let (images, labels) = batch(&images, step, &device);
            rank.step(5.0 * RATE, || loss(&model, images * light, labels)).unwrap().loss
        };
        let (first, _) = batch(&images, 0, &device.clone().without_autodiff());
        let loads = rank.evaluate(|| model.loads(first * light)).unwrap();
        ((0..steps).map(step).collect(), loads)
    })
}

#[test]
fn ranks_that_route_differently_agree_at_every_stage() {
    const STEPS: usize = 60;
    for (config, world) in [(TOP_1, 2), (TOP_2, 3)] {
        let wanted = train(&setup(world, 0), config, STEPS);
        for ranks in wanted.windows(2) {
            assert_ne!(ranks[0].1, ranks[1].1, "these ranks route alike");
        }
        let mean = |steps: std::ops::Range<usize>| {
            let of_rank = |(losses, _): &(Vec<f64>, _)| losses[steps.clone()].iter().sum::<f64>();
            wanted.iter().map(of_rank).sum::<f64>()
        };
        let (first, last) = (mean(0..5), mean(STEPS - 5..STEPS));
        println!("top {} world {world}: from {first} to {last}", config.top_k);
        assert!(last < first, "top {} world {world}: from {first} to {last}", config.top_k);
        for stage in 1..4 {
            for (found, wanted) in train(&setup(world, stage), config, STEPS).iter().zip(&wanted) {
                for (found, wanted) in found.0.iter().zip(&wanted.0) {
                    let error = found / wanted - 1.0;
                    assert!(error.abs() < 1e-6, "top {} world {world} stage {stage}: {error:e}", config.top_k);
                }
                assert_eq!(found.1, wanted.1);
            }
        }
    }
}

#[test]
fn one_rank_that_uses_a_single_expert_does_not_stop_the_others() {
    // All of this rank's pictures are one, so three of its experts get no token at all.
    for (world, stage) in [(2, 3), (3, 2)] {
        let results = setup(world, stage).run(|rank| {
            let device = rank.device();
            let model = rank.build(|device| TOP_1.init(device), None).unwrap();
            let number = rank.communicator().rank();
            let images = own_pictures(number, world);
            let images = if number == 0 { images[..1].to_vec() } else { images };
            let mut losses = Vec::new();
            for step in 0..10 {
                let (images, labels) = batch(&images, step, &device);
                losses.push(rank.step(RATE, || loss(&model, images, labels)).unwrap().loss);
            }
            let (images, _) = batch(&images, 0, &device.without_autodiff());
            (losses, rank.evaluate(|| model.loads(images)).unwrap())
        });
        let mut loads = results[0].1.clone();
        loads.sort_unstable();
        assert_eq!(loads, [0, 0, 0, BATCH]);
        assert!(results.iter().flat_map(|result| &result.0).all(|loss| loss.is_finite()));
    }
}
