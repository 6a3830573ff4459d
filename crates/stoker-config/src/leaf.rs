//! Raw layers: text to leaves, which nothing has checked yet.

use crate::{Error, Layer, Result};
use config::{FileFormat, Source, ValueKind};
use std::collections::BTreeMap;
use stoker_core::OptionValue;

/// Prefix of the environment variables that are read.
pub(crate) const PREFIX: &str = "STOKER__";

/// A value at a path, as it stands in a layer.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    pub(crate) path: Vec<String>,
    pub(crate) value: Raw,
    /// What the user typed, where all that is typed is text: the environment and the command line.
    pub(crate) typed: Option<String>,
    pub(crate) layer: Layer,
}

/// What a leaf holds.
#[derive(Debug, Clone)]
pub(crate) enum Raw {
    Value(OptionValue),
    /// `null`, or a table without keys: harmless where a section is wanted.
    Empty(&'static str),
    /// Something that no key may be, in words.
    Odd(String),
}

impl Leaf {
    /// Its full path, for messages.
    pub(crate) fn key(&self) -> String {
        dotted(&self.path)
    }
}

/// Names with dots between them: a name with a dot in it is quoted, as it is not two names.
pub(crate) fn dotted<S: AsRef<str>>(names: &[S]) -> String {
    let quoted = |name: &str| if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() };
    names.iter().map(|name| quoted(name.as_ref())).collect::<Vec<_>>().join(".")
}

/// Leaves of a document.
pub(crate) fn document(text: &str, format: FileFormat, layer: &Layer) -> Result<Vec<Leaf>> {
    let root = config::File::from_str(text, format).collect().map_err(|error| Error::Parse {
        layer: layer.clone(),
        format: match format {
            FileFormat::Json => "JSON",
            FileFormat::Yaml => "YAML",
            _ => "TOML",
        },
        reason: error.to_string().trim_end().to_owned(),
    })?;
    let mut leaves = Vec::new();
    for (name, value) in sorted(root) {
        flatten(vec![name], value.kind, layer, &mut leaves);
    }
    Ok(leaves)
}

/// Leaves of `section.key=value` from the command line.
pub(crate) fn set(given: &str) -> Result<Vec<Leaf>> {
    let Some((key, value)) = given.split_once('=') else {
        return Err(Error::BadOverride { given: given.to_owned() });
    };
    let path = key.split('.').map(|name| name.trim().to_owned()).collect();
    Ok(typed(path, value, &Layer::Set))
}

/// Leaves of an environment variable; none if it is not for stoker.
pub(crate) fn environment(variable: &str, value: &str) -> Vec<Leaf> {
    let Some(key) = variable.strip_prefix(PREFIX) else {
        return Vec::new();
    };
    let path = key.to_lowercase().split("__").map(str::to_owned).collect();
    typed(path, value, &Layer::Environment(variable.to_owned()))
}

fn typed(path: Vec<String>, text: &str, layer: &Layer) -> Vec<Leaf> {
    let depth = path.len();
    let mut leaves = Vec::new();
    flatten(path, scalar(text), layer, &mut leaves);
    // Of a table the text is not that of its values.
    if let [leaf] = leaves.as_mut_slice()
        && leaf.path.len() == depth
    {
        leaf.typed = Some(text.to_owned());
    }
    leaves
}

/// `text` as a TOML value if it is one, else as itself.
fn scalar(text: &str) -> ValueKind {
    let document = format!("value = {}", text.trim());
    match config::File::from_str(&document, FileFormat::Toml).collect() {
        // Text with line breaks may define more than the one value; then it is just text.
        Ok(mut root) if root.len() == 1 => {
            root.remove("value").map_or_else(|| ValueKind::String(text.to_owned()), |value| value.kind)
        }
        _ => ValueKind::String(text.to_owned()),
    }
}

fn flatten(path: Vec<String>, kind: ValueKind, layer: &Layer, leaves: &mut Vec<Leaf>) {
    match kind {
        ValueKind::Table(table) if !table.is_empty() => {
            for (name, value) in sorted(table) {
                let mut path = path.clone();
                path.push(name);
                flatten(path, value.kind, layer, leaves);
            }
        }
        kind => leaves.push(Leaf { path, value: raw(kind), typed: None, layer: layer.clone() }),
    }
}

/// In the order of names, so that of several mistakes it is always the same that is reported.
fn sorted(table: config::Map<String, config::Value>) -> BTreeMap<String, config::Value> {
    table.into_iter().collect()
}

fn raw(kind: ValueKind) -> Raw {
    let value = match kind {
        ValueKind::Nil => return Raw::Empty("nothing"),
        ValueKind::Table(_) => return Raw::Empty("a table"),
        ValueKind::Boolean(value) => OptionValue::Bool(value),
        ValueKind::Float(value) => OptionValue::Float(value),
        ValueKind::String(value) => OptionValue::Text(value),
        ValueKind::I64(value) => OptionValue::Integer(value),
        ValueKind::U64(value) => match i64::try_from(value) {
            Ok(value) => OptionValue::Integer(value),
            Err(_) => return Raw::Odd(value.to_string()),
        },
        ValueKind::I128(value) => return Raw::Odd(value.to_string()),
        ValueKind::U128(value) => return Raw::Odd(value.to_string()),
        ValueKind::Array(values) => {
            let mut list = Vec::new();
            for value in values {
                match raw(value.kind) {
                    Raw::Value(value) => list.push(value),
                    Raw::Empty(what) => return Raw::Odd(format!("a list with {what} in it")),
                    Raw::Odd(what) => return Raw::Odd(format!("a list with {what} in it")),
                }
            }
            OptionValue::List(list)
        }
    };
    Raw::Value(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_text_is_toml_where_it_can_be() {
        for (text, wanted) in [
            ("3", "3"),
            (" 1e-3", "0.001"),
            ("true", "true"),
            ("[0.9, 0.999]", "[0.9, 0.999]"),
            ("\"7\"", "\"7\""),
            ("64 MiB", "\"64 MiB\""),
            ("flat", "\"flat\""),
            ("", "\"\""),
            ("1\nother = 2", "\"1\nother = 2\""),
        ] {
            let leaves = set(&format!("a.b={text}")).unwrap();
            let [Leaf { path, value: Raw::Value(value), .. }] = leaves.as_slice() else {
                panic!("{text}: {leaves:?}");
            };
            assert_eq!(path, &["a", "b"]);
            assert_eq!(value.to_string(), wanted);
        }
    }

    #[test]
    fn a_table_on_the_command_line_is_several_leaves() {
        let keys: Vec<_> = set("zero={stage = 1, deep = {er = 2}}").unwrap().iter().map(Leaf::key).collect();
        assert_eq!(keys, ["zero.deep.er", "zero.stage"]);
    }

    #[test]
    fn the_environment_is_split_at_two_underscores() {
        let keys = |name| environment(name, "1").iter().map(Leaf::key).collect::<Vec<_>>();
        assert_eq!(keys("STOKER__LEARNING_RATE__BASE"), ["learning_rate.base"]);
        assert!(keys("STOKER_DATA_DIR").is_empty());
    }
}
