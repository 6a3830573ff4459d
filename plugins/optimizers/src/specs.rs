//! Kinds of options that several optimizers have.

use stoker_core::{DType, OptionKind, OptionSpec, OptionValue, Options};

/// The largest decay: as an f32 still below 1, so that bias corrections divide by something.
const BELOW_ONE: f64 = 0.999_999_9;

type Default = fn() -> OptionValue;

/// A decay of moments.
pub(crate) const fn decay(name: &'static str, default: Default, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind: OptionKind::Float { min: 0.0, max: BELOW_ONE }, default, help }
}

/// The decays of two moments.
pub(crate) const fn decays(name: &'static str, default: Default, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind: OptionKind::Pair { min: 0.0, below: 1.0 }, default, help }
}

/// A number from 0 to 1.
pub(crate) const fn fraction(name: &'static str, default: Default, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind: OptionKind::Float { min: 0.0, max: 1.0 }, default, help }
}

/// A number from 0 on.
pub(crate) const fn amount(name: &'static str, default: Default, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind: OptionKind::Float { min: 0.0, max: f64::INFINITY }, default, help }
}

/// What is added to a divisor: never 0, since second moments below the smallest normal f32 count as zero and it is the
/// divisor alone then.
pub(crate) const fn divisor(name: &'static str, default: Default, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind: OptionKind::Float { min: 1e-16, max: f64::INFINITY }, default, help }
}

/// False by default.
pub(crate) const fn flag(name: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, kind: OptionKind::Bool, default: || OptionValue::Bool(false), help }
}

/// Weight decay by an L2 penalty, none by default.
pub(crate) const L2: OptionSpec = amount(
    "weight_decay",
    || OptionValue::Float(0.0),
    "L2 penalty of parameters whose group sets none: it is added to the gradient",
);

/// The type that moments are kept in.
pub(crate) const MOMENTS: OptionSpec = OptionSpec {
    name: "moments",
    kind: OptionKind::Choice(&["f32", "bf16"]),
    default: || OptionValue::Text("f32".to_owned()),
    help: "type of the moments; bf16 takes half of their memory, rounded at random (see stoker_kernels::noise)",
};

/// What [`MOMENTS`] says.
pub(crate) fn moments(options: &Options) -> DType {
    if options.word("moments") == "bf16" { DType::BF16 } else { DType::F32 }
}
