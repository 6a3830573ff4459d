//! The program, run as a user runs it.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use assert_cmd::Command;
use serde_json::Value;
use std::path::Path;

const TINY: [&str; 7] = [
    "model.name=lenet",
    "data.source=builtin",
    "data.train_records=128",
    "data.valid_records=50",
    "train.batch_size=32",
    "run.ranks=2",
    "train.max_steps=3",
];

/// With nothing of the caller's environment that would change a run.
fn stoker(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("stoker").unwrap();
    command.env_clear().args(arguments);
    command
}

fn with_settings<'a>(mut command: Command, settings: impl IntoIterator<Item = &'a str>) -> Command {
    for setting in settings {
        command.args(["--set", setting]);
    }
    command
}

fn run(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn a_run_ends_with_a_summary_for_people_and_for_programs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("summary.json");
    let command = stoker(&["train", "--json", path.to_str().unwrap()]);
    let (code, stdout, stderr) = run(with_settings(command, TINY));
    assert_eq!(code, 0, "{stderr}");

    let summary = json(&path);
    assert_eq!(summary["world"], 2);
    assert_eq!(summary["stage"], 3);
    assert_eq!(summary["steps"], 3);
    assert_eq!(summary["skipped_steps"], 0);
    assert!(summary["loss_scale"].is_null());
    assert_eq!(summary["model"], "lenet");
    assert_eq!(summary["parameters"], 62_006);
    assert_eq!(summary["data_source"], "builtin");
    for loss in ["first_loss", "train_loss", "valid_loss"] {
        let value = summary[loss].as_f64().unwrap();
        assert!((1.5..4.0).contains(&value), "{loss} {value}: ten classes and no training to speak of");
    }
    assert!((0.0..=1.0).contains(&summary["valid_accuracy"].as_f64().unwrap()));
    assert!(summary["images_per_second"].as_f64().unwrap() > 0.0);
    assert!(summary["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(summary["epochs"].as_array().unwrap().len(), 1);
    // Padded, the shards of two ranks hold the 62,006 parameters once, and AdamW's two moments.
    let host = &summary["peak_bytes"]["host"];
    let parameters = host["parameters"].as_u64().unwrap();
    assert!((62_006 * 4..64_000 * 4).contains(&parameters), "{parameters}");
    assert_eq!(host["optimizer_state"], 2 * parameters);
    assert!(summary["peak_bytes"]["device"]["slab"].as_u64().unwrap() > 0);
    for moved in ["to_device", "from_device", "between_ranks"] {
        assert!(summary["bytes_moved"][moved].as_u64().unwrap() > 62_006 * 4, "{moved}");
    }

    assert!(stdout.starts_with("model           lenet, 62,006 parameters\n"), "{stdout}");
    assert!(stdout.contains("2 ranks, ZeRO stage 3, shards in cpu-offload, data builtin"), "{stdout}");
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 3, "{stderr}");
    assert!(lines[0].starts_with("epoch 1/1  step 1/3  loss "), "{stderr}");
    assert!(lines[2].starts_with("epoch 1/1  done in "), "{stderr}");
}

#[test]
fn weights_are_saved_and_begun_with() {
    let dir = tempfile::tempdir().unwrap();
    let (weights, path) = (dir.path().join("weights.safetensors"), dir.path().join("summary.json"));
    let train = |option: &str, steps: &str, json: &Path| {
        let command = stoker(&["train", option, weights.to_str().unwrap(), "--json", json.to_str().unwrap()]);
        let (code, _, stderr) = run(with_settings(command, TINY.into_iter().chain([steps])));
        assert_eq!(code, 0, "{stderr}");
    };
    train("--save", "train.max_steps=20", &path);
    let saved = json(&path);

    let bytes = std::fs::read(&weights).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.tensor("conv1.weight").unwrap().shape(), [6, 3, 5, 5]);
    assert_eq!(tensors.tensor("fc3.bias").unwrap().shape(), [10]);

    // With a learning rate of 0 nothing moves, so the validation is that of the saved weights.
    let command = stoker(&["train", "--init", weights.to_str().unwrap(), "--json", path.to_str().unwrap()]);
    let settings = TINY.into_iter().chain(["learning_rate.base=0", "run.ranks=1"]);
    assert_eq!(run(with_settings(command, settings)).0, 0);
    let begun = json(&path);
    assert_eq!(begun["valid_accuracy"], saved["valid_accuracy"]);
    let difference = begun["valid_loss"].as_f64().unwrap() - saved["valid_loss"].as_f64().unwrap();
    assert!(difference.abs() < 1e-5, "{difference}");
}

/// Full states of seednet at this divisor are about 90 MB; its largest unit is 10 MB.
const TOO_LARGE: [&str; 6] = [
    "model.width_divisor=10",
    "data.source=builtin",
    "data.train_records=8",
    "data.valid_records=2",
    "train.batch_size=4",
    "device.memory_limit=64 MiB",
];

#[test]
fn a_model_that_does_not_fit_is_refused_and_offloading_trains_it() {
    let (code, stdout, stderr) = run(with_settings(stoker(&["train", "--profile", "no-offload"]), TOO_LARGE));
    assert_eq!(code, 3, "{stderr}");
    assert_eq!(stdout, "");
    assert!(stderr.starts_with("error: rank 0 failed: the model does not fit: "), "{stderr}");
    assert!(stderr.contains("bytes of device memory are needed (parameters "), "{stderr}");
    assert!(stderr.contains(&format!("the limit is {}", 64 << 20)), "{stderr}");
    for setting in ["zero.stage = 3", "offload.name = \"cpu-offload\"", "device.memory_limit"] {
        assert!(stderr.contains(setting), "{setting}: {stderr}");
    }
    assert_eq!(stderr.lines().count(), 1, "{stderr}");

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("summary.json");
    let command = stoker(&["train", "--profile", "offload", "--json", path.to_str().unwrap()]);
    let (code, _, stderr) = run(with_settings(command, TOO_LARGE.into_iter().chain(["train.max_steps=2"])));
    assert_eq!(code, 0, "{stderr}");
    let summary = json(&path);
    assert_eq!(summary["steps"], 2);
    let (device, states) = (summary["peak_bytes_of_a_rank"]["device"]["total"].as_u64().unwrap(), {
        summary["parameters"].as_u64().unwrap() * 16
    });
    assert!(states > 64 << 20, "{states}");
    assert!(device > 0 && device <= 64 << 20, "{device}");
}

/// The plan says beforehand what training would, with the same exit code.
#[test]
fn a_plan_tells_what_does_not_fit_without_training() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plan.json");
    let plan = |profile: &str, more: &[&str]| {
        let command = stoker(&["plan", "--profile", profile, "--json", path.to_str().unwrap()]);
        let (code, stdout, stderr) = run(with_settings(command, TOO_LARGE.iter().chain(more).copied()));
        assert_eq!(stderr, "");
        (code, stdout, json(&path))
    };
    let (code, stdout, plan_of_all) = plan("no-offload", &[]);
    assert_eq!(code, 3, "{stdout}");
    assert!(stdout.contains("of 64.0 MiB (device.memory_limit): too much\n"), "{stdout}");
    assert!(stdout.contains("verdict         it does not fit\nwould help      device: zero.stage = 3"), "{stdout}");
    assert_eq!(
        (&plan_of_all["fits"], &plan_of_all["limits"]["device"][0]["bytes"]),
        (&false.into(), &(64 << 20).into())
    );
    let needed = plan_of_all["needed_bytes"]["device"]["total"].as_u64().unwrap();
    let (code, _, stderr) = run(with_settings(stoker(&["train", "--profile", "no-offload"]), TOO_LARGE));
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains(&format!("{needed} bytes of device memory are needed")), "{needed}: {stderr}");

    let (code, stdout, offloaded) = plan("offload", &[]);
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.ends_with("verdict         it fits\n"), "{stdout}");
    assert_eq!((&offloaded["fits"], &offloaded["world"]), (&true.into(), &2.into()));
    if cfg!(target_os = "linux") {
        let machine = offloaded["limits"]["host"].as_array().unwrap().last().unwrap();
        let all = &offloaded["needed_bytes"];
        let of_all = ["host", "device"].map(|place| all[place]["total"].as_u64().unwrap());
        assert_eq!(machine["needed"], of_all[0] + of_all[1], "the device is the host: {stdout}");
        assert_eq!((&machine["ranks"], &machine["kind"]), (&2.into(), &"target".into()));
        assert!(stdout.contains(", 2 ranks together, with what is on the device, which is the host\n"), "{stdout}");
    }

    // What the user says of the host's memory is what counts, shared out among the ranks.
    let (code, stdout, limited) = plan("offload", &["host.memory_limit=2 MiB"]);
    assert_eq!(code, 3, "{stdout}");
    let limits = limited["limits"]["host"].as_array().unwrap();
    assert_eq!((limits.len(), &limits[0]["bytes"], &limits[0]["kind"]), (1, &(1 << 20).into(), &"setting".into()));
    assert!(stdout.contains("a larger host.memory_limit"), "{stdout}");
}

#[test]
fn a_plan_of_more_than_the_machine_has_is_refused_unless_the_user_says_otherwise() {
    // 16 bytes a parameter for each of 64 ranks, which share nothing: 535 GiB.
    let keys = ["model.name=seednet", "zero.stage=0", "run.ranks=64"];
    let (code, stdout, stderr) = run(with_settings(stoker(&["plan"]), keys));
    let has_less = |line: &str| {
        let kib = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()?;
        Some(kib < 512 << 20)
    };
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    if machine.lines().find_map(has_less) == Some(true) {
        assert_eq!((code, stderr.as_str()), (3, ""), "{stdout}");
        assert!(stdout.contains("64 ranks together"), "{stdout}");
        let (code, _, stderr) = run(with_settings(stoker(&["train"]), keys.into_iter().chain(["data.source=builtin"])));
        assert_eq!(code, 3, "{stderr}");
        assert!(stderr.contains("bytes of host memory are needed by 64 ranks together (parameters "), "{stderr}");
    }
    let (code, stdout, _) = run(with_settings(stoker(&["plan"]), keys.into_iter().chain(["host.memory_limit=2 TiB"])));
    assert_eq!(code, 0, "{stdout}");
}

#[test]
fn an_unknown_key_is_a_wrong_usage_with_the_nearest_key() {
    let (code, stdout, stderr) = run(stoker(&["train", "--set", "zero.stagee=2"]));
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(
        stderr.starts_with("error: unknown key `zero.stagee` (from --set) (did you mean `zero.stage`?)"),
        "{stderr}"
    );
    assert_eq!(run(stoker(&["train", "--profil", "offload"])).0, 2);
    let (code, _, stderr) = run(stoker(&["train", "--set", "optimizer.name=adamx"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("did you mean `adamw`?"), "{stderr}");
}

#[test]
fn a_key_without_effect_is_a_notice() {
    let settings = TINY.into_iter().chain(["learning_rate.gamma=0.5", "train.max_steps=1"]);
    let (code, _, stderr) = run(with_settings(stoker(&["train"]), settings));
    assert_eq!(code, 0, "{stderr}");
    let wanted = "notice: `learning_rate.gamma` (from --set) has no effect: `learning_rate.schedule` is constant";
    assert_eq!(stderr.lines().next(), Some(wanted), "{stderr}");
}

#[test]
fn a_step_is_cut_into_micro_batches() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("summary.json");
    let losses = ["train.accumulation=1", "train.accumulation=4"].map(|accumulation| {
        let command = stoker(&["train", "--json", path.to_str().unwrap()]);
        let keys = [accumulation, "train.clip_norm=1", "learning_rate.schedule=cosine", "learning_rate.warmup_steps=1"];
        let (code, _, stderr) = run(with_settings(command, TINY.into_iter().chain(keys)));
        assert_eq!(code, 0, "{stderr}");
        let summary = json(&path);
        assert_eq!(summary["steps"], 3);
        summary["train_loss"].as_f64().unwrap()
    });
    assert!((losses[0] - losses[1]).abs() < 1e-5, "{losses:?}");
    let (code, _, stderr) = run(with_settings(stoker(&["train"]), TINY.into_iter().chain(["train.accumulation=3"])));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("must be a multiple of 6, such as 36"), "{stderr}");
}

#[test]
fn a_loss_scale_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("summary.json");
    let command = stoker(&["train", "--json", path.to_str().unwrap()]);
    let keys = ["precision.loss_scale=static", "precision.static_scale=8"];
    let (code, stdout, stderr) = run(with_settings(command, TINY.into_iter().chain(keys)));
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(json(&path)["loss_scale"], 8.0);
    assert!(stdout.contains("loss scale      8 at last\n"), "{stdout}");
    assert!(stderr.contains("  loss scale 8  "), "{stderr}");
}

#[test]
fn a_run_that_trains_nothing_ends_with_exit_code_6() {
    let keys = ["learning_rate.base=1e30", "precision.max_consecutive_skips=2", "train.max_steps=0", "train.epochs=9"];
    let (code, _, stderr) = run(with_settings(stoker(&["train"]), TINY.into_iter().chain(keys)));
    assert_eq!(code, 6, "{stderr}");
    let error = stderr.lines().last().unwrap_or_default();
    assert!(error.contains("the last 2 steps were skipped, up to step "), "{stderr}");
    assert!(error.contains("lower the learning rate"), "{stderr}");
}

#[test]
fn groups_that_claim_the_same_parameter_are_a_wrong_configuration() {
    let keys = ["groups.biases.match=*.bias", "groups.head.match=fc3.*"];
    let (code, _, stderr) = run(with_settings(stoker(&["train"]), TINY.into_iter().chain(keys)));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("parameter `fc3.bias` is in groups `biases` and `head`"), "{stderr}");
}

#[test]
fn a_rank_that_does_not_come_in_time_is_exit_code_4() {
    let settings = TINY.into_iter().chain(["run.timeout_seconds=1e-7"]);
    let (code, _, stderr) = run(with_settings(stoker(&["train"]), settings));
    assert_eq!(code, 4, "{stderr}");
    let error = stderr.lines().last().unwrap_or_default();
    assert!(error.starts_with("error: rank "), "{stderr}");
    assert!(error.contains("Raise the timeout if it is only slow"), "{stderr}");
}

#[test]
fn missing_data_and_weights_are_exit_code_5() {
    let settings = ["data.source=cifar10", "data.dir=/nowhere"];
    let (code, _, stderr) = run(with_settings(stoker(&["train"]), settings));
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("/nowhere"), "{stderr}");
    let (code, _, stderr) = run(with_settings(stoker(&["train", "--init", "/nowhere.safetensors"]), TINY));
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("rank "), "{stderr}");
}

#[test]
fn files_that_cannot_be_written_are_told_before_the_work() {
    for option in ["--json", "--save"] {
        let (code, _, stderr) = run(stoker(&["train", option, "/nowhere/file"]));
        assert_eq!(code, 1, "{stderr}");
        assert_eq!(
            stderr,
            "error: cannot write /nowhere/file; check that its directory exists, is writable and has room: No such \
             file or directory (os error 2)\n"
        );
    }
}

#[test]
fn the_built_in_data_set_is_used_with_a_notice_if_there_is_no_other() {
    let settings = TINY.into_iter().chain(["data.source=auto", "data.dir=/nowhere"]);
    let (code, stdout, stderr) = run(with_settings(stoker(&["train"]), settings));
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stderr.lines().filter(|line| line.contains("using the built-in data set")).count(), 1, "{stderr}");
    assert!(stdout.contains("data builtin"), "{stdout}");
}

#[test]
fn settings_are_shown_with_where_they_come_from() {
    let show = ["config", "show", "--profile", "offload", "--ranks", "4", "--set", "train.batch_size=8"];
    let mut command = with_settings(stoker(&show), ["optimizer.name=burn:sgd"]);
    command.env("STOKER__RUN__SEED", "7");
    command.env("STOKER__OPTIMIZER__BURN_SGD__NESTEROV", "true");
    let (code, stdout, stderr) = run(command);
    assert_eq!(code, 0, "{stderr}");
    let shown = |text: &str| stdout.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == text);
    assert!(shown("ranks = 4 # from --set"), "{stdout}");
    assert!(shown("seed = 7 # from environment STOKER__RUN__SEED"), "{stdout}");
    assert!(shown("stage = 3 # from profile offload"), "{stdout}");
    // Names that a shell's variable cannot have are written there with `_`.
    assert!(shown("nesterov = true # from environment STOKER__OPTIMIZER__BURN_SGD__NESTEROV"), "{stdout}");

    let (code, stdout, stderr) = run(stoker(&["config", "show", "--json", "--config", "/dev/null/none.toml"]));
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    let (_, stdout, _) = run(stoker(&["config", "show", "--json"]));
    let shown: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(shown["settings"]["optimizer"]["name"], "adamw");
    assert_eq!(shown["from"]["zero.stage"], "default");
}

#[test]
fn plugins_are_linked_and_listed() {
    let (code, stdout, stderr) = run(stoker(&["plugins"]));
    assert_eq!(code, 0, "{stderr}");
    for name in ["flat", "cpu-offload", "gpu-only", "threads", "adamw"] {
        assert!(stdout.lines().any(|line| line.starts_with(&format!("  {name} "))), "{name}: {stdout}");
    }
    assert!(stdout.contains("betas"), "{stdout}");
}
