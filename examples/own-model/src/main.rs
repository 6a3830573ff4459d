//! A Burn model of your own under ZeRO-3: two ranks, shards and optimizer state in host memory.
//!
//! `cargo xtask example own-model`

use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::activation::relu;
use stoker::config::DataSource;
use stoker::{Settings, Unit, cross_entropy, launch, open_data};

/// What is wrapped in a [`Unit`] is gathered, used and released together.
#[derive(Module, Debug)]
struct Net {
    features: Unit<Conv2d>,
    hidden: Unit<Linear>,
    head: Unit<Linear>,
}

impl Net {
    fn init(device: &Device) -> Self {
        Self {
            features: Unit::new(Conv2dConfig::new([3, 16], [5, 5]).with_stride([3, 3]).init(device)),
            hidden: Unit::new(LinearConfig::new(16 * 10 * 10, 128).init(device)),
            head: Unit::new(LinearConfig::new(128, 10).init(device)),
        }
    }

    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let x = self.features.call(images, |conv, x| relu(conv.forward(x)));
        let x = self.hidden.call(x.flatten(1, 3), |linear, x| relu(linear.forward(x)));
        self.head.call(x, |linear, x| linear.forward(x))
    }
}

fn main() -> stoker::Result<()> {
    let mut settings = Settings::profile("offload")?;
    settings.data.source = DataSource::Builtin;
    (settings.data.train_records, settings.data.valid_records) = (2_000, 500);
    settings.train.epochs = 2;
    let data = open_data(&settings)?;
    let validations = launch(&settings, |rank| {
        let net = rank.build(Net::init)?;
        for batch in rank.batches(&data.train)? {
            let batch = batch?;
            rank.step(|| cross_entropy(net.forward(batch.images), batch.labels))?;
        }
        rank.validate(&data.valid, |images| net.forward(images))
    })?;
    for (rank, validation) in validations.iter().enumerate() {
        println!("rank {rank}: accuracy {:.1} % of {} records", validation.accuracy * 100.0, validation.records);
    }
    Ok(())
}
