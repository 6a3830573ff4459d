//! What can go wrong around a Burn model.

use stoker_engine as engine;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What was wanted, what was found, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What the engine answered.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// The user's code, Burn or the backend panicked inside a rank.
    #[error("panic during {during}: {message}")]
    Panicked {
        /// What was going on, with the unit's name.
        during: String,
        /// The panic's message.
        message: String,
    },
    /// A parameter belongs to no unit.
    #[error("parameter `{path}` lies outside every unit; put it, or the module that it belongs to, in a `Unit`")]
    OutsideUnits {
        /// Its path.
        path: String,
    },
    /// A parameter is of a type that is not sharded.
    #[error(
        "parameter `{path}` is {found}; only f32 parameters can be sharded. Cast the model, or keep it out of units"
    )]
    UnsupportedType {
        /// Its path.
        path: String,
        /// Its type.
        found: String,
    },
    /// One parameter stands in two places.
    #[error(
        "parameters `{first}` and `{second}` are one and the same (tied). Call one unit from both places instead of \
         putting clones of the parameter in the model"
    )]
    Tied {
        /// Where it was met first.
        first: String,
        /// Where it was met again.
        second: String,
    },
    /// A sharded parameter was used outside a call of its unit.
    #[error("parameter `{path}` is sharded: use it inside `Unit::call` of its unit, or save it with `Rank::save`")]
    Sharded {
        /// Its path.
        path: String,
    },
    /// The rank holds no model, or holds one already.
    #[error("{0}")]
    Misuse(&'static str),
    /// The backend was not compiled in.
    #[error("device.backend = \"{backend}\" is not part of this program; build it with `--features {feature}`")]
    BackendMissing {
        /// The backend.
        backend: &'static str,
        /// The feature that brings it.
        feature: &'static str,
    },
    /// A weights file does not fit the model.
    #[error("{file}: tensor `{path}` {problem}")]
    Weights {
        /// The file.
        file: String,
        /// The parameter.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A weights file cannot be read or written.
    #[error("{file}: {problem}")]
    WeightsFile {
        /// The file.
        file: String,
        /// What is wrong.
        problem: String,
    },
}

impl From<stoker_core::Error> for Error {
    fn from(error: stoker_core::Error) -> Self {
        Self::Engine(error.into())
    }
}
