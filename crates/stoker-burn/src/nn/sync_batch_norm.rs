//! Batch normalisation whose batch is that of all ranks.
//!
//! Burn's has no place for a reduction over ranks: with it, every rank normalises by its own records, and a run on more
//! ranks is another run.

use crate::buffers::in_ours;
use crate::collective::{Ranks, Situation, situation};
use burn::module::{
    Content, Devices, DisplaySettings, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor,
};
use burn::nn::BatchNorm;
use burn::tensor::module::{batch_norm, batch_norm_train};
use burn::tensor::{DType, Device, Tensor, assert_shape};

/// [`burn::nn::BatchNorm`] over the records of all ranks, with the same paths and record; make it from one with `from`.
///
/// Batch normalisation is due to [Ioffe and Szegedy, 2015](https://arxiv.org/abs/1502.03167). In a training call of a unit
/// that a [`Rank`](crate::Rank) has built, mean and variance are those of the records of all ranks, who may have different
/// numbers of them, and so are the gradients through both. Without a rank, and in evaluation, it does what Burn's does.
///
/// - As in Burn, the biased variance goes into `running_var`, and normalises; PyTorch keeps the unbiased one.
/// - Everything is computed in f32, whatever the type of the input, and given back in that type; the running statistics
///   stay f32. So it is the batch norm for bf16 and f16.
/// - Each training call takes two collectives, and two more in backward: all ranks must make the same calls.
///
/// ```
/// use burn::nn::BatchNormConfig;
/// use burn::tensor::{Device, Distribution, Tensor};
/// use stoker_burn::nn::SyncBatchNorm;
/// let device = Device::flex().autodiff();
/// let norm = SyncBatchNorm::from(BatchNormConfig::new(3).init(&device));
/// let x = Tensor::<4>::random([8, 3, 5, 5], Distribution::Uniform(2.0, 4.0), &device);
/// let mean = norm.forward(x).mean().into_scalar::<f32>();
/// assert!(mean.abs() < 1e-5);
/// ```
#[derive(Debug, Clone)]
pub struct SyncBatchNorm {
    /// Parameters, running statistics, momentum, epsilon and the training flag. It adds no segment to their paths.
    pub norm: BatchNorm,
}

impl From<BatchNorm> for SyncBatchNorm {
    fn from(norm: BatchNorm) -> Self {
        Self { norm }
    }
}

impl From<SyncBatchNorm> for BatchNorm {
    fn from(norm: SyncBatchNorm) -> Self {
        norm.norm
    }
}

impl SyncBatchNorm {
    /// Normalises `input`, `[batch, channels, ..]`; the output has its shape and type.
    ///
    /// As Burn's, it normalises by the batch and updates the running statistics if the input's device has autodiff and
    /// the training flag is on, else by the running statistics.
    ///
    /// # Panics
    /// When the second dimension of `input` is not the number of channels. Under an engine, errors unwind as in
    /// [`Unit::call`](crate::Unit::call).
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let [channels] = self.norm.gamma.lazy_shape().dims();
        assert_shape!(input, [_, channels, ..]);
        let dtype = input.dtype();
        let input = input.cast(DType::F32);
        let trains = input.device().is_autodiff() && self.norm.training.is_enabled();
        let output = match situation() {
            Situation::Training(ranks) if trains => self.by_all_ranks(input, &ranks),
            Situation::Alone if trains => self.by_own_batch(input),
            _ => self.by_running_statistics(input),
        };
        output.cast(dtype)
    }

    fn by_running_statistics<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let device = input.device();
        let mean = self.norm.running_mean.value().to_device(&device).cast(DType::F32);
        let variance = self.norm.running_var.value().to_device(&device).cast(DType::F32);
        batch_norm(input, self.gamma(), self.beta(), mean, variance, self.norm.epsilon)
    }

    fn by_own_batch<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let result = batch_norm_train(input, self.gamma(), self.beta(), self.norm.epsilon);
        self.update(result.mean, result.variance);
        result.output
    }

    fn by_all_ranks<const D: usize>(&self, input: Tensor<D>, ranks: &Ranks) -> Tensor<D> {
        let [channels] = self.norm.gamma.lazy_shape().dims();
        let own_count = input.shape().num_elements() / channels.max(1);
        let own_count = Tensor::from_data([own_count as f32], (&input.device(), DType::F32));
        let sums = Tensor::cat(vec![sum_by_channel(input.clone()), own_count], 0);
        let sums = ranks.all_reduce("sums of a batch norm", sums);
        let count = sums.clone().detach().slice([channels..channels + 1]);
        let mean = sums.slice([0..channels]) / count.clone();
        // Two passes: the mean of squares less the square of the mean would cancel.
        let centred = input - along_channels(mean.clone());
        let squares = ranks.all_reduce("squares of a batch norm", sum_by_channel(centred.clone().square()));
        let variance = squares / count;
        let scale = self.gamma() / (variance.clone() + self.norm.epsilon).sqrt();
        self.update(mean, variance);
        // Burn keeps an update back until the next one, for the sake of models that several threads share. A rank has
        // its own: what is saved now is what the last step has left.
        let _ = self.norm.running_mean.value_sync();
        let _ = self.norm.running_var.value_sync();
        centred * along_channels(scale) + along_channels(self.beta())
    }

    fn update(&self, mean: Tensor<1>, variance: Tensor<1>) {
        let momentum = self.norm.momentum;
        for (running, new) in [(&self.norm.running_mean, mean), (&self.norm.running_var, variance)] {
            let old = running.value_sync().to_device(&new.device()).cast(DType::F32);
            running.update((old * (1.0 - momentum) + new.detach() * momentum).detach());
        }
    }

    fn gamma(&self) -> Tensor<1> {
        self.norm.gamma.val().cast(DType::F32)
    }

    fn beta(&self) -> Tensor<1> {
        self.norm.beta.val().cast(DType::F32)
    }
}

/// Sums over every dimension but the second.
fn sum_by_channel<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let others: Vec<usize> = (0..D).filter(|&dimension| dimension != 1).collect();
    x.sum_dims(&others).flatten(0, D - 1)
}

/// `[channels]` as the second of `D` dimensions.
fn along_channels<const D: usize>(x: Tensor<1>) -> Tensor<D> {
    let [channels] = x.dims();
    x.reshape(std::array::from_fn::<_, D, _>(|dimension| if dimension == 1 { channels } else { 1 }))
}

// Written by hand: the derive would add a path segment, and another container's name, by which burn-store's adapter for
// PyTorch's files knows a norm.
impl Module for SyncBatchNorm {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.norm.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        self.norm.fork(device).into()
    }

    fn to_device(self, device: &Device) -> Self {
        self.norm.to_device(device).into()
    }

    fn train(self) -> Self {
        self.norm.train().into()
    }

    fn valid(&self) -> Self {
        self.norm.valid().into()
    }

    fn materialize(self) -> Self {
        self.norm.materialize().into()
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        in_ours(|| self.norm.visit(visitor));
    }

    fn map<T: ModuleMapper>(self, mapper: &mut T) -> Self {
        self.norm.map(mapper).into()
    }
}

impl ModuleDisplayDefault for SyncBatchNorm {
    fn content(&self, content: Content) -> Option<Content> {
        ModuleDisplayDefault::content(&self.norm, content)
    }
}

impl ModuleDisplay for SyncBatchNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        self.norm.custom_settings()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        self.norm.custom_content(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::nn::BatchNormConfig;
    use burn::tensor::{Bytes, TensorData};

    fn burns(device: &Device) -> BatchNorm {
        BatchNormConfig::new(3).with_momentum(0.3).with_epsilon(1e-3).init(device)
    }

    fn input<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
        let len = shape.iter().product();
        let values: Vec<f32> = (0..len).map(|i| ((i * 7919) % 101) as f32 / 25.0 - 1.0).collect();
        Tensor::from_data(TensorData::new(values, shape), (device, DType::F32))
    }

    fn bytes<const D: usize>(tensor: Tensor<D>) -> Bytes {
        tensor.into_data().into_bytes()
    }

    fn check_alone<const D: usize>(shape: [usize; D]) {
        let device = Device::flex().autodiff();
        let (burns, ours) = (burns(&device), SyncBatchNorm::from(burns(&device)));
        for _ in 0..2 {
            let (a, b) = (input(shape, &device).require_grad(), input(shape, &device).require_grad());
            let (y, z) = (burns.forward(a.clone()), ours.forward(b.clone()));
            assert_eq!(bytes(y.clone()), bytes(z.clone()));
            let (y, z) = ((y * a.clone()).sum().backward(), (z * b.clone()).sum().backward());
            assert_eq!(a.grad(&y).map(bytes), b.grad(&z).map(bytes));
            let (gamma, our_gamma) = (burns.gamma.val().grad(&y), ours.norm.gamma.val().grad(&z));
            assert!(gamma.is_some());
            assert_eq!(gamma.map(bytes), our_gamma.map(bytes));
        }
        let (burns, ours) = (burns.valid(), ours.valid());
        let device = Device::flex();
        assert_eq!(bytes(burns.forward(input(shape, &device))), bytes(ours.forward(input(shape, &device))));
        assert_eq!(bytes(burns.running_mean.value()), bytes(ours.norm.running_mean.value()));
        assert_eq!(bytes(burns.running_var.value()), bytes(ours.norm.running_var.value()));
    }

    #[test]
    fn alone_it_is_burns() {
        check_alone([4, 3]);
        check_alone([2, 3, 5]);
        check_alone([2, 3, 2, 4]);
    }

    #[test]
    fn a_training_flag_that_is_off_leaves_the_statistics_alone() {
        let device = Device::flex().autodiff();
        let ours = SyncBatchNorm::from(burns(&device).freeze());
        let output = ours.forward(input([4, 3], &device));
        // Running mean 0 and variance 1.
        let wanted = input([4, 3], &device) / (1.0f64 + 1e-3).sqrt();
        let distance = (output - wanted).abs().max().into_scalar::<f32>();
        assert!(distance < 1e-6, "{distance}");
        assert_eq!(ours.norm.running_mean.value_sync().into_data(), TensorData::from([0.0f32; 3]));
    }

    #[test]
    fn half_precision_input_is_normalised_in_f32() {
        let device = Device::flex().autodiff();
        for dtype in [DType::BF16, DType::F16] {
            let (burns, ours) = (burns(&device), SyncBatchNorm::from(burns(&device)));
            let x = input([4, 3, 6], &device).cast(dtype);
            let output = ours.forward(x.clone());
            assert_eq!(output.dtype(), dtype);
            let wanted = burns.forward(x.clone().cast(DType::F32)).cast(dtype);
            assert_eq!(bytes(output), bytes(wanted));
            let (mean, variance) = (ours.norm.running_mean.value_sync(), ours.norm.running_var.value_sync());
            assert_eq!((mean.dtype(), variance.dtype()), (DType::F32, DType::F32));
            assert_eq!(bytes(mean), bytes(burns.running_mean.value_sync()));
            let evaluated = ours.valid().forward(x.without_autodiff());
            assert_eq!(evaluated.dtype(), dtype);
        }
    }

    #[test]
    fn the_record_is_burns_both_ways() {
        let device = Device::flex().autodiff();
        let trained = SyncBatchNorm::from(burns(&device));
        let _ = trained.forward(input([4, 3], &device));
        let trained = trained.valid();
        let record = trained.clone().into_record();
        let back = BatchNorm::from(trained.clone()).load_record(record.clone());
        let plain = burns(&Device::flex()).load_record(record);
        let ours = SyncBatchNorm::from(burns(&Device::flex())).load_record(plain.clone().into_record());
        for mean in [back.running_mean, plain.running_mean, ours.norm.running_mean] {
            assert_eq!(bytes(mean.value()), bytes(trained.norm.running_mean.value()));
        }
    }

    #[test]
    #[should_panic(expected = "3")]
    fn other_channels_are_refused() {
        SyncBatchNorm::from(burns(&Device::flex())).forward(input([4, 1], &Device::flex()));
    }
}
