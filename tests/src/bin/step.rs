//! What a training step costs: `cargo xtask bench --features libtorch step seednet|lenet|chain [KEY=VALUE..]`.
//!
//! Prints, and writes as JSON in the last line: the median of `steps` steps after 3, as the loop sees them (the forward
//! waits for updates, the backward ends with the loss on the host, the update with its decision), then the parts of a step
//! when nothing runs beside anything else, bytes moved, and peaks. `seednet` and `lenet` take the images in the file
//! `CIFAR_BIN`, or built-in ones. STOKER_TEST_BACKEND chooses the backend.
//!
//! | key | value, default |
//! |---|---|
//! | `dtype` | `bf16`, `f16`, `f32` |
//! | `clip` | global norm, 1; 0 for none |
//! | `batch` | 128 images; chain 2048 rows |
//! | `divisor` | of seednet's widths, 1 |
//! | `width` | of chain's 16 layers, 8192 |
//! | `overlap`, `early` | `on` or `off`; `early` updates in backward |
//! | `checkpointing` | `on` or `off`: Burn's balanced checkpointing |
//! | `limit` | GiB of device memory, all |
//! | `pool` | GiB of slabs, 3 |
//! | `prefetch` | GiB, 1 |
//! | `steps`, `threads` | 12; all processors |
//! | `target` | `gpu-only`: shards on the device; `cpu-offload` |
//! | `moments` | `bf16`, for AdamW's in it; f32 |
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench reports by panicking")]

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::gelu;
use burn::tensor::{DType as BurnType, Device, Distribution, FloatDType, Int, Tensor, TensorData};
use std::collections::HashMap;
use std::time::Instant;
use stoker_burn::{Checkpointing, Rank, Unit};
use stoker_core::{DType, OptionValue};
use stoker_data::{RECORD_BYTES, to_f32};
use stoker_engine::{Clipping, LossScale};
use stoker_tests::pictures::pictures;
use stoker_tests::{Setup, median};
use stoker_trainer::models::{LeNetConfig, SeedNetConfig};
use stoker_trainer::{Classifier, cross_entropy};

const LAYERS: usize = 16;
const WARM_UP: usize = 3;

/// Linear layers of one width, as in `shared/peers/chain.py`.
#[derive(Module, Debug)]
struct Chain {
    layers: Vec<Unit<Linear>>,
}

impl Chain {
    fn new(width: usize, device: &Device) -> Self {
        let layer = |_| Unit::new(LinearConfig::new(width, width).init(device));
        Self { layers: (0..LAYERS).map(layer).collect() }
    }

    fn loss(&self, x: Tensor<2>) -> Tensor<1> {
        let y = self.layers.iter().fold(x, |x, layer| gelu(layer.call(x, |layer, x| layer.forward(x))));
        y.cast(FloatDType::F32).square().mean()
    }
}

struct Arguments(HashMap<String, String>);

impl Arguments {
    fn text(&self, key: &str, default: &str) -> String {
        self.0.get(key).cloned().unwrap_or_else(|| default.to_owned())
    }

    fn number(&self, key: &str, default: f64) -> f64 {
        self.0.get(key).map_or(default, |value| value.parse().unwrap())
    }

    fn is_on(&self, key: &str, default: &str) -> bool {
        self.text(key, default) == "on"
    }

    fn bytes(&self, key: &str, default: f64) -> u64 {
        (self.number(key, default) * f64::from(1 << 30)) as u64
    }
}

fn setup(arguments: &Arguments) -> Setup {
    let mut setup = Setup { weight_decay: 3e-7, ..Setup::new(1, 3) };
    if let Some(moments) = arguments.0.get("moments") {
        setup.options.insert("moments".to_owned(), OptionValue::Text(moments.clone()));
    }
    if arguments.text("target", "cpu-offload") == "gpu-only" {
        setup.target = "gpu-only";
    }
    setup.device.compute = match arguments.text("dtype", "bf16").as_str() {
        "f32" => DType::F32,
        "f16" => DType::F16,
        _ => DType::BF16,
    };
    if arguments.is_on("checkpointing", "off") {
        setup.device.checkpointing = Checkpointing::Balanced;
    }
    let processors = std::thread::available_parallelism().unwrap().get() as f64;
    let settings = &mut setup.settings;
    settings.gradients = None;
    settings.clipping = match arguments.number("clip", 1.0) {
        0.0 => Clipping::None,
        norm => Clipping::Norm(norm),
    };
    if setup.device.compute == DType::F16 {
        settings.loss_scale =
            LossScale::Dynamic(stoker_engine::DynamicLossScale { initial_power: 5, ..Default::default() });
    }
    settings.overlap = arguments.is_on("overlap", "on");
    settings.update_in_backward = arguments.is_on("early", "off");
    settings.pool_bytes = arguments.bytes("pool", 3.0);
    settings.prefetch_bytes = arguments.bytes("prefetch", 1.0);
    settings.device_memory_limit = arguments.0.contains_key("limit").then(|| arguments.bytes("limit", 0.0));
    settings.update_threads = arguments.number("threads", processors) as usize;
    setup
}

type Loss = Box<dyn Fn(usize) -> Tensor<1>>;

/// The model, with a loss for each step, and its trained numbers.
fn losses(model: &str, arguments: &Arguments, rank: &Rank) -> (Loss, usize) {
    let device = rank.device();
    if model == "chain" {
        let width = arguments.number("width", 8192.0) as usize;
        let batch = arguments.number("batch", 2048.0) as usize;
        let chain = rank.build(|device| Chain::new(width, device), None).unwrap();
        let x = Tensor::<2>::random([batch, width], Distribution::Normal(0.0, 1.0), &device);
        let compute = if arguments.text("dtype", "bf16") == "f32" { BurnType::F32 } else { BurnType::BF16 };
        let x = x.cast(compute).detach();
        let count = LAYERS * (width * width + width);
        return (Box::new(move |_| chain.loss(x.clone())), count);
    }
    let batch = arguments.number("batch", 128.0) as usize;
    let data = images(batch, &device);
    if model == "seednet" {
        let divisor = arguments.number("divisor", 1.0) as usize;
        let net = rank.build(|device| SeedNetConfig::new(divisor).init(device), None).unwrap();
        let count = net.num_params();
        return (Box::new(move |step| loss(&net, &data[step % data.len()])), count);
    }
    let net = rank.build(|device| LeNetConfig::new().init(device), None).unwrap();
    let count = net.num_params();
    (Box::new(move |step| loss(&net, &data[step % data.len()])), count)
}

fn loss(net: &impl Classifier, (images, labels): &(Tensor<4>, Tensor<1, Int>)) -> Tensor<1> {
    cross_entropy(net.forward(images.clone()), labels.clone())
}

/// Ten batches of the records in `CIFAR_BIN`, a file of CIFAR-10's binary form, as `shared/peers/seed.py` takes it.
fn images(batch: usize, device: &Device) -> Vec<(Tensor<4>, Tensor<1, Int>)> {
    let Some(path) = std::env::var_os("CIFAR_BIN") else {
        println!("CIFAR_BIN is not set: built-in pictures");
        return (0..10).map(|step| pictures(step, batch, 0..batch, device)).collect();
    };
    let bytes = std::fs::read(path).unwrap();
    let records: Vec<_> = bytes.chunks_exact(RECORD_BYTES).collect();
    let of = |step: usize| {
        let rows: Vec<_> = (0..batch).map(|row| records[(step * batch + row) % records.len()]).collect();
        let pixels: Vec<f32> = rows.iter().flat_map(|row| &row[1..]).map(|&pixel| to_f32(pixel)).collect();
        let labels: Vec<i32> = rows.iter().map(|row| i32::from(row[0])).collect();
        (
            Tensor::from_data(TensorData::new(pixels, [batch, 3, 32, 32]), device),
            Tensor::from_data(TensorData::new(labels, [batch]), device),
        )
    };
    (0..10).map(of).collect()
}

/// A line of `/proc/self/status`, in GiB.
fn status(name: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or(": 0");
    let kib: f64 = line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap();
    kib / f64::from(1 << 20)
}

/// Seconds of the forward (a host that waits for updates), the backward and the decision.
fn step(rank: &Rank, loss: &Loss, number: usize) -> ([f64; 3], f64) {
    rank.announce_step(1e-3).unwrap();
    let begun = Instant::now();
    let mut forward = 0.0;
    let value = rank
        .accumulate(|| {
            let loss = loss(number);
            forward = begun.elapsed().as_secs_f64();
            loss
        })
        .unwrap();
    let backward = begun.elapsed().as_secs_f64() - forward;
    let deciding = Instant::now();
    rank.update(1e-3).unwrap();
    ([forward, backward, deciding.elapsed().as_secs_f64()], value)
}

fn main() {
    let mut given = std::env::args().skip(1);
    let model = given.next().unwrap_or_else(|| "lenet".to_owned());
    let pairs = given.map(|pair| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap());
    let arguments = Arguments(pairs.collect());
    let steps = arguments.number("steps", 12.0) as usize;
    setup(&arguments).run(|rank| {
        let begun = Instant::now();
        let (loss, parameters) = losses(&model, &arguments, rank);
        let built = begun.elapsed().as_secs_f64();
        let mut values = Vec::new();
        (0..WARM_UP).for_each(|number| values.push(step(rank, &loss, number).1));
        let moved = rank.moved().unwrap();
        let (mut parts, mut totals) = ([vec![], vec![], vec![]], Vec::new());
        let resident = status("VmRSS");
        for number in WARM_UP..WARM_UP + steps {
            let begun = Instant::now();
            let (took, value) = step(rank, &loss, number);
            totals.push(begun.elapsed().as_secs_f64());
            parts.iter_mut().zip(took).for_each(|(parts, took)| parts.push(took));
            values.push(value);
        }
        rank.flush().unwrap();
        let grown = status("VmRSS") - resident;
        let after = rank.moved().unwrap();
        // One thing after the other.
        let (mut computing, mut updating) = (Vec::new(), Vec::new());
        for number in 0..5 {
            let ([forward, backward, deciding], _) = step(rank, &loss, number);
            computing.push(forward + backward);
            let begun = Instant::now();
            rank.flush().unwrap();
            updating.push(deciding + begun.elapsed().as_secs_f64());
        }
        let [forward, backward, deciding] = parts.map(median);
        let (total, alone, update) = (median(totals.clone()), median(computing), median(updating));
        let per_step = |bytes: u64| bytes as f64 / steps as f64 / 1e9;
        let (to, from) = (per_step(after.to_device - moved.to_device), per_step(after.from_device - moved.from_device));
        // AdamW: masters and moments read and written; the gradient read and rounded parameters written, or in f32 the
        // gradient read.
        let moments = if arguments.text("moments", "f32") == "bf16" { 8.0 } else { 16.0 };
        let bytes = parameters as f64 * (12.0 + moments);
        let peaks: HashMap<String, u64> = rank
            .ledger()
            .unwrap()
            .peaks()
            .into_iter()
            .map(|peak| {
                (format!("{} {}", peak.place, peak.role.map_or("in all".to_owned(), |r| r.to_string())), peak.bytes)
            })
            .collect();
        println!("{model} {:?}: {parameters} parameters, built in {built:.1} s", arguments.0);
        println!("step {total:.4} s (forward {forward:.4}, backward {backward:.4}, decision {deciding:.4})");
        println!("alone: forward + backward {alone:.4} s, update {update:.4} s, {:.1} GB/s", bytes / update / 1e9);
        println!(
            "bytes a step: {to:.2} GB to the device, {from:.2} GB back; RSS {:.2} GiB (most {:.2}, grown {grown:.3})",
            status("VmRSS"),
            status("VmHWM")
        );
        println!("losses {values:.4?}");
        println!("peaks {peaks:?}");
        println!(
            "{}",
            serde_json::json!({
                "model": model, "arguments": arguments.0, "parameters": parameters, "step": total, "steps": totals,
                "forward": forward, "backward": backward, "decision": deciding, "compute_alone": alone,
                "update_alone": update, "gigabytes_to_device": to, "gigabytes_from_device": from,
                "rss_gib": status("VmRSS"), "peak_rss_gib": status("VmHWM"), "peaks": peaks, "losses": values,
            })
        );
    });
}
