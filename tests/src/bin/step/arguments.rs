//! What the program is given.

use std::collections::BTreeMap;
use stoker_burn::Checkpointing;
use stoker_core::{DType, OptionValue};
use stoker_engine::{Clipping, DynamicLossScale, LossScale};
use stoker_tests::Setup;

pub(crate) struct Arguments {
    pub(crate) model: String,
    pub(crate) pairs: BTreeMap<String, String>,
}

impl Arguments {
    pub(crate) fn given() -> Self {
        let mut given = std::env::args().skip(1);
        let model = given.next().unwrap_or_else(|| "lenet".to_owned());
        let pair = |pair: String| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap();
        Self { model, pairs: given.map(pair).collect() }
    }

    pub(crate) fn text<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.pairs.get(key).map_or(default, String::as_str)
    }

    pub(crate) fn number(&self, key: &str, default: f64) -> f64 {
        self.pairs.get(key).map_or(default, |value| value.parse().unwrap())
    }

    fn is_on(&self, key: &str, default: &str) -> bool {
        self.text(key, default) == "on"
    }

    fn bytes(&self, key: &str, default: f64) -> u64 {
        (self.number(key, default) * f64::from(1 << 30)) as u64
    }

    pub(crate) fn threads(&self) -> usize {
        let processors = std::thread::available_parallelism().unwrap().get() as f64;
        self.number("threads", processors) as usize
    }

    pub(crate) fn setup(&self) -> Setup {
        let mut setup = Setup { weight_decay: 3e-7, ..Setup::new(1, 3) };
        if self.text("target", "cpu-offload") == "gpu-only" {
            setup.target = "gpu-only";
        }
        if let Some(moments) = self.pairs.get("moments") {
            setup.options.insert("moments".to_owned(), OptionValue::Text(moments.clone()));
        }
        setup.device.compute = match self.text("dtype", "bf16") {
            "f32" => DType::F32,
            "f16" => DType::F16,
            _ => DType::BF16,
        };
        if self.is_on("checkpointing", "off") {
            setup.device.checkpointing = Checkpointing::Balanced;
        }
        let settings = &mut setup.settings;
        settings.gradients = None;
        settings.clipping = match self.number("clip", 1.0) {
            0.0 => Clipping::None,
            norm => Clipping::Norm(norm),
        };
        if setup.device.compute == DType::F16 {
            settings.loss_scale = LossScale::Dynamic(DynamicLossScale { initial_power: 5, ..Default::default() });
        }
        settings.overlap = self.is_on("overlap", "on");
        settings.update_in_backward = self.is_on("early", "off");
        settings.pool_bytes = self.bytes("pool", 3.0);
        settings.prefetch_bytes = self.bytes("prefetch", 1.0);
        settings.device_memory_limit = self.pairs.contains_key("limit").then(|| self.bytes("limit", 0.0));
        settings.update_threads = self.threads();
        setup
    }
}
