//! What the configuration must know of plugins.

use stoker_core::OptionSpec;
use stoker_core::registry::{self, Kind};

/// Which plugins there are, and what options they have.
pub trait Plugins {
    /// Names of all plugins of a kind.
    fn names(&self, kind: Kind) -> Vec<&'static str>;

    /// Options of one plugin.
    ///
    /// # Errors
    /// [`stoker_core::Error::UnknownPlugin`], [`stoker_core::Error::DuplicatePlugin`].
    fn options(&self, kind: Kind, name: &str) -> stoker_core::Result<&'static [OptionSpec]>;
}

/// The plugins that are linked into this program.
#[derive(Debug, Clone, Copy, Default)]
pub struct Registered;

impl Plugins for Registered {
    fn names(&self, kind: Kind) -> Vec<&'static str> {
        registry::plugins(kind).into_iter().map(|plugin| plugin.name).collect()
    }

    fn options(&self, kind: Kind, name: &str) -> stoker_core::Result<&'static [OptionSpec]> {
        registry::find(kind, name).map(|plugin| plugin.options)
    }
}
