//! Plugins by kind and name.
//!
//! A plugin crate submits a [`Plugin`]; a program links the crate (`use the_crate as _;`, else the linker drops it) and
//! its configuration names it:
//!
//! ```
//! use std::sync::Arc;
//! use stoker_core::registry::{Build, Plugin};
//! use stoker_core::{ParameterSpec, Partitioner, Plan, Result};
//!
//! #[derive(Debug)]
//! struct Halves;
//! impl Partitioner for Halves {
//!     fn plan(&self, unit: &str, parameters: &[ParameterSpec], world: usize) -> Result<Plan> {
//! #       let _ = (parameters, world);
//! #       Ok(Plan { unit: unit.into(), parameters: vec![], elements: 0, shards: vec![vec![]] })
//!     }
//! }
//!
//! stoker_core::inventory::submit! {
//!     Plugin {
//!         name: "halves",
//!         description: "an example",
//!         options: &[],
//!         build: Build::Partitioner(|_options| Ok(Arc::new(Halves))),
//!     }
//! }
//!
//! let halves = stoker_core::registry::partitioner("halves", &Default::default())?;
//! assert_eq!(halves.plan("unit", &[], 1)?.unit, "unit");
//! # Ok::<(), stoker_core::Error>(())
//! ```

use crate::error::{Error, Result, nearest};
use crate::{Communicator, DeviceMemory, OffloadTarget, Optimizer, OptionSpec, OptionValue, Options, Partitioner};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a communicator is built for.
#[derive(Debug, Clone)]
pub struct Group {
    /// Number of ranks.
    pub world: usize,
    /// How long a rank may be waited for.
    pub timeout: Duration,
}

/// What an offload target is built for.
#[derive(Debug, Clone)]
pub struct TargetContext {
    /// The rank whose shards it will hold.
    pub rank: usize,
    /// Memory of the device that it computes on; `None` where that is the host's own (CPU backends).
    pub device: Option<Arc<dyn DeviceMemory>>,
    /// Whether the user has said how much host memory there is (`host.memory_limit`): what the machine says of it is then
    /// not asked. The engine's books keep to what the user said.
    pub host_memory_is_given: bool,
}

/// One communicator for every rank of a group that runs in this process, in the order of the ranks.
pub type Ends = Vec<Arc<dyn Communicator>>;

/// How a plugin is made, and thereby of which kind it is.
#[derive(Debug, Clone, Copy)]
pub enum Build {
    /// See [`Partitioner`].
    Partitioner(fn(&Options) -> Result<Arc<dyn Partitioner>>),
    /// See [`OffloadTarget`].
    OffloadTarget(fn(&Options, &TargetContext) -> Result<Arc<dyn OffloadTarget>>),
    /// See [`Communicator`]: the ends of those ranks that run in this process.
    Communicator(fn(&Options, &Group) -> Result<Ends>),
    /// See [`Optimizer`].
    Optimizer(fn(&Options) -> Result<Arc<dyn Optimizer>>),
}

/// A kind of plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// See [`Partitioner`].
    Partitioner,
    /// See [`OffloadTarget`].
    OffloadTarget,
    /// See [`Communicator`].
    Communicator,
    /// See [`Optimizer`].
    Optimizer,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Partitioner, Kind::OffloadTarget, Kind::Communicator, Kind::Optimizer];

    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Partitioner => "partitioner",
            Kind::OffloadTarget => "offload target",
            Kind::Communicator => "communicator",
            Kind::Optimizer => "optimizer",
        }
    }
}

/// What a plugin crate submits.
#[derive(Debug)]
pub struct Plugin {
    /// Name in the configuration.
    pub name: &'static str,
    /// One line for people.
    pub description: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// How it is made.
    pub build: Build,
}

inventory::collect!(Plugin);

impl Plugin {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self.build {
            Build::Partitioner(_) => Kind::Partitioner,
            Build::OffloadTarget(_) => Kind::OffloadTarget,
            Build::Communicator(_) => Kind::Communicator,
            Build::Optimizer(_) => Kind::Optimizer,
        }
    }
}

/// Options as they stand in a configuration.
pub type Given = BTreeMap<String, OptionValue>;

/// All plugins of a kind, by name.
pub fn plugins(kind: Kind) -> Vec<&'static Plugin> {
    let mut plugins: Vec<_> = inventory::iter::<Plugin>().filter(|plugin| plugin.kind() == kind).collect();
    plugins.sort_by_key(|plugin| plugin.name);
    plugins
}

/// The plugin of this kind and name.
///
/// # Errors
/// [`Error::UnknownPlugin`], [`Error::DuplicatePlugin`].
pub fn find(kind: Kind, name: &str) -> Result<&'static Plugin> {
    pick(&plugins(kind), kind, name)
}

fn pick(plugins: &[&'static Plugin], kind: Kind, name: &str) -> Result<&'static Plugin> {
    let found: Vec<_> = plugins.iter().filter(|plugin| plugin.name == name).collect();
    match found.as_slice() {
        [plugin] => Ok(plugin),
        [] => {
            let registered: Vec<_> = plugins.iter().map(|plugin| plugin.name.to_owned()).collect();
            let nearest = nearest(name, registered.iter().map(String::as_str));
            Err(Error::UnknownPlugin { kind: kind.name(), name: name.to_owned(), registered, nearest })
        }
        several => Err(Error::DuplicatePlugin {
            kind: kind.name(),
            name: name.to_owned(),
            count: several.len(),
            descriptions: several.iter().map(|plugin| plugin.description.to_owned()).collect(),
        }),
    }
}

fn checked(kind: Kind, name: &str, given: &Given) -> Result<(Build, Options)> {
    let plugin = find(kind, name)?;
    Ok((plugin.build, Options::new(kind.name(), plugin.name, plugin.options, given)?))
}

/// What `find` cannot return, since it looks among plugins of one kind only.
fn mismatch(kind: Kind, name: &str) -> Error {
    Error::UnknownPlugin { kind: kind.name(), name: name.to_owned(), registered: vec![], nearest: None }
}

/// Builds a partitioner.
///
/// # Errors
/// As [`find`]; options that its schema refuses; what the builder fails with.
pub fn partitioner(name: &str, given: &Given) -> Result<Arc<dyn Partitioner>> {
    match checked(Kind::Partitioner, name, given)? {
        (Build::Partitioner(build), options) => build(&options),
        _ => Err(mismatch(Kind::Partitioner, name)),
    }
}

/// Builds an offload target for one rank.
///
/// # Errors
/// As [`partitioner`].
pub fn offload_target(name: &str, given: &Given, context: &TargetContext) -> Result<Arc<dyn OffloadTarget>> {
    match checked(Kind::OffloadTarget, name, given)? {
        (Build::OffloadTarget(build), options) => build(&options, context),
        _ => Err(mismatch(Kind::OffloadTarget, name)),
    }
}

/// Builds the communicators of this process's ranks.
///
/// # Errors
/// As [`partitioner`].
pub fn communicators(name: &str, given: &Given, group: &Group) -> Result<Ends> {
    match checked(Kind::Communicator, name, given)? {
        (Build::Communicator(build), options) => build(&options, group),
        _ => Err(mismatch(Kind::Communicator, name)),
    }
}

/// Builds an optimizer.
///
/// # Errors
/// As [`partitioner`].
pub fn optimizer(name: &str, given: &Given) -> Result<Arc<dyn Optimizer>> {
    match checked(Kind::Optimizer, name, given)? {
        (Build::Optimizer(build), options) => build(&options),
        _ => Err(mismatch(Kind::Optimizer, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ONE: Plugin = plugin("flat", "one");
    static TWO: Plugin = plugin("flat", "two");

    const fn plugin(name: &'static str, description: &'static str) -> Plugin {
        Plugin { name, description, options: &[], build: Build::Partitioner(|_| Err(mismatch(Kind::Partitioner, ""))) }
    }

    #[test]
    fn an_unknown_name_lists_what_there_is() {
        let error = pick(&[&ONE], Kind::Partitioner, "flaat").unwrap_err().to_string();
        assert_eq!(
            error,
            "no partitioner is called `flaat` (did you mean `flat`?); registered: flat. Link its crate (`use that_crate as _;`) or choose one of these"
        );
        let error = find(Kind::Optimizer, "adamw").unwrap_err().to_string();
        assert!(error.contains("registered: none"), "{error}");
    }

    #[test]
    fn two_of_one_name_are_refused() {
        let error = pick(&[&ONE, &TWO], Kind::Partitioner, "flat").unwrap_err().to_string();
        assert_eq!(
            error,
            "2 plugins are registered as partitioner `flat`: one, two. Link only one of the crates, or rename one"
        );
    }
}
