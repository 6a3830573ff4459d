//! The table of plugins.

use stoker::core::registry::{self, Kind};
use stoker::core::{OptionSpec, OptionValue};

/// Plugins by kind, each with its options.
pub(crate) fn table() -> String {
    Kind::ALL.map(section).join("\n")
}

fn section(kind: Kind) -> String {
    let mut rows = Vec::new();
    for plugin in registry::plugins(kind) {
        rows.push((plugin.name.to_owned(), plugin.description.to_owned()));
        rows.extend(plugin.options.iter().map(|option| (format!("  {}", option.name), describe(option))));
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    // The key of the configuration that chooses one.
    let key = match kind {
        Kind::Partitioner => "partitioner.name",
        Kind::OffloadTarget => "offload.name",
        Kind::Communicator => "communicator.name",
        Kind::Optimizer => "optimizer.name",
    };
    let mut text = format!("{}s ({key})\n", kind.name());
    for (name, about) in rows {
        text.push_str(&format!("  {name:width$}  {about}\n"));
    }
    text
}

fn describe(option: &OptionSpec) -> String {
    format!("{} ({}; default {})", option.help, option.kind, literal(&(option.default)()))
}

/// As it can stand in a configuration file.
fn literal(value: &OptionValue) -> String {
    match value {
        // `1e-8` and not `0.00000001`.
        OptionValue::Float(value) => format!("{value:?}"),
        OptionValue::List(values) => format!("[{}]", values.iter().map(literal).collect::<Vec<_>>().join(", ")),
        value => value.to_string(),
    }
}
