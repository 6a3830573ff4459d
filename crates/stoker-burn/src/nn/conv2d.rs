//! A convolution whose gradients are the backend's own.
//!
//! Burn's autodiff asks a backend for the gradient of a convolution's weight. burn-tch does not answer, and the default is
//! a convolution with batch and channels swapped, whose kernel is as large as the image: on a GPU 25 times slower than
//! what libtorch has for it. Here LibTorch is asked for `at::convolution_backward`; other backends as Burn asks them.

#[cfg(feature = "libtorch")]
use crate::raise::or_raise;
#[cfg(feature = "libtorch")]
use burn::backend::LibTorch;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::ops::ModuleOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::nn::PaddingConfig2d;
use burn::tensor::Tensor;
use burn::tensor::ops::{ConvOptions, PadMode};

/// [`burn::nn::conv::Conv2d`] with the same fields, paths and record; make it from one with `from`.
///
/// ```
/// use burn::nn::conv::Conv2dConfig;
/// use burn::tensor::{Device, Tensor};
/// use stoker_burn::nn::Conv2d;
/// let device = Device::flex();
/// let convolution = Conv2d::from(Conv2dConfig::new([3, 8], [3, 3]).init(&device));
/// assert_eq!(convolution.forward(Tensor::zeros([2, 3, 28, 28], &device)).dims(), [2, 8, 26, 26]);
/// ```
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Conv2d {
    /// `[channels out, channels in / groups, kernel height, kernel width]`.
    pub weight: Param<Tensor<4>>,
    /// `[channels out]`.
    pub bias: Option<Param<Tensor<1>>>,
    /// Step of the kernel.
    pub stride: [usize; 2],
    /// Size of the kernel.
    pub kernel_size: [usize; 2],
    /// Spacing of the kernel's elements.
    pub dilation: [usize; 2],
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Zeros around the input.
    #[module(skip)]
    pub padding: PaddingConfig2d,
}

impl From<burn::nn::conv::Conv2d> for Conv2d {
    fn from(convolution: burn::nn::conv::Conv2d) -> Self {
        let burn::nn::conv::Conv2d { weight, bias, stride, kernel_size, dilation, groups, padding } = convolution;
        Self { weight, bias, stride, kernel_size, dilation, groups, padding }
    }
}

impl ModuleDisplay for Conv2d {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [channels_out, channels_in, _, _] = self.weight.lazy_shape().dims();
        content
            .add("ch_in", &format!("{:?}", channels_in * self.groups))
            .add("ch_out", &format!("{channels_out:?}"))
            .add("stride", &format!("{:?}", self.stride))
            .add("kernel_size", &format!("{:?}", self.kernel_size))
            .add("dilation", &format!("{:?}", self.dilation))
            .add("groups", &self.groups)
            .add_debug_attribute("padding", &self.padding)
            .optional()
    }
}

impl Conv2d {
    /// Convolves `input`, `[batch, channels in, height, width]`, into `[batch, channels out, height out, width out]`.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let [.., height, width] = input.dims();
        let [(top, bottom), (left, right)] = match self.padding {
            PaddingConfig2d::Valid => [(0, 0); 2],
            PaddingConfig2d::Explicit(top, left, bottom, right) => [(top, bottom), (left, right)],
            PaddingConfig2d::Same => {
                let [[kernel_height, kernel_width], [down, across]] = [self.kernel_size, self.stride];
                [same(kernel_height, down, height), same(kernel_width, across, width)]
            }
        };
        let (input, padding) = if (top, left) == (bottom, right) {
            (input, [top, left])
        } else {
            (input.pad([(top, bottom), (left, right)], PadMode::Constant(0.0)), [0, 0])
        };
        let options = ConvOptions::new(self.stride, padding, self.dilation, self.groups);
        let (input, weight) = (input.into_dispatch(), self.weight.val().into_dispatch());
        Tensor::from_dispatch(match &self.bias {
            Some(bias) => Dispatch::convolve_biased(input, weight, bias.val().into_dispatch(), options),
            None => Dispatch::convolve(input, weight, options),
        })
    }
}

/// Zeros before and after `size` elements for one output per `stride` of them, as Burn and ONNX count them.
fn same(kernel: usize, stride: usize, size: usize) -> (usize, usize) {
    let last = size.div_ceil(stride).saturating_sub(1) * stride;
    let zeros = (last + kernel).saturating_sub(size);
    (zeros / 2, zeros - zeros / 2)
}

/// The operand whose gradient is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operand {
    Input,
    Weight,
}

#[backend_extension(Flex, LibTorch: cfg(feature = "libtorch"), Autodiff)]
pub(crate) trait ConvolutionOps: Backend {
    /// Without a bias.
    fn convolve(input: FloatTensor<Self>, weight: FloatTensor<Self>, options: ConvOptions<2>) -> FloatTensor<Self> {
        <Self as ModuleOps<Self>>::conv2d(input, weight, None, options)
    }

    /// With one.
    fn convolve_biased(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: ConvOptions<2>,
    ) -> FloatTensor<Self> {
        <Self as ModuleOps<Self>>::conv2d(input, weight, Some(bias), options)
    }

    /// The gradient of an operand, given that of the output.
    fn convolution_gradient(
        gradient: FloatTensor<Self>,
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        options: ConvOptions<2>,
        of: Operand,
    ) -> FloatTensor<Self>;
}

impl ConvolutionOps for Flex {
    fn convolution_gradient(
        gradient: FloatTensor<Self>,
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        options: ConvOptions<2>,
        of: Operand,
    ) -> FloatTensor<Self> {
        match of {
            Operand::Input => <Self as ModuleOps<Self>>::conv2d_x_backward(input, weight, gradient, options),
            Operand::Weight => <Self as ModuleOps<Self>>::conv2d_weight_backward(input, weight, gradient, options),
        }
    }
}

#[cfg(feature = "libtorch")]
impl ConvolutionOps for LibTorch {
    fn convolution_gradient(
        gradient: FloatTensor<Self>,
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        options: ConvOptions<2>,
        of: Operand,
    ) -> FloatTensor<Self> {
        let convolution = stoker_libtorch::Convolution {
            stride: options.stride,
            padding: options.padding_begin(),
            dilation: options.dilation,
            groups: options.groups,
        };
        let of = match of {
            Operand::Input => stoker_libtorch::Operand::Input,
            Operand::Weight => stoker_libtorch::Operand::Weight,
        };
        let found = convolution.gradient(of, &gradient.tensor, &input.tensor, &weight.tensor);
        burn_tch::TchTensor::new(or_raise(found.map_err(|source| stoker_core::Error::Plugin {
            plugin: "libtorch".to_owned(),
            doing: source.doing.to_owned(),
            source: source.into(),
        })))
    }
}

/// The backward of a convolution with `N` operands: input, weight and, if there are three, bias.
#[derive(Debug)]
struct ConvolutionBackward;

impl<B: ConvolutionOps, const N: usize> Backward<B, N> for ConvolutionBackward {
    type State = (NodeId, NodeId, ConvOptions<2>);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let gradient = gradients.consume::<B>(&ops.node);
        let (input, weight, options) = ops.state;
        let input = checkpointer.retrieve_node_output::<FloatTensor<B>>(input);
        let weight = checkpointer.retrieve_node_output::<FloatTensor<B>>(weight);
        let of = |operand| {
            B::convolution_gradient(gradient.clone(), input.clone(), weight.clone(), options.clone(), operand)
        };
        for (parent, at) in ops.parents.into_iter().zip(0..) {
            let Some(parent) = parent else { continue };
            let found = match at {
                0 => of(Operand::Input),
                1 => of(Operand::Weight),
                _ => sum_of_channels::<B>(gradient.clone()),
            };
            gradients.register::<B>(parent.id, found);
        }
    }
}

/// The gradient of a bias: of `[batch, channels, height, width]` the sum for each channel.
fn sum_of_channels<B: Backend>(gradient: FloatTensor<B>) -> FloatTensor<B> {
    let channels = gradient.shape()[1];
    let sums = [0, 2, 3].into_iter().fold(gradient, |sums, dim| B::float_sum_dim(sums, dim));
    B::float_reshape(sums, [channels].into())
}

impl<B: ConvolutionOps, C: CheckpointStrategy> ConvolutionOps for Autodiff<B, C> {
    fn convolve(input: FloatTensor<Self>, weight: FloatTensor<Self>, options: ConvOptions<2>) -> FloatTensor<Self> {
        let parents = [input.node(), weight.node()];
        match Backward::<B, 2>::prepare::<C>(ConvolutionBackward, parents).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = (prep.checkpoint(&input), prep.checkpoint(&weight), options.clone());
                prep.finish(state, B::convolve(input.into_primitive(), weight.into_primitive(), options))
            }
            OpsKind::UnTracked(prep) => {
                prep.finish(B::convolve(input.into_primitive(), weight.into_primitive(), options))
            }
        }
    }

    fn convolve_biased(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: ConvOptions<2>,
    ) -> FloatTensor<Self> {
        let parents = [input.node(), weight.node(), bias.node()];
        let convolved = |input: Self::FloatTensorPrimitive, weight: Self::FloatTensorPrimitive| {
            B::convolve_biased(input.into_primitive(), weight.into_primitive(), bias.into_primitive(), options.clone())
        };
        match Backward::<B, 3>::prepare::<C>(ConvolutionBackward, parents).compute_bound().stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = (prep.checkpoint(&input), prep.checkpoint(&weight), options.clone());
                prep.finish(state, convolved(input, weight))
            }
            OpsKind::UnTracked(prep) => prep.finish(convolved(input, weight)),
        }
    }

    fn convolution_gradient(
        gradient: FloatTensor<Self>,
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        options: ConvOptions<2>,
        of: Operand,
    ) -> FloatTensor<Self> {
        // A gradient is not differentiated again: Burn has no second derivatives.
        let [gradient, input, weight] = [gradient, input, weight].map(|tensor| tensor.into_primitive());
        Self::from_inner(B::convolution_gradient(gradient, input, weight, options, of))
    }
}
