//! Options of a plugin: their schema, and values checked against it.

use crate::error::{Error, Result, nearest};
use std::collections::BTreeMap;
use std::fmt;

/// A value as it stands in a configuration file.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// `true`, `false`
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<OptionValue>),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Bool(value) => write!(f, "{value}"),
            OptionValue::Integer(value) => write!(f, "{value}"),
            OptionValue::Float(value) => write!(f, "{value}"),
            OptionValue::Text(value) => write!(f, "\"{value}\""),
            OptionValue::List(values) => {
                f.write_str("[")?;
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}

/// What an option may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OptionKind {
    /// `true` or `false`.
    Bool,
    /// A whole number from `min` to `max`.
    Integer {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// A number from `min` to `max`, both allowed.
    Float {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// Exactly two numbers from `min` up to, not including, `below`.
    Pair {
        /// Smallest.
        min: f64,
        /// First that is too large.
        below: f64,
    },
    /// An amount of memory: bytes, or text such as `"64 MiB"`.
    Bytes,
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl fmt::Display for OptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionKind::Bool => f.write_str("true or false"),
            OptionKind::Integer { min, max } if *max == i64::MAX => write!(f, "a whole number from {min} on"),
            OptionKind::Integer { min, max } => write!(f, "a whole number from {min} to {max}"),
            OptionKind::Float { min, max } if max.is_infinite() => write!(f, "a number from {} on", short(*min)),
            OptionKind::Float { min, max } => write!(f, "a number from {} to {}", short(*min), short(*max)),
            OptionKind::Pair { min, below } => write!(f, "two numbers, each from {min} to below {below}"),
            OptionKind::Bytes => f.write_str("an amount of memory such as 4096, \"64 MiB\" or \"2 GB\""),
            OptionKind::Choice(words) => write!(f, "{}", words.join(", ")),
        }
    }
}

/// 1e-16, not 0.0000000000000001.
fn short(number: f64) -> String {
    if number != 0.0 && number.abs() < 1e-3 { format!("{number:e}") } else { number.to_string() }
}

impl OptionKind {
    /// Whether `value` is allowed.
    pub fn allows(&self, value: &OptionValue) -> bool {
        match self {
            OptionKind::Bool => matches!(value, OptionValue::Bool(_)),
            OptionKind::Integer { min, max } => as_integer(value).is_some_and(|v| (*min..=*max).contains(&v)),
            OptionKind::Float { min, max } => as_float(value).is_some_and(|v| v >= *min && v <= *max),
            OptionKind::Pair { min, below } => match value {
                OptionValue::List(values) if values.len() == 2 => {
                    values.iter().all(|v| as_float(v).is_some_and(|v| v >= *min && v < *below))
                }
                _ => false,
            },
            OptionKind::Bytes => as_bytes(value).is_some(),
            OptionKind::Choice(words) => matches!(value, OptionValue::Text(word) if words.contains(&word.as_str())),
        }
    }
}

/// One option of a plugin.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    /// Name in the configuration.
    pub name: &'static str,
    /// What it may be.
    pub kind: OptionKind,
    /// Its value when it is not given, as JSON.
    pub default: fn() -> OptionValue,
    /// One line for people.
    pub help: &'static str,
}

/// Values of a plugin's options: complete, and allowed by its schema.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options(BTreeMap<&'static str, OptionValue>);

impl Options {
    /// Checks `given` against `schema` and fills in defaults. `kind` and `plugin` are for messages.
    ///
    /// # Errors
    /// [`Error::UnknownOption`], [`Error::BadOption`].
    pub fn new(
        kind: &'static str,
        plugin: &str,
        schema: &'static [OptionSpec],
        given: &BTreeMap<String, OptionValue>,
    ) -> Result<Self> {
        if let Some(option) = given.keys().find(|name| !schema.iter().any(|spec| spec.name == **name)) {
            return Err(Error::UnknownOption {
                kind,
                plugin: plugin.to_owned(),
                option: option.clone(),
                known: schema.iter().map(|spec| spec.name.to_owned()).collect(),
                nearest: nearest(option, schema.iter().map(|spec| spec.name)),
            });
        }
        let mut values = BTreeMap::new();
        for spec in schema {
            let value = given.get(spec.name).cloned().unwrap_or_else(spec.default);
            if !spec.kind.allows(&value) {
                return Err(Error::BadOption {
                    kind,
                    plugin: plugin.to_owned(),
                    option: spec.name.to_owned(),
                    found: value.to_string(),
                    wanted: spec.kind.to_string(),
                });
            }
            values.insert(spec.name, value);
        }
        Ok(Self(values))
    }

    /// A number; 0 if the schema has no such option.
    pub fn float(&self, name: &str) -> f64 {
        self.0.get(name).and_then(as_float).unwrap_or_default()
    }

    /// A whole number; 0 if the schema has no such option.
    pub fn integer(&self, name: &str) -> i64 {
        self.0.get(name).and_then(as_integer).unwrap_or_default()
    }

    /// True or false; false if the schema has no such option.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(OptionValue::Bool(true)))
    }

    /// A word; empty if the schema has no such option.
    pub fn word(&self, name: &str) -> &str {
        match self.0.get(name) {
            Some(OptionValue::Text(word)) => word,
            _ => "",
        }
    }

    /// Two numbers; zeros if the schema has no such option.
    pub fn pair(&self, name: &str) -> (f64, f64) {
        match self.0.get(name) {
            Some(OptionValue::List(values)) => {
                let at = |i: usize| values.get(i).and_then(as_float).unwrap_or_default();
                (at(0), at(1))
            }
            _ => (0.0, 0.0),
        }
    }

    /// Bytes; 0 if the schema has no such option.
    pub fn bytes(&self, name: &str) -> u64 {
        self.0.get(name).and_then(as_bytes).unwrap_or_default()
    }
}

fn as_float(value: &OptionValue) -> Option<f64> {
    match value {
        OptionValue::Float(value) if !value.is_nan() => Some(*value),
        OptionValue::Integer(value) => Some(*value as f64),
        _ => None,
    }
}

fn as_integer(value: &OptionValue) -> Option<i64> {
    match value {
        OptionValue::Integer(value) => Some(*value),
        // Files written by machines have 5e8 for 500000000.
        OptionValue::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(*value as i64),
        _ => None,
    }
}

fn as_bytes(value: &OptionValue) -> Option<u64> {
    match value {
        OptionValue::Text(text) => parse_bytes(text),
        other => as_integer(other).and_then(|v| u64::try_from(v).ok()),
    }
}

/// Reads `"64 MiB"`, `"1.5GB"`, `"4096"`: binary units with an `i`, decimal ones without.
///
/// ```
/// use stoker_core::options::parse_bytes;
/// assert_eq!(parse_bytes("64 MiB"), Some(64 << 20));
/// assert_eq!(parse_bytes("1.5 GB"), Some(1_500_000_000));
/// assert_eq!(parse_bytes("a lot"), None);
/// ```
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    let bytes = number * factor as f64;
    (bytes.fract() == 0.0 && bytes < 9e18).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &[OptionSpec] = &[
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
            name: "tiny",
            kind: OptionKind::Float { min: 1e-16, max: f64::INFINITY },
            default: || OptionValue::Float(1.0),
            help: "",
        },
        OptionSpec { name: "room", kind: OptionKind::Bytes, default: || OptionValue::Integer(0), help: "" },
        OptionSpec {
            name: "threads",
            kind: OptionKind::Integer { min: 0, max: 64 },
            default: || OptionValue::Integer(2),
            help: "",
        },
        OptionSpec { name: "eager", kind: OptionKind::Bool, default: || OptionValue::Bool(true), help: "" },
        OptionSpec { name: "pinned", kind: OptionKind::Bool, default: || OptionValue::Bool(false), help: "" },
    ];

    fn options(text: &str) -> Result<Options> {
        Options::new("optimizer", "adamw", SCHEMA, &serde_json::from_str(text).unwrap())
    }

    #[test]
    fn defaults_and_given_values() {
        let options = options(r#"{"eps": 0.001, "room": "2 KiB", "threads": 4e0, "pinned": true}"#).unwrap();
        assert_eq!(options.float("eps"), 0.001);
        assert_eq!(options.pair("betas"), (0.9, 0.999));
        assert_eq!(options.bytes("room"), 2048);
        assert_eq!(options.integer("threads"), 4);
        assert_eq!(["eager", "pinned", "other"].map(|name| options.flag(name)), [true, true, false]);
    }

    #[test]
    fn an_unknown_option_names_the_nearest() {
        let error = options(r#"{"epss": 1}"#).unwrap_err().to_string();
        assert_eq!(
            error,
            "optimizer `adamw` has no option `epss` (did you mean `eps`?); it has: eps, betas, tiny, room, threads, eager, pinned"
        );
    }

    #[test]
    fn a_bad_value_says_what_is_allowed() {
        for (text, wanted) in [
            (r#"{"eps": -1}"#, "option `eps` of optimizer `adamw` is -1; allowed: a number from 0 to 1"),
            (r#"{"tiny": 0}"#, "option `tiny` of optimizer `adamw` is 0; allowed: a number from 1e-16 on"),
            (
                r#"{"betas": [0.9]}"#,
                "option `betas` of optimizer `adamw` is [0.9]; allowed: two numbers, each from 0 to below 1",
            ),
            (
                r#"{"room": "many"}"#,
                "option `room` of optimizer `adamw` is \"many\"; allowed: an amount of memory such as 4096, \"64 MiB\" or \"2 GB\"",
            ),
            (
                r#"{"threads": 1.5}"#,
                "option `threads` of optimizer `adamw` is 1.5; allowed: a whole number from 0 to 64",
            ),
            (r#"{"eager": 1}"#, "option `eager` of optimizer `adamw` is 1; allowed: true or false"),
        ] {
            assert_eq!(options(text).unwrap_err().to_string(), wanted);
        }
    }
}
