//! Plugins that have options and can do nothing.

use stoker_core::inventory;
use stoker_core::registry::{Build, Plugin};
use stoker_core::{Error, OptionKind, OptionSpec, OptionValue};

fn refuse<T>() -> Result<T, Error> {
    Err(Error::OutOfRange { what: "a fake".to_owned(), found: 0, wanted: 0 })
}

const FLAT: &[OptionSpec] = &[OptionSpec {
    name: "alignment",
    kind: OptionKind::Integer { min: 1, max: 4096 },
    default: || OptionValue::Integer(128),
    help: "",
}];

const CPU: &[OptionSpec] = &[
    OptionSpec { name: "pin-memory", kind: OptionKind::Bool, default: || OptionValue::Bool(false), help: "" },
    OptionSpec {
        name: "mode",
        kind: OptionKind::Choice(&["eager", "lazy"]),
        default: || OptionValue::Text("eager".to_owned()),
        help: "",
    },
    OptionSpec { name: "room", kind: OptionKind::Bytes, default: || OptionValue::Integer(0), help: "" },
];

const ADAMW: &[OptionSpec] = &[
    OptionSpec {
        name: "eps",
        kind: OptionKind::Float { min: 0.0, max: 1.0 },
        default: || OptionValue::Float(1e-8),
        help: "",
    },
    OptionSpec {
        name: "betas",
        kind: OptionKind::Pair { min: 0.0, below: 1.0 },
        default: || OptionValue::List(vec![OptionValue::Float(0.9), OptionValue::Float(0.999)]),
        help: "",
    },
    OptionSpec {
        name: "weight_decay",
        kind: OptionKind::Float { min: 0.0, max: 1.0 },
        default: || OptionValue::Float(0.01),
        help: "",
    },
];

const SGD: &[OptionSpec] = &[OptionSpec {
    name: "momentum",
    kind: OptionKind::Float { min: 0.0, max: 1.0 },
    default: || OptionValue::Float(0.0),
    help: "",
}];

inventory::submit! {
    Plugin { name: "flat", description: "fake", options: FLAT, build: Build::Partitioner(|_| refuse()) }
}
inventory::submit! {
    Plugin { name: "cpu-offload", description: "fake", options: CPU, build: Build::OffloadTarget(|_, _| refuse()) }
}
inventory::submit! {
    Plugin { name: "gpu-only", description: "fake", options: &[], build: Build::OffloadTarget(|_, _| refuse()) }
}
inventory::submit! {
    Plugin { name: "threads", description: "fake", options: &[], build: Build::Communicator(|_, _| refuse()) }
}
inventory::submit! {
    Plugin { name: "adamw", description: "fake", options: ADAMW, build: Build::Optimizer(|_| refuse()) }
}
inventory::submit! {
    Plugin { name: "sgd", description: "fake", options: SGD, build: Build::Optimizer(|_| refuse()) }
}
