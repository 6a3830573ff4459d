//! Small models of units.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{
    BatchNorm, BatchNormConfig, EmbeddingConfig, GroupNorm, GroupNormConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig, PaddingConfig2d,
};
use burn::tensor::{Device, Int, Tensor, activation};
use stoker_burn::Unit;
use stoker_burn::nn::Embedding;

/// What a chain is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Linear and GELU.
    Linear,
    /// Layer norm, linear, GELU.
    Norm,
    /// Convolution, batch norm, ReLU.
    Convolution,
    /// Convolution, group norm, ReLU.
    GroupNorm,
}

/// One block of a chain.
#[derive(Module, Debug)]
pub struct Block {
    layer_norm: Option<LayerNorm>,
    linear: Option<Linear>,
    convolution: Option<Conv2d>,
    batch_norm: Option<BatchNorm>,
    group_norm: Option<GroupNorm>,
}

impl Block {
    fn new(kind: Kind, width: usize, device: &Device) -> Self {
        let mut block = Self { layer_norm: None, linear: None, convolution: None, batch_norm: None, group_norm: None };
        match kind {
            Kind::Linear | Kind::Norm => block.linear = Some(LinearConfig::new(width, width).init(device)),
            Kind::Convolution | Kind::GroupNorm => {
                let config =
                    Conv2dConfig::new([width, width], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
                block.convolution = Some(config.init(device));
            }
        }
        match kind {
            Kind::Norm => block.layer_norm = Some(LayerNormConfig::new(width).init(device)),
            Kind::Convolution => block.batch_norm = Some(BatchNormConfig::new(width).init(device)),
            Kind::GroupNorm => block.group_norm = Some(GroupNormConfig::new(2, width).init(device)),
            Kind::Linear => {}
        }
        block
    }

    fn flat(&self, x: Tensor<2>) -> Tensor<2> {
        let x = self.layer_norm.iter().fold(x, |x, norm| norm.forward(x));
        activation::gelu(self.linear.iter().fold(x, |x, linear| linear.forward(x)))
    }

    fn spatial(&self, x: Tensor<4>) -> Tensor<4> {
        let x = self.convolution.iter().fold(x, |x, convolution| convolution.forward(x));
        let x = self.batch_norm.iter().fold(x, |x, norm| norm.forward(x));
        activation::relu(self.group_norm.iter().fold(x, |x, norm| norm.forward(x)))
    }
}

/// A chain of equal blocks, each a unit; with an embedding before it if the input is tokens.
#[derive(Module, Debug)]
pub struct Chain {
    embedding: Option<Unit<Embedding>>,
    blocks: Vec<Unit<Block>>,
}

impl Chain {
    /// `depth` blocks of `width`; `tokens`: size of the embedding's vocabulary.
    pub fn new(kind: Kind, depth: usize, width: usize, tokens: Option<usize>, device: &Device) -> Self {
        Self {
            embedding: tokens
                .map(|tokens| Unit::new(Embedding::from(EmbeddingConfig::new(tokens, width).init(device)))),
            blocks: (0..depth).map(|_| Unit::new(Block::new(kind, width, device))).collect(),
        }
    }

    /// Of `[batch, width]`.
    pub fn flat(&self, x: Tensor<2>) -> Tensor<2> {
        self.blocks.iter().fold(x, |x, unit| unit.call(x, Block::flat))
    }

    /// Of `[batch, width, height, width]`.
    pub fn spatial(&self, x: Tensor<4>) -> Tensor<4> {
        self.blocks.iter().fold(x, |x, unit| unit.call(x, Block::spatial))
    }

    /// Of tokens `[batch, 1]`.
    pub fn tokens(&self, x: Tensor<2, Int>) -> Tensor<2> {
        let embedding = self.embedding.as_ref().expect("a chain of tokens");
        let embedded = embedding.call(x, |embedding, x| embedding.forward(x));
        self.flat(embedded.flatten(0, 1))
    }
}
