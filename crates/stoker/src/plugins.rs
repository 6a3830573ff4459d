//! The table of plugins.

use stoker::core::OptionSpec;
use stoker::core::registry::{self, Kind};

/// Plugins by kind, each with its options.
pub(crate) fn table() -> String {
    let sections = Kind::ALL.map(|kind| {
        let plugins = registry::plugins(kind);
        let names = plugins.iter().map(|plugin| plugin.name.len());
        let options = plugins.iter().flat_map(|plugin| plugin.options).map(|option| option.name.len() + INDENT.len());
        let width = names.chain(options).max().unwrap_or(0);
        let mut text = format!("{}\n", heading(kind));
        for plugin in plugins {
            text.push_str(&format!("  {:width$}  {}\n", plugin.name, plugin.description));
            for option in plugin.options {
                text.push_str(&format!("  {:width$}  {}\n", format!("{INDENT}{}", option.name), describe(option)));
            }
        }
        text
    });
    sections.join("\n")
}

const INDENT: &str = "  ";

/// With the section of the configuration that chooses one.
fn heading(kind: Kind) -> String {
    let section = match kind {
        Kind::Partitioner => "partitioner",
        Kind::OffloadTarget => "offload",
        Kind::Communicator => "communicator",
        Kind::Optimizer => "optimizer",
    };
    format!("{}s ({section}.name)", kind.name())
}

fn describe(option: &OptionSpec) -> String {
    let default = (option.default)();
    let help = if option.help.is_empty() { String::new() } else { format!("{}: ", option.help) };
    format!("{help}{}; default {default}", option.kind)
}
