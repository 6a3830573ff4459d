//! Files and command lines that are not what they should be.

use crate::file::{File, Stored};
use crate::hand::computed;
use crate::parity;
use safetensors::Dtype;
use serde_json::json;
use std::path::Path;

/// Runs the program, which must refuse; gives what it says.
fn refused(file: &Path, options: &[&str]) -> String {
    let ended = parity(file, options);
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{}", ended.stderr);
    ended.stderr
}

fn must_say(change: impl FnOnce(&mut File), wanted: &str) {
    let directory = tempfile::tempdir().unwrap();
    let mut file = computed();
    change(&mut file);
    let file = file.write(directory.path());
    let said = refused(&file, &[]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with(&format!("error: {}: ", file.display())), "{said}");
    assert!(said.contains(wanted), "{said}");
}

fn with_field(name: &str, value: serde_json::Value) -> impl FnOnce(&mut File) {
    move |file| file.spec.as_mut().unwrap()[name] = value
}

#[test]
fn what_is_no_such_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let said = refused(&path, &[]);
    assert!(said.contains("file: cannot be read; check that it exists and may be read: No such file"), "{said}");
    std::fs::write(&path, "something else altogether").unwrap();
    let said = refused(&path, &[]);
    assert!(said.contains("file: is no safetensors file, or a damaged one"), "{said}");
    // Cut off in the middle of its tensors.
    let whole = std::fs::read(computed().write(directory.path())).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let said = refused(&path, &[]);
    assert!(said.contains("file: is no safetensors file, or a damaged one"), "{said}");
    // The good file before it is not trained first.
    let good = computed().write(directory.path());
    refused(&good, &[path.to_str().unwrap()]);
}

#[test]
fn what_spec_says_is_understood_or_refused() {
    must_say(|file| file.spec = None, "its metadata has no `spec`; write the run's model");
    must_say(|file| file.spec = Some(json!([])), "the `spec` of its metadata is not understood: invalid length 0");
    must_say(with_field("seed", json!(1)), "unknown field `seed`, expected one of `model`");
    must_say(with_field("steps", json!("6")), "invalid type: string \"6\", expected usize");
    must_say(with_field("steps", json!(0)), "`steps` of `spec` is 0; allowed: a whole number from 1 on");
    must_say(with_field("tolerance", json!({"loss": 1, "grad_norm": 1})), "missing field `displacement`");
    let known = "this program has: lenet, seednet, bnnet";
    must_say(with_field("model", json!("lennet")), &format!("is \"lennet\" (did you mean `lenet`?); {known}"));
    must_say(with_field("width_divisor", json!(2)), "`width_divisor` of `spec` is 2; allowed: a whole number from 1");
    must_say(with_field("model", json!("seednet")), "`width_divisor` of `spec` is not there; allowed: a whole number");
    must_say(
        with_field("optimizer", json!({"type": "adamm", "lr": 1e-3})),
        "`optimizer` of `spec` cannot be had: no optimizer is called `adamm` (did you mean `adam",
    );
    must_say(
        with_field("optimizer", json!({"type": "adamw", "lr": 1e-3, "beta": [0.9, 0.999]})),
        "optimizer `adamw` has no option `beta` (did you mean `betas`?); it has: betas, eps",
    );
}

#[test]
fn tensors_are_those_of_the_network_and_the_layout() {
    for name in ["init.fc1.weight", "final.conv2.bias", "images_u8", "labels", "loss", "grad_norm"] {
        let missing = format!("tensor `{name}` is missing; its model `lenet` and the layout want it");
        must_say(|file| _ = file.tensors.remove(name), &missing);
    }
    must_say(
        |file| _ = file.tensors.insert("init.fc4.bias".to_owned(), Stored::zeros(&[10])),
        "tensor `init.fc4.bias` belongs neither to the model `lenet` nor to the layout",
    );
    must_say(
        |file| _ = file.tensors.insert("init.fc1.weight".to_owned(), Stored::zeros(&[400, 120])),
        "tensor `init.fc1.weight` has shape [400, 120], [120, 400] is wanted",
    );
    must_say(
        |file| file.tensors.get_mut("labels").unwrap().shape = vec![12, 5],
        "tensor `labels` has shape [12, 5], [5, 12] is wanted",
    );
    must_say(
        with_field("accumulation", json!(null)),
        "tensor `images_u8` has shape [5, 12, 3, 32, 32], [5, 6, 3, 32, 32]",
    );
    must_say(|file| file.tensors.get_mut("loss").unwrap().dtype = Dtype::I32, "tensor `loss` is of I32, F32 is wanted");
    must_say(
        |file| {
            let label = &mut file.tensors.get_mut("labels").unwrap().bytes[8 * 17..8 * 18];
            label.copy_from_slice(&10i64.to_le_bytes());
        },
        "label 17 is 10; the networks tell classes 0 to 9",
    );
}

#[test]
fn a_wrong_command_line_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = computed().write(directory.path());
    let uneven = format!(
        "error: {}: 5 ranks cannot share its micro-batches of 6 evenly; choose --ranks among 1, 2, 3, 6\n",
        file.display()
    );
    assert_eq!(refused(&file, &["--ranks", "5"]), uneven);
    for (options, wanted) in [
        (["--ranks", "0"], "run.ranks"),
        (["--stage", "4"], "zero.stage"),
        (["--offload", "cpu-ofload"], "did you mean `cpu-offload`?"),
        (["--backend", "flux"], "device.backend"),
        (["--overlap", "maybe"], "--overlap"),
        (["--bucket-bytes", "1"], "schedule.bucket_bytes"),
        (["--timeout", "0"], "run.timeout_seconds"),
        (["--profile", "fast"], "fast"),
        (["--set", "zero.stagee=1"], "did you mean `zero.stage`?"),
        (["--stagee", "1"], "--stagee"),
    ] {
        let said = refused(&file, &options);
        assert!(said.contains(wanted), "{options:?}: {said}");
    }
    #[cfg(not(feature = "libtorch"))]
    assert!(refused(&file, &["--backend", "libtorch"]).contains("build it with `--features libtorch`"));
}

#[test]
fn settings_under_which_nothing_could_be_compared_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = computed().write(directory.path());
    let said = refused(&file, &["--set", "precision.compute=bf16"]);
    assert!(said.contains("precision.compute is bf16; the files are trained in f32"), "{said}");
    let said = refused(&file, &["--set", "groups.head.match=*.bias"]);
    assert!(said.contains("groups is not empty (`head`)"), "{said}");
}
