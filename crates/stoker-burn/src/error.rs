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
    /// The device ran out of memory in the middle of something.
    #[error(
        "the device is out of memory in {during}: {needed} more are wanted. What would help: a smaller batch, \
         schedule.checkpointing = \"balanced\", a smaller schedule.pool_bytes, smaller units, a larger \
         device.memory_limit. libtorch says: {said}"
    )]
    OutOfDeviceMemory {
        /// What was going on, with the unit's name.
        during: String,
        /// How much was asked for.
        needed: String,
        /// The backend's own account.
        said: String,
    },
    /// A parameter belongs to no unit.
    #[error("parameter `{path}` lies outside every unit; put it, or the module that it belongs to, in a `Unit`")]
    OutsideUnits {
        /// Its path.
        path: String,
    },
    /// A parameter is of a type that is not sharded.
    #[error(
        "parameter `{path}` is {found}; f32, bf16 and f16 parameters can be sharded. Cast the model, or keep it out of units"
    )]
    UnsupportedType {
        /// Its path.
        path: String,
        /// Its type.
        found: String,
    },
    /// One parameter stands in two places, with two shapes.
    #[error(
        "parameters `{first}` and `{second}` have one identity (are tied) but different shapes. Give a copy that is \
         changed an identity of its own, or change the shape where the parameter is used"
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
    /// Burn's batch norm cannot be computed in a narrow type.
    #[error(
        "`{path}` is a running statistic of Burn's BatchNorm, which cannot mix it with statistics in {compute}; use `stoker_burn::nn::SyncBatchNorm` there, or precision.compute = \"f32\""
    )]
    NarrowBatchNorm {
        /// Its path.
        path: String,
        /// The type that was to be computed with.
        compute: String,
    },
    /// A pattern of a group cannot be read.
    #[error(
        "group `{group}`: pattern `{pattern}` cannot be read: {problem}; `*` stands for any text, `?` for one character"
    )]
    Pattern {
        /// The group.
        group: String,
        /// The pattern.
        pattern: String,
        /// What is wrong.
        problem: String,
    },
    /// Two groups claim a parameter.
    #[error(
        "parameter `{path}` is in groups `{one}` and `{other}`; change their patterns so that it is in one of them"
    )]
    TwoGroups {
        /// The parameter.
        path: String,
        /// A group.
        one: String,
        /// The other.
        other: String,
    },
    /// A parameter that stands in two places is in a group by one of its names only.
    #[error(
        "parameters `{first}` and `{second}` are one and the same (tied), and groups say different things of the two; let the patterns of a group fit both"
    )]
    TiedRules {
        /// Where it was met first.
        first: String,
        /// Where it was met again.
        second: String,
    },
    /// A group has no parameter.
    #[error("group `{group}` ({}) fits no parameter; the model has, for example, `{example}`", patterns.join(", "))]
    EmptyGroup {
        /// The group.
        group: String,
        /// Its patterns.
        patterns: Vec<String>,
        /// A parameter that exists.
        example: String,
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
    /// There is no CUDA to compute on.
    #[error(
        "device.backend = \"libtorch-cuda\": {problem}. It needs an NVIDIA driver, and the directories of libtorch's and \
         CUDA's libraries in LD_LIBRARY_PATH; device.backend = \"libtorch\" computes on the CPU"
    )]
    NoCuda {
        /// What is missing.
        problem: String,
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
