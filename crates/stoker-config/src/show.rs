//! Settings for people and for programs.

use crate::groups;
use crate::schema::{self, Wanted};
use crate::{Provenance, Settings};
use stoker_core::OptionValue;

impl Settings {
    /// TOML of the settings in force, each line with the layer that set it: `stage = 3  # from profile offload`.
    /// It can be loaded again as a file.
    pub fn show(&self, provenance: &Provenance) -> String {
        let values = self.values();
        let mut out = String::new();
        for section in schema::sections() {
            if section == groups::SECTION {
                self.show_groups(&mut out, provenance);
                continue;
            }
            let lines = schema::in_section(section)
                .map(|field| {
                    let value = values.get(section).and_then(|section| section.get(field.name));
                    let value = value.map_or_else(String::new, |value| literal(value, field.wanted));
                    (field.name, value, field.key())
                })
                .collect();
            table(&mut out, section, lines, provenance);
            if let Some(kind) = schema::kind_of(section) {
                let choice = self.choice(kind);
                let lines: Vec<_> = choice
                    .options
                    .iter()
                    .map(|(name, value)| {
                        (name.as_str(), option_literal(value), format!("{section}.{}.{name}", choice.name))
                    })
                    .collect();
                if !lines.is_empty() {
                    table(&mut out, &format!("{section}.{}", key(&choice.name)), lines, provenance);
                }
            }
        }
        out
    }

    fn show_groups(&self, out: &mut String, provenance: &Provenance) {
        for (name, group) in &self.groups {
            let values = serde_json::to_value(group).unwrap_or_default();
            let lines = groups::FIELDS
                .iter()
                .filter_map(|field| {
                    let value = values.get(field.name)?;
                    Some((field.name, literal(value, field.wanted), groups::path(name, field.name)))
                })
                .collect();
            table(out, &format!("{}.{}", groups::SECTION, key(name)), lines, provenance);
        }
    }

    /// `{"settings": {…}, "from": {"zero.stage": "profile offload", …}}`
    pub fn to_json(&self, provenance: &Provenance) -> serde_json::Value {
        let from: serde_json::Map<_, _> =
            provenance.iter().map(|(key, layer)| (key.to_owned(), layer.to_string().into())).collect();
        serde_json::json!({ "settings": self.values(), "from": from })
    }

    fn values(&self) -> serde_json::Value {
        // Fails only for maps whose keys are not text and for paths that are not; a path came from text.
        serde_json::to_value(self).unwrap_or_default()
    }
}

fn table(out: &mut String, name: &str, lines: Vec<(&str, String, String)>, provenance: &Provenance) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(&format!("[{name}]\n"));
    let lines: Vec<_> =
        lines.into_iter().map(|(name, value, path)| (format!("{} = {value}", key(name)), path)).collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or_default();
    for (line, path) in lines {
        // The name of a file may hold anything, a comment may not hold the end of a line.
        let layer = provenance.of(&path).map_or_else(|| "the program".to_owned(), ToString::to_string);
        let layer: String = layer.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        out.push_str(&format!("{line:width$}  # from {layer}\n"));
    }
}

fn literal(value: &serde_json::Value, wanted: Wanted) -> String {
    match (value, wanted) {
        (serde_json::Value::String(text), _) => quoted(text),
        (serde_json::Value::Array(values), wanted) => {
            format!("[{}]", values.iter().map(|value| literal(value, wanted)).collect::<Vec<_>>().join(", "))
        }
        (value, Wanted::Bytes(_)) => value.as_u64().map_or_else(|| value.to_string(), bytes),
        (value, Wanted::NotNegative | Wanted::Positive(_)) => {
            value.as_f64().map_or_else(|| value.to_string(), |number| format!("{number:?}"))
        }
        (value, _) => value.to_string(),
    }
}

fn option_literal(value: &OptionValue) -> String {
    match value {
        OptionValue::Bool(value) => value.to_string(),
        OptionValue::Integer(value) => value.to_string(),
        // Unlike `{}` this keeps the point of 1.0 and the exponent of 1e-8.
        OptionValue::Float(value) => format!("{value:?}"),
        OptionValue::Text(value) => quoted(value),
        OptionValue::List(values) => {
            format!("[{}]", values.iter().map(option_literal).collect::<Vec<_>>().join(", "))
        }
    }
}

/// The largest unit in which it is a whole number.
fn bytes(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift) {
        Some((unit, shift)) => format!("\"{} {unit}\"", bytes >> shift),
        None => bytes.to_string(),
    }
}

fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_their_largest_whole_unit() {
        assert_eq!(bytes(0), "0");
        assert_eq!(bytes(256 << 20), "\"256 MiB\"");
        assert_eq!(bytes(3 << 10), "\"3 KiB\"");
        assert_eq!(bytes(1_500), "1500");
    }

    #[test]
    fn text_is_quoted_for_toml() {
        assert_eq!(quoted("a\"b\\c\n\u{7f}"), r#""a\"b\\c\u000A\u007F""#);
        assert_eq!(key("cpu-offload"), "cpu-offload");
        assert_eq!(key("a.b"), "\"a.b\"");
    }
}
