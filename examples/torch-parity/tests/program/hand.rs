//! A trajectory that can be computed by hand: a LeNet whose weights are all zero.
//!
//! Its logits are the last bias, whatever the picture; so that bias is all that gets a gradient: the softmax of the bias
//! less the part of each class in the batch.

use crate::file::{File, Stored};
use crate::parity;
use safetensors::Dtype;
use serde_json::json;

const BATCH: usize = 6;
const ACCUMULATION: usize = 2;
const STEPS: usize = 5;
const RECORDS: usize = BATCH * ACCUMULATION;

const SHAPES: [(&str, &[usize]); 9] = [
    ("conv1.weight", &[6, 3, 5, 5]),
    ("conv1.bias", &[6]),
    ("conv2.weight", &[16, 6, 5, 5]),
    ("conv2.bias", &[16]),
    ("fc1.weight", &[120, 400]),
    ("fc1.bias", &[120]),
    ("fc2.weight", &[84, 120]),
    ("fc2.bias", &[84]),
    ("fc3.weight", &[10, 84]),
];

/// With AdamW, two micro-batches a step, and a warm-up of three steps.
pub(crate) fn computed() -> File {
    let (lr, beta1, beta2, eps, decay) = (0.05, 0.8, 0.95, 1e-3, 0.1);
    let labels: Vec<usize> = (0..STEPS * RECORDS).map(|record| record * record % 7 + record % 4).collect();
    let (mut bias, mut m, mut v) = ([0.0f64; 10], [0.0; 10], [0.0; 10]);
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    for (step, labels) in labels.chunks(RECORDS).enumerate() {
        let sum: f64 = bias.iter().map(|b| b.exp()).sum();
        let likelihood = bias.map(|b| b.exp() / sum);
        losses.push((labels.iter().map(|label| -likelihood[*label].ln()).sum::<f64>() / RECORDS as f64) as f32);
        let part = |class| labels.iter().filter(|label| **label == class).count() as f64 / RECORDS as f64;
        let gradient: [f64; 10] = std::array::from_fn(|class| likelihood[class] - part(class));
        norms.push(gradient.iter().map(|g| g * g).sum::<f64>().sqrt() as f32);
        let lr = lr * ((step + 1) as f64 / 3.0).min(1.0);
        let update = step as i32 + 1;
        for (class, g) in gradient.into_iter().enumerate() {
            m[class] = beta1 * m[class] + (1.0 - beta1) * g;
            v[class] = beta2 * v[class] + (1.0 - beta2) * g * g;
            let (m, v) = (m[class] / (1.0 - beta1.powi(update)), v[class] / (1.0 - beta2.powi(update)));
            bias[class] = bias[class] * (1.0 - lr * decay) - lr * m / (v.sqrt() + eps);
        }
    }
    let mut file = File {
        spec: Some(json!({
            "model": "lenet", "batch": BATCH, "accumulation": ACCUMULATION, "steps": STEPS, "warmup_steps": 3,
            "optimizer": {"type": "adamw", "lr": lr, "betas": [beta1, beta2], "eps": eps, "weight_decay": decay},
            "tolerance": {"loss": 2e-6, "grad_norm": 2e-6, "displacement": 2e-6},
        })),
        tensors: Default::default(),
    };
    let mut insert = |name: &str, tensor| file.tensors.insert(name.to_owned(), tensor);
    let shape = [STEPS, RECORDS, 3, 32, 32];
    let images = (0..shape.iter().product()).map(|at: usize| (at * at % 251) as u8).collect();
    insert("images_u8", Stored { dtype: Dtype::U8, shape: shape.to_vec(), bytes: images });
    let labels: Vec<i64> = labels.into_iter().map(|label| label as i64).collect();
    insert("labels", Stored::i64s(&[STEPS, RECORDS], &labels));
    insert("loss", Stored::f32s(&[STEPS], &losses));
    insert("grad_norm", Stored::f32s(&[STEPS], &norms));
    for (name, shape) in SHAPES {
        insert(&format!("init.{name}"), Stored::zeros(shape));
        insert(&format!("final.{name}"), Stored::zeros(shape));
    }
    insert("init.fc3.bias", Stored::zeros(&[10]));
    insert("final.fc3.bias", Stored::f32s(&[10], &bias.map(|b| b as f32)));
    file
}

#[test]
fn it_is_met_at_every_stage_with_any_ranks() {
    let directory = tempfile::tempdir().unwrap();
    let file = computed().write(directory.path());
    for (stage, ranks) in [("0", "1"), ("0", "3"), ("1", "2"), ("2", "6"), ("3", "1"), ("3", "3")] {
        let ended = parity(&file, &["--stage", stage, "--ranks", ranks]);
        assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains("lenet, adamw, 5 steps of 2 x 6\n"), "{}", ended.stdout);
        assert!(ended.stdout.contains(&format!("\nstage {stage}, {ranks} rank")), "{}", ended.stdout);
    }
}

#[test]
fn options_choose_how_it_is_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = computed().write(directory.path());
    let options = ["--ranks", "2", "--stage", "1", "--offload", "gpu-only", "--overlap", "false"];
    let ended = parity(&file, &[&options[..], &["--bucket-bytes", "4", "--timeout", "30"]].concat());
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("\nstage 1, 2 ranks, gpu-only, one after the other, flex\n"), "{}", ended.stdout);
    // A profile, with options over it; and one line for several files.
    let also = file.to_str().unwrap();
    let ended = parity(&file, &["--profile", "gpu-only", "--stage", "2", "--brief", also]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ended.stdout);
    for line in lines {
        assert!(line.starts_with("run ") && line.contains("stage 2, 2 ranks  gpu-only") && line.contains("  ok  "));
    }
}

#[test]
fn a_changed_number_is_over_where_it_was_changed() {
    let directory = tempfile::tempdir().unwrap();
    for (tensor, at, by, kind, told) in [
        ("loss", 3, 2e-5, "loss", "step 3"),
        ("grad_norm", 2, 1e-4, "gradient norm", "step 2"),
        ("final.fc3.bias", 7, 1e-4, "displacement", "fc3.bias"),
        ("final.conv1.weight", 11, 1e-4, "displacement", "conv1.weight"),
        ("loss", 0, f32::NAN, "loss", "step 0"),
        ("grad_norm", 4, f32::INFINITY, "gradient norm", "step 4"),
        ("final.fc2.weight", 5, f32::NAN, "displacement", "fc2.weight"),
    ] {
        let mut file = computed();
        file.change(tensor, |values| values[at] += by);
        let ended = parity(&file.write(directory.path()), &["--ranks", "2"]);
        assert_eq!(ended.code, 1, "{tensor}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(ended.stderr, "");
        let over: Vec<_> = ended.stdout.lines().filter(|line| line.contains("OVER")).collect();
        assert!(over.len() == 1, "{tensor}: {}", ended.stdout);
        assert!(over[0].trim_start().starts_with(kind), "{}", ended.stdout);
        assert!(over[0].ends_with(told), "{tensor}: {}", ended.stdout);
    }
}

#[test]
fn a_run_without_a_number_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = computed();
    file.change("init.fc3.bias", |values| values[0] = f32::NAN);
    let ended = parity(&file.write(directory.path()), &["--brief", "--ranks", "2"]);
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("  NaN  OVER  "), "{}", ended.stdout);
}
