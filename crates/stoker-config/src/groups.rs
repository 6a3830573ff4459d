//! Groups of parameters: tables of any name, whose keys are always the same.

use crate::check::Entry;
use crate::leaf::dotted;
use crate::schema::{Field, Wanted, field};
use crate::{Error, Group, Layer, Provenance, Result};
use std::collections::BTreeMap;
use stoker_core::OptionValue;
use stoker_core::error::nearest;

/// The section whose tables are groups.
pub(crate) const SECTION: &str = "groups";

const MATCH: &str = "match";

/// The keys of every group, in the order in which they are shown.
pub(crate) const FIELDS: &[Field] = &[
    field(SECTION, MATCH, Wanted::Patterns),
    field(SECTION, "learning_rate_scale", Wanted::NotNegative),
    field(SECTION, "weight_decay", Wanted::NotNegative),
    field(SECTION, "frozen", Wanted::Bool),
];

/// What a key is if nobody says anything; of some keys there is no such value.
fn default(name: &str) -> Option<OptionValue> {
    match name {
        "learning_rate_scale" => Some(OptionValue::Float(1.0)),
        "frozen" => Some(OptionValue::Bool(false)),
        _ => None,
    }
}

/// The key of every group that has this name.
pub(crate) fn find(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.name == name)
}

/// Names of the keys of every group, for messages.
pub(crate) fn names_of_keys() -> String {
    FIELDS.iter().map(|field| field.name).collect::<Vec<_>>().join(", ")
}

/// Full path of a key of a group.
pub(crate) fn path(group: &str, name: &str) -> String {
    dotted(&[SECTION, group, name])
}

/// Patterns as a list; `None` for what no pattern can be. That leaves out what can stand in no path: it is most likely a
/// list whose texts are not quoted.
pub(crate) fn patterns(value: &OptionValue) -> Option<Vec<OptionValue>> {
    let is_pattern = |value: &OptionValue| match value {
        OptionValue::Text(text) => {
            !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || "[]{}\"',".contains(c))
        }
        _ => false,
    };
    let patterns = match value {
        OptionValue::List(values) => values.clone(),
        one => vec![one.clone()],
    };
    (!patterns.is_empty() && patterns.iter().all(is_pattern)).then_some(patterns)
}

/// The strongest value of each key of each group so far.
#[derive(Default)]
pub(crate) struct Groups(BTreeMap<String, BTreeMap<&'static str, Entry>>);

impl Groups {
    /// Names of the groups so far.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Takes a checked value of a layer that is stronger than all before.
    pub(crate) fn insert(&mut self, group: &str, name: &'static str, entry: Entry) {
        self.0.entry(group.to_owned()).or_default().insert(name, entry);
    }

    /// The groups, whose keys are entered into `provenance`.
    pub(crate) fn finish(self, provenance: &mut Provenance) -> Result<BTreeMap<String, Group>> {
        if let Some((name, keys)) = self.0.iter().find(|(_, keys)| !keys.contains_key(MATCH)) {
            return Err(self.without_match(name, keys));
        }
        let mut groups = BTreeMap::new();
        for (group, mut keys) in self.0 {
            let mut values = serde_json::Map::new();
            for Field { name, .. } in FIELDS {
                let given = keys.remove(name).or_else(|| default(name).map(|value| (value, Layer::Default)));
                if let Some((value, layer)) = given {
                    let value = serde_json::to_value(value).map_err(failed)?;
                    values.insert((*name).to_owned(), value);
                    provenance.insert(path(&group, name), layer);
                }
            }
            groups.insert(group, serde_json::from_value(values.into()).map_err(failed)?);
        }
        Ok(groups)
    }

    /// Such a group is either forgotten to be finished, or another with a slip in its name.
    fn without_match(&self, name: &str, keys: &BTreeMap<&'static str, Entry>) -> Error {
        let (key, layer) = match keys.first_key_value() {
            Some((key, (_, layer))) => (path(name, key), layer.clone()),
            None => (dotted(&[SECTION, name]), Layer::Default),
        };
        let others = self.0.iter().filter(|(_, keys)| keys.contains_key(MATCH)).map(|(name, _)| name.as_str());
        Error::NoMatch {
            group: name.to_owned(),
            key,
            layer: Box::new(layer),
            nearest: nearest(name, others).map(|name| dotted(&[SECTION, &name])),
        }
    }
}

fn failed(error: serde_json::Error) -> Error {
    Error::Schema { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_one_or_several_paths() {
        let text = |text: &str| OptionValue::Text(text.to_owned());
        assert_eq!(patterns(&text("*.bias")), Some(vec![text("*.bias")]));
        let list = OptionValue::List(vec![text("a.?"), text("b")]);
        assert_eq!(patterns(&list), Some(vec![text("a.?"), text("b")]));
        for wrong in [
            text(""),
            text("[*.bias]"),
            text("a, b"),
            OptionValue::List(vec![]),
            OptionValue::List(vec![OptionValue::Integer(1)]),
            OptionValue::Bool(true),
        ] {
            assert_eq!(patterns(&wrong), None, "{wrong}");
        }
    }
}
