//! Leaves of all layers, checked one by one and merged.

use crate::groups::{self, Groups};
use crate::leaf::{Leaf, Raw};
use crate::schema::{self, Field, Wanted};
use crate::{Error, Layer, Plugins, Result};
use std::collections::BTreeMap;
use stoker_core::error::nearest;
use stoker_core::registry::Kind;
use stoker_core::{OptionSpec, OptionValue, Options};

/// A checked value and the layer that set it.
pub(crate) type Entry = (OptionValue, Layer);

/// The strongest value of each key so far.
pub(crate) struct Merged<'a> {
    plugins: &'a dyn Plugins,
    /// Fixed keys by full path.
    pub(crate) fixed: BTreeMap<String, Entry>,
    /// Options of plugins, of those that are not chosen too.
    pub(crate) options: BTreeMap<(Kind, &'static str), BTreeMap<&'static str, Entry>>,
    pub(crate) groups: Groups,
}

impl<'a> Merged<'a> {
    pub(crate) fn new(plugins: &'a dyn Plugins) -> Self {
        Self { plugins, fixed: BTreeMap::new(), options: BTreeMap::new(), groups: Groups::default() }
    }

    /// Checks a leaf of a layer that is stronger than all before.
    pub(crate) fn take(&mut self, mut leaf: Leaf) -> Result<()> {
        if matches!(leaf.layer, Layer::Environment(_)) {
            self.restore_names(&mut leaf.path);
        }
        let path: Vec<&str> = leaf.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            [section] if schema::in_section(section).next().is_some() => match leaf.value {
                // A section of which every line is commented out.
                Raw::Empty(_) => Ok(()),
                ref value => {
                    let names: Vec<_> = schema::in_section(section).map(|field| field.name).collect();
                    Err(bad_value(&leaf, value, format!("a section with keys: {}", names.join(", "))))
                }
            },
            [groups::SECTION, rest @ ..] => self.group(rest, &leaf),
            [section, name] if let Some(field) = schema::find(section, name) => self.fixed(field, &leaf),
            [section, rest @ ..] if let Some(kind) = schema::kind_of(section) => self.plugin(kind, rest, &leaf),
            _ => Err(self.unknown(&leaf)),
        }
    }

    fn fixed(&mut self, field: &Field, leaf: &Leaf) -> Result<()> {
        let value = value_of(field, leaf)?;
        self.fixed.insert(field.key(), (value, leaf.layer.clone()));
        Ok(())
    }

    /// A leaf in the section of groups: `rest` is the path within it.
    fn group(&mut self, rest: &[&str], leaf: &Leaf) -> Result<()> {
        match (rest, &leaf.value) {
            ([] | [_], Raw::Empty(_)) => Ok(()),
            ([], value) => Err(bad_value(leaf, value, "tables, each a group of parameters".to_owned())),
            ([_], value) => {
                let wanted = format!("a group of parameters, which is a table with keys: {}", groups::names_of_keys());
                Err(bad_value(leaf, value, wanted))
            }
            (&[group, name], _) if let Some(field) = groups::find(name).filter(|_| !group.is_empty()) => {
                let value = value_of(field, leaf)?;
                self.groups.insert(group, field.name, (value, leaf.layer.clone()));
                Ok(())
            }
            _ => Err(self.unknown(leaf)),
        }
    }

    /// A leaf in a section where a plugin is chosen, but not that choice: `rest` is the path within the section.
    fn plugin(&mut self, kind: Kind, rest: &[&str], leaf: &Leaf) -> Result<()> {
        let [given, option @ ..] = rest else {
            return Err(self.unknown(leaf));
        };
        let name = self.plugins.names(kind).into_iter().find(|name| name == given);
        // A value instead of a table is more likely a mistyped key than a plugin that is not there.
        if name.is_none() && option.is_empty() && matches!(leaf.value, Raw::Value(_)) {
            return Err(self.unknown(leaf));
        }
        let specs = self.plugins.options(kind, given).map_err(|reason| Error::Plugin {
            key: format!("{}.{given}", schema::section_of(kind)),
            layer: Box::new(leaf.layer.clone()),
            reason: Box::new(reason),
        })?;
        let Some(name) = name else {
            return Err(self.unknown(leaf));
        };
        match (option, &leaf.value) {
            ([], Raw::Empty(_)) => Ok(()),
            ([], value) => {
                let names: Vec<_> = specs.iter().map(|spec| spec.name).collect();
                Err(bad_value(leaf, value, format!("a table with options of {} {name}: {}", kind.name(), list(&names))))
            }
            ([option], value) => {
                let Some(spec) = specs.iter().find(|spec| spec.name == *option) else {
                    return Err(self.unknown(leaf));
                };
                let value = option_value(kind, name, specs, spec, value, leaf)?;
                self.options.entry((kind, name)).or_default().insert(spec.name, (value, leaf.layer.clone()));
                Ok(())
            }
            _ => Err(self.unknown(leaf)),
        }
    }

    /// Replaces names of plugins and of their options, and of groups, by those that they mean: the environment has no
    /// capitals, and letters and `_` only, so a name is written there with `_` for what else it has.
    fn restore_names(&self, path: &mut [String]) {
        fn restore(given: &mut String, names: &[&str]) {
            let meant = || names.iter().find(|name| name.to_lowercase().replace(['-', ':', '.'], "_") == *given);
            if !names.contains(&given.as_str())
                && let Some(name) = meant()
            {
                *given = (*name).to_owned();
            }
        }
        let [section, plugin, option @ ..] = path else {
            return;
        };
        if section == groups::SECTION {
            restore(plugin, &self.groups.names().collect::<Vec<_>>());
        }
        let Some(kind) = schema::kind_of(section) else {
            return;
        };
        restore(plugin, &self.plugins.names(kind));
        if let ([option], Ok(specs)) = (option, self.plugins.options(kind, plugin)) {
            restore(option, &specs.iter().map(|spec| spec.name).collect::<Vec<_>>());
        }
    }

    fn unknown(&self, leaf: &Leaf) -> Error {
        let key = leaf.key();
        let all = self.all_keys(leaf);
        let (parent, last) = key.rsplit_once('.').unwrap_or(("", &key));
        let siblings: Vec<&str> = all
            .iter()
            .filter_map(|key| key.rsplit_once('.'))
            .filter_map(|(section, name)| (section == parent).then_some(name))
            .collect();
        let nearest = if siblings.is_empty() {
            nearest(&key, all.iter().map(String::as_str))
        } else {
            // A slip within a section, else the right name in the wrong one.
            nearest(last, siblings.iter().copied()).map(|name| format!("{parent}.{name}")).or_else(|| {
                let moved: Vec<_> =
                    all.iter().filter(|key| key.rsplit_once('.').is_some_and(|(_, name)| name == last)).collect();
                nearest(&key, moved.iter().map(|key| key.as_str())).or_else(|| moved.first().map(|key| (*key).clone()))
            })
        };
        let known = if siblings.is_empty() {
            format!("sections: {}", schema::sections().join(", "))
        } else {
            format!("`{parent}` has: {}", siblings.join(", "))
        };
        Error::UnknownKey { key, layer: Box::new(leaf.layer.clone()), nearest, known }
    }

    /// All keys that there are; of groups those that there are so far, and the one that `leaf` is probably of.
    fn all_keys(&self, leaf: &Leaf) -> Vec<String> {
        let mut keys: Vec<_> = schema::FIELDS.iter().map(Field::key).collect();
        let own = match leaf.path.as_slice() {
            [section, group, ..] if !group.is_empty() => nearest(section, [groups::SECTION]).map(|_| group.as_str()),
            _ => None,
        };
        let own = own.filter(|own| !self.groups.names().any(|name| name == *own));
        for group in self.groups.names().chain(own) {
            keys.extend(groups::FIELDS.iter().map(|field| groups::path(group, field.name)));
        }
        for kind in Kind::ALL {
            for name in self.plugins.names(kind) {
                // A name that two crates registered has no schema to offer; it is an error where it is used.
                let specs = self.plugins.options(kind, name).unwrap_or_default();
                let section = schema::section_of(kind);
                keys.extend(specs.iter().map(|spec| format!("{section}.{name}.{}", spec.name)));
            }
        }
        keys
    }
}

/// The value of a leaf as `field` wants it.
fn value_of(field: &Field, leaf: &Leaf) -> Result<OptionValue> {
    let text = |typed: &str| OptionValue::Text(typed.trim().to_owned());
    let value = match (&leaf.value, &leaf.typed, field.wanted) {
        // `--set data.dir=2026`: what was typed is the text.
        (Raw::Value(value), Some(typed), Wanted::Text) if !matches!(value, OptionValue::Text(_)) => Some(text(typed)),
        (Raw::Value(value), ..) => field.wanted.read(value),
        _ => None,
    };
    value.ok_or_else(|| bad_value(leaf, &leaf.value, field.wanted.to_string()))
}

fn option_value(
    kind: Kind,
    plugin: &str,
    specs: &'static [OptionSpec],
    spec: &OptionSpec,
    value: &Raw,
    leaf: &Leaf,
) -> Result<OptionValue> {
    let Raw::Value(value) = value else {
        return Err(bad_value(leaf, value, spec.kind.to_string()));
    };
    let given = BTreeMap::from([(spec.name.to_owned(), value.clone())]);
    match Options::new(kind.name(), plugin, specs, &given) {
        Ok(_) => Ok(value.clone()),
        Err(stoker_core::Error::BadOption { option, wanted, .. }) if option == spec.name => {
            Err(bad_value(leaf, &leaf.value, wanted))
        }
        Err(reason) => {
            Err(Error::Plugin { key: leaf.key(), layer: Box::new(leaf.layer.clone()), reason: Box::new(reason) })
        }
    }
}

fn bad_value(leaf: &Leaf, value: &Raw, wanted: String) -> Error {
    let found = match value {
        Raw::Value(value) => value.to_string(),
        Raw::Empty(what) => (*what).to_owned(),
        Raw::Odd(what) => what.clone(),
    };
    Error::BadValue { key: leaf.key(), layer: Box::new(leaf.layer.clone()), found, wanted }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "it has none".to_owned() } else { names.join(", ") }
}
