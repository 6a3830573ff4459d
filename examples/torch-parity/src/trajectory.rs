//! A run of PyTorch, read from its file and checked.

use crate::error::{Error, Problem, Result};
use crate::names::Named;
use crate::networks::Network;
use crate::spec::Spec;
use crate::tensors::Tensors;
use burn::tensor::{Device, Int, Tensor, TensorData};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::path::{Path, PathBuf};
use stoker::data::{CHANNELS, CLASSES, HEIGHT, WIDTH};

/// Bytes of an image.
const IMAGE: usize = CHANNELS * HEIGHT * WIDTH;

/// What a file holds.
#[derive(Debug)]
pub(crate) struct Trajectory {
    /// The file.
    pub(crate) file: PathBuf,
    /// What it says of itself.
    pub(crate) spec: Spec,
    /// The network that it trained.
    pub(crate) network: Network,
    /// Mean cross-entropy of each step.
    pub(crate) losses: Vec<f32>,
    /// Norm of the mean gradient of each step, before clipping.
    pub(crate) norms: Vec<f32>,
    /// The way of each tensor.
    pub(crate) ways: Vec<Way>,
    images: Vec<u8>,
    labels: Vec<i32>,
}

/// A parameter or running statistic before the first step and after the last one, in Burn's layout.
#[derive(Debug)]
pub(crate) struct Way {
    /// Whose.
    pub(crate) tensor: Named,
    /// Where it began.
    pub(crate) first: Vec<f32>,
    /// Where it ended.
    pub(crate) last: Vec<f32>,
}

impl Trajectory {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::File`]: anything that it lacks, has too much, or says of an unknown network or optimizer.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let bytes = std::fs::read(file).map_err(Problem::Unreadable);
        let read = bytes.and_then(|bytes| Self::parse(file, &bytes));
        read.map_err(|problem| Error::File { file: file.to_owned(), source: Box::new(problem) })
    }

    fn parse(file: &Path, bytes: &[u8]) -> std::result::Result<Self, Problem> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(Problem::NotSafetensors)?;
        let text = header.metadata().as_ref().and_then(|metadata| metadata.get("spec")).ok_or(Problem::NoSpec)?;
        let spec = Spec::parse(text)?;
        let network = Network::of(&spec)?;
        let mut tensors = Tensors::new(bytes, &spec.model)?;
        let records = spec.accumulation().saturating_mul(spec.batch);
        let images = tensors.u8s("images_u8", &[spec.steps, records, CHANNELS, HEIGHT, WIDTH])?;
        let labels = classes(&tensors.i64s("labels", &[spec.steps, records])?)?;
        let losses = tensors.f32s("loss", &[spec.steps])?;
        let norms = tensors.f32s("grad_norm", &[spec.steps])?;
        let ways = network.tensors().into_iter().map(|tensor| Way::read(tensor, &mut tensors));
        let ways = ways.collect::<std::result::Result<_, _>>()?;
        tensors.nothing_is_left()?;
        Ok(Self { file: file.to_owned(), spec, network, losses, norms, ways, images, labels })
    }

    /// Its name without the directory and the ending.
    pub(crate) fn name(&self) -> String {
        self.file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Makes sure that `ranks` ranks can follow it.
    pub(crate) fn check_ranks(&self, ranks: usize) -> Result<()> {
        let batch = self.spec.batch;
        if ranks > 0 && batch.is_multiple_of(ranks) {
            return Ok(());
        }
        let choices = (1..=batch.min(64)).filter(|ranks| batch.is_multiple_of(*ranks)).collect();
        Err(Error::Uneven { file: self.file.clone(), ranks, batch, choices })
    }

    /// The part of rank `rank` of `world` of a step's micro-batch: images and labels.
    pub(crate) fn batch(
        &self,
        (step, micro_batch): (usize, usize),
        (rank, world): (usize, usize),
        device: &Device,
    ) -> (Tensor<4>, Tensor<1, Int>) {
        let share = self.spec.batch / world.max(1);
        let first = (step * self.spec.accumulation() + micro_batch) * self.spec.batch + rank * share;
        let images = self.images.chunks_exact(IMAGE).skip(first).take(share).flatten();
        // In PyTorch's order, each operation rounded to f32.
        let images: Vec<f32> = images.map(|byte| (f32::from(*byte) / 255.0 - 0.5) / 0.5).collect();
        let labels: Vec<i32> = self.labels.iter().skip(first).take(share).copied().collect();
        (
            Tensor::from_data(TensorData::new(images, [share, CHANNELS, HEIGHT, WIDTH]), device),
            Tensor::from_data(TensorData::new(labels, [share]), device),
        )
    }

    /// Writes the first values as a weights file of the model.
    pub(crate) fn write_first(&self, path: &Path) -> Result<()> {
        let failed = |error: safetensors::SafeTensorError| Error::Scratch(std::io::Error::other(error));
        let bytes: Vec<Vec<u8>> =
            self.ways.iter().map(|way| way.first.iter().flat_map(|value| value.to_le_bytes()).collect()).collect();
        let tensors = self.ways.iter().zip(&bytes).map(|(way, bytes)| {
            let view = TensorView::new(Dtype::F32, way.tensor.shape.clone(), bytes)?;
            Ok((way.tensor.path.as_str(), view))
        });
        let tensors = tensors.collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
        safetensors::serialize_to_file(tensors, None, path).map_err(failed)
    }
}

impl Way {
    fn read(tensor: Named, tensors: &mut Tensors<'_>) -> std::result::Result<Self, Problem> {
        let shape = tensor.torch_shape();
        let first = tensors.f32s(&format!("init.{}", tensor.torch_name()), &shape)?;
        let last = tensors.f32s(&format!("final.{}", tensor.torch_name_of_last()), &shape)?;
        // Where the two differ, PyTorch's own is there too.
        tensors.has_its_place(&format!("final.{}", tensor.torch_name()));
        let (first, last) = (tensor.in_order_of_burn(first), tensor.in_order_of_burn(last));
        Ok(Self { tensor, first, last })
    }
}

fn classes(labels: &[i64]) -> std::result::Result<Vec<i32>, Problem> {
    let class = |(at, label): (usize, &i64)| match i32::try_from(*label) {
        Ok(class) if (0..CLASSES as i32).contains(&class) => Ok(class),
        _ => Err(Problem::Label { at, found: *label, last: CLASSES - 1 }),
    };
    labels.iter().enumerate().map(class).collect()
}
