//! Chains of units give what the plain Burn modules give.

use burn::tensor::{Device, Tensor, TensorData};
use stoker_burn::{Checkpointing, Rank, init};
use stoker_tests::models::{Chain, Kind};
use stoker_tests::plain::{self, Values};
use stoker_tests::{Setup, relative_distance};

const STEPS: usize = 4;
const BATCH: usize = 6;
const WIDTH: usize = 8;

/// The same numbers on every rank and in the reference.
fn input(step: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + step * 104_729) % 1009) as f32 / 504.5 - 1.0).collect()
}

fn loss(chain: &Chain, kind: Kind, step: usize, rows: std::ops::Range<usize>, device: &Device) -> Tensor<1> {
    match kind {
        Kind::Linear | Kind::Norm => {
            let data = input(step, BATCH * WIDTH)[rows.start * WIDTH..rows.end * WIDTH].to_vec();
            let x = Tensor::<2>::from_data(TensorData::new(data, [rows.len(), WIDTH]), device);
            (chain.flat(x) - 0.5).square().mean()
        }
        Kind::Convolution | Kind::GroupNorm => {
            let pixels = WIDTH * 16;
            let data = input(step, BATCH * pixels)[rows.start * pixels..rows.end * pixels].to_vec();
            let x = Tensor::<4>::from_data(TensorData::new(data, [rows.len(), WIDTH, 4, 4]), device);
            (chain.spatial(x) - 0.5).square().mean()
        }
    }
}

fn reference(kind: Kind, depth: usize) -> Values {
    let device = stoker_tests::device().autodiff();
    let model = init::initialise(Chain::new(kind, depth, WIDTH, None, &device), 7);
    plain::values(
        &plain::train(model, 1e-3, 0.01, 1e-2, STEPS, |chain, step| loss(chain, kind, step, 0..BATCH, &device)).0,
    )
}

fn trained(setup: &Setup, kind: Kind, depth: usize) -> Values {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("model.safetensors");
    setup.run(|rank: &Rank| {
        let device = rank.device();
        let chain = rank.build(|device| Chain::new(kind, depth, WIDTH, None, device), None).unwrap();
        let share = BATCH / setup.world;
        let number = rank.communicator().rank();
        for step in 0..STEPS {
            let rows = number * share..(number + 1) * share;
            rank.step(1e-2, || loss(&chain, kind, step, rows, &device)).unwrap();
        }
        rank.save(&chain, &file).unwrap();
    });
    let device = stoker_tests::device();
    let mut plain = Chain::new(kind, depth, WIDTH, None, &device);
    use burn_store::{ModuleSnapshot, SafetensorsStore};
    plain.load_from(&mut SafetensorsStore::from_file(&file)).unwrap();
    plain::values(&plain)
}

#[test]
fn every_stage_and_world_gives_the_plain_result() {
    for kind in [Kind::Linear, Kind::Norm, Kind::GroupNorm] {
        let wanted = reference(kind, 3);
        for world in [1, 2, 3] {
            for stage in 0..4 {
                let setup = Setup { eps: 1e-3, ..Setup::new(world, stage) };
                let found = trained(&setup, kind, 3);
                assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
                for (path, wanted) in &wanted {
                    let distance = relative_distance(&found[path], wanted);
                    assert!(distance <= 1e-5, "{kind:?} stage {stage} world {world} {path}: {distance:e}");
                }
            }
        }
    }
}

#[test]
fn batch_norm_and_checkpointing_agree_with_the_plain_result() {
    let wanted = reference(Kind::Convolution, 3);
    for stage in [0, 3] {
        for checkpointing in [Checkpointing::None, Checkpointing::Balanced] {
            let mut setup = Setup { eps: 1e-3, ..Setup::new(1, stage) };
            setup.device.checkpointing = checkpointing;
            let found = trained(&setup, Kind::Convolution, 3);
            for (path, wanted) in &wanted {
                let distance = relative_distance(&found[path], wanted);
                assert!(distance <= 1e-5, "stage {stage} {checkpointing:?} {path}: {distance:e}");
            }
        }
    }
}
