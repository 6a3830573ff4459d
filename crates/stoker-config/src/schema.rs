//! The fixed keys: everything but the options of plugins and the groups of parameters.

use crate::groups;
use crate::words::{
    Backend, Checkpointing, Compute, DataSource, Gradients, LearningRateSchedule, LossScale, ModelName,
    RunningStatistics, Warmup,
};
use std::fmt;
use stoker_core::options::parse_bytes;
use stoker_core::registry::Kind;
use stoker_core::{OptionKind, OptionValue};

/// One key.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) section: &'static str,
    pub(crate) name: &'static str,
    pub(crate) wanted: Wanted,
}

impl Field {
    pub(crate) fn key(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

/// What a key may be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    Bool,
    /// From the first to the second.
    Integer(i64, i64),
    /// A finite number that is not negative.
    NotNegative,
    /// A number above 0, up to this one.
    Positive(f64),
    /// A number from the first to the second.
    Between(f64, f64),
    /// An amount of memory, at least so many bytes.
    Bytes(i64),
    Choice(&'static [&'static str]),
    Text,
    /// Paths of parameters, as a list or as one text.
    Patterns,
}

const ANY: i64 = i64::MAX;
/// What the engine counts with.
const COUNT: i64 = u32::MAX as i64;
/// Far more than keeps any gradient in the range of f16.
const LARGEST_SCALE: f64 = 4_294_967_296.0;
/// A smaller one has no use, and the reciprocal of one that is much smaller is no f32.
const SMALLEST_SCALE: f64 = 1e-6;

pub(crate) const fn field(section: &'static str, name: &'static str, wanted: Wanted) -> Field {
    Field { section, name, wanted }
}

/// All fixed keys, section by section, in the order in which they are shown.
pub(crate) const FIELDS: &[Field] = &[
    field("run", "seed", Wanted::Integer(0, ANY)),
    field("run", "ranks", Wanted::Integer(1, 64)),
    // Far beyond any patience, and what a `Duration` added to an `Instant` can hold.
    field("run", "timeout_seconds", Wanted::Positive(1e9)),
    field("model", "name", Wanted::Choice(ModelName::WORDS)),
    field("model", "width_divisor", Wanted::Integer(1, 1024)),
    field("model", "experts", Wanted::Integer(1, 1024)),
    field("model", "top_k", Wanted::Integer(1, 2)),
    field("model", "capacity_factor", Wanted::Positive(1024.0)),
    field("model", "load_balance", Wanted::NotNegative),
    field("model", "running_statistics", Wanted::Choice(RunningStatistics::WORDS)),
    field("data", "source", Wanted::Choice(DataSource::WORDS)),
    field("data", "dir", Wanted::Text),
    field("data", "train_records", Wanted::Integer(0, ANY)),
    field("data", "valid_records", Wanted::Integer(0, ANY)),
    field("train", "epochs", Wanted::Integer(1, ANY)),
    field("train", "batch_size", Wanted::Integer(1, ANY)),
    field("train", "accumulation", Wanted::Integer(1, COUNT)),
    field("train", "max_steps", Wanted::Integer(0, ANY)),
    field("train", "clip_norm", Wanted::NotNegative),
    field("train", "clip_value", Wanted::NotNegative),
    field("learning_rate", "schedule", Wanted::Choice(LearningRateSchedule::WORDS)),
    field("learning_rate", "base", Wanted::NotNegative),
    field("learning_rate", "end", Wanted::NotNegative),
    field("learning_rate", "gamma", Wanted::Positive(1.0)),
    field("learning_rate", "step_size", Wanted::Integer(0, ANY)),
    field("learning_rate", "pct_start", Wanted::Positive(1.0)),
    field("learning_rate", "div_factor", Wanted::Positive(1e12)),
    field("learning_rate", "final_div_factor", Wanted::Positive(1e12)),
    field("learning_rate", "warmup_steps", Wanted::Integer(0, ANY)),
    field("learning_rate", "warmup", Wanted::Choice(Warmup::WORDS)),
    field("parameters", "decay_vectors", Wanted::Bool),
    field("precision", "compute", Wanted::Choice(Compute::WORDS)),
    field("precision", "gradients", Wanted::Choice(Gradients::WORDS)),
    field("precision", "loss_scale", Wanted::Choice(LossScale::WORDS)),
    field("precision", "static_scale", Wanted::Between(SMALLEST_SCALE, LARGEST_SCALE)),
    field("precision", "initial_scale_power", Wanted::Integer(0, 32)),
    field("precision", "scale_window", Wanted::Integer(1, COUNT)),
    field("precision", "hysteresis", Wanted::Integer(1, COUNT)),
    field("precision", "consecutive_hysteresis", Wanted::Bool),
    field("precision", "minimum_scale", Wanted::Between(SMALLEST_SCALE, LARGEST_SCALE)),
    field("precision", "max_consecutive_skips", Wanted::Integer(0, COUNT)),
    field("device", "backend", Wanted::Choice(Backend::WORDS)),
    field("device", "memory_limit", Wanted::Bytes(0)),
    field("host", "memory_limit", Wanted::Bytes(0)),
    field("zero", "stage", Wanted::Integer(0, 3)),
    field("zero", "reshard_after_forward", Wanted::Bool),
    field("zero", "persistence_threshold", Wanted::Bytes(0)),
    field("schedule", "overlap", Wanted::Bool),
    field("schedule", "update_in_backward", Wanted::Bool),
    field("schedule", "pool_bytes", Wanted::Bytes(0)),
    field("schedule", "prefetch_bytes", Wanted::Bytes(0)),
    // One f32: with less nothing could ever be reduced.
    field("schedule", "bucket_bytes", Wanted::Bytes(4)),
    field("schedule", "copy_below", Wanted::Bytes(0)),
    field("schedule", "checkpointing", Wanted::Choice(Checkpointing::WORDS)),
    field("partitioner", "name", Wanted::Text),
    field("offload", "name", Wanted::Text),
    field("communicator", "name", Wanted::Text),
    field("optimizer", "name", Wanted::Text),
    field("optimizer", "threads", Wanted::Integer(0, 1024)),
];

/// The section in which a plugin of this kind is chosen.
pub(crate) const fn section_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Partitioner => "partitioner",
        Kind::OffloadTarget => "offload",
        Kind::Communicator => "communicator",
        Kind::Optimizer => "optimizer",
    }
}

/// The kind of plugin that is chosen in this section, if it is one of those.
pub(crate) fn kind_of(section: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| section_of(*kind) == section)
}

/// The fixed key of this name.
pub(crate) fn find(section: &str, name: &str) -> Option<&'static Field> {
    in_section(section).find(|field| field.name == name)
}

/// The fixed keys of a section; none if there is no such section.
pub(crate) fn in_section(section: &str) -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(move |field| field.section == section)
}

/// All sections, in the order in which they are shown.
pub(crate) fn sections() -> Vec<&'static str> {
    let mut sections: Vec<_> = FIELDS.iter().map(|field| field.section).collect();
    sections.dedup();
    // Beside the section that says what holds for all parameters.
    let at = sections.iter().position(|section| *section == "precision").unwrap_or(sections.len());
    sections.insert(at, groups::SECTION);
    sections
}

impl Wanted {
    /// `value` in the form that [`crate::Settings`] holds, whole numbers and bytes as integers, other numbers as
    /// floats; `None` if it is not allowed.
    pub(crate) fn read(&self, value: &OptionValue) -> Option<OptionValue> {
        let read = match self {
            Wanted::Bool => match value {
                OptionValue::Bool(_) => value.clone(),
                _ => return None,
            },
            Wanted::Text => match value {
                OptionValue::Text(_) => value.clone(),
                _ => return None,
            },
            Wanted::Patterns => OptionValue::List(groups::patterns(value)?),
            Wanted::Choice(words) => match value {
                OptionValue::Text(word) if words.contains(&word.as_str()) => value.clone(),
                _ => return None,
            },
            Wanted::Integer(min, max) => {
                OptionValue::Integer(whole(value).filter(|whole| (*min..=*max).contains(whole))?)
            }
            Wanted::NotNegative => OptionValue::Float(number(value).filter(|v| v.is_finite() && *v >= 0.0)?),
            Wanted::Positive(max) => OptionValue::Float(number(value).filter(|v| *v > 0.0 && *v <= *max)?),
            Wanted::Between(min, max) => OptionValue::Float(number(value).filter(|v| *v >= *min && *v <= *max)?),
            Wanted::Bytes(min) => {
                let bytes = match value {
                    OptionValue::Text(text) => parse_bytes(text).and_then(|bytes| i64::try_from(bytes).ok()),
                    other => whole(other),
                };
                OptionValue::Integer(bytes.filter(|bytes| bytes >= min)?)
            }
        };
        Some(read)
    }
}

fn number(value: &OptionValue) -> Option<f64> {
    match value {
        OptionValue::Float(value) => Some(*value),
        OptionValue::Integer(value) => Some(*value as f64),
        _ => None,
    }
}

fn whole(value: &OptionValue) -> Option<i64> {
    match value {
        OptionValue::Integer(value) => Some(*value),
        // As for options of plugins: files written by machines have 5e8 for 500000000.
        OptionValue::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(*value as i64),
        _ => None,
    }
}

impl fmt::Display for Wanted {
    /// In the words that are used for options of plugins, where there are any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Wanted::Bool => OptionKind::Bool.fmt(f),
            Wanted::Integer(min, max) => OptionKind::Integer { min, max }.fmt(f),
            Wanted::NotNegative => f.write_str("a number from 0 on"),
            Wanted::Positive(max) => write!(f, "a number above 0, at most {max}"),
            Wanted::Between(min, max) => write!(f, "a number from {min} to {max}"),
            Wanted::Bytes(min) if min > 0 => write!(f, "{}, at least {min} bytes", OptionKind::Bytes),
            Wanted::Bytes(_) => OptionKind::Bytes.fmt(f),
            Wanted::Choice(words) => OptionKind::Choice(words).fmt(f),
            Wanted::Text => f.write_str("text"),
            Wanted::Patterns => f.write_str("a path of parameters such as \"*.bias\", or a list of such"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_at_their_limits() {
        let float = |v| OptionValue::Float(v);
        assert_eq!(Wanted::Integer(0, 3).read(&float(3.0)), Some(OptionValue::Integer(3)));
        assert_eq!(Wanted::Integer(0, 3).read(&OptionValue::Integer(4)), None);
        assert_eq!(Wanted::Integer(0, 3).read(&float(2.5)), None);
        assert_eq!(Wanted::NotNegative.read(&OptionValue::Integer(0)), Some(float(0.0)));
        assert_eq!(Wanted::NotNegative.read(&float(f64::INFINITY)), None);
        assert_eq!(Wanted::NotNegative.read(&float(f64::NAN)), None);
        assert_eq!(Wanted::Positive(1e9).read(&float(0.0)), None);
        assert_eq!(Wanted::Between(0.5, 2.0).read(&OptionValue::Integer(2)), Some(float(2.0)));
        assert_eq!(Wanted::Between(0.5, 2.0).read(&float(0.49)), None);
        assert_eq!(Wanted::Bytes(4).read(&OptionValue::Text("1 KiB".into())), Some(OptionValue::Integer(1024)));
        assert_eq!(Wanted::Bytes(4).read(&OptionValue::Integer(3)), None);
        assert_eq!(Wanted::Bytes(0).read(&OptionValue::Integer(-1)), None);
    }

    #[test]
    fn every_kind_of_plugin_has_a_section_with_a_name() {
        for kind in Kind::ALL {
            assert_eq!(kind_of(section_of(kind)), Some(kind));
            assert!(find(section_of(kind), "name").is_some());
        }
    }
}
