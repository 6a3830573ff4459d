//! What can go wrong between the engine and its plugins.

use crate::{DType, Place, Role};

/// A result of this crate's traits.
pub type Result<T> = std::result::Result<T, Error>;

/// What was wanted, what was found, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No plugin of this name is linked into the program.
    #[error("no {kind} is called `{name}`{}; registered: {}. Link its crate (`use that_crate as _;`) or choose one of these", did_you_mean(.nearest), list(.registered))]
    UnknownPlugin {
        /// Kind of plugin.
        kind: &'static str,
        /// Name that was asked for.
        name: String,
        /// Names that exist.
        registered: Vec<String>,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// Two crates registered the same name.
    #[error("{count} plugins are registered as {kind} `{name}`: {}. Link only one of the crates, or rename one", list(.descriptions))]
    DuplicatePlugin {
        /// Kind of plugin.
        kind: &'static str,
        /// The name.
        name: String,
        /// How many have it.
        count: usize,
        /// What each says of itself.
        descriptions: Vec<String>,
    },
    /// A plugin has no such option.
    #[error("{kind} `{plugin}` has no option `{option}`{}; it has: {}", did_you_mean(.nearest), list(.known))]
    UnknownOption {
        /// Kind of plugin.
        kind: &'static str,
        /// Its name.
        plugin: String,
        /// The option that was given.
        option: String,
        /// The options that exist.
        known: Vec<String>,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
    /// An option has a value that it cannot have.
    #[error("option `{option}` of {kind} `{plugin}` is {found}; allowed: {wanted}")]
    BadOption {
        /// Kind of plugin.
        kind: &'static str,
        /// Its name.
        plugin: String,
        /// The option.
        option: String,
        /// The value that was given.
        found: String,
        /// What is allowed.
        wanted: String,
    },
    /// A partitioner made a plan that breaks a law, or cannot make one.
    #[error("unit `{unit}` cannot be partitioned like this: {reason}")]
    BadPlan {
        /// The unit.
        unit: String,
        /// What is wrong.
        reason: String,
    },
    /// A target has not enough room.
    #[error("unit `{unit}` wants {needed} bytes of {place} memory for {role}, {available} are left. {advice}")]
    Full {
        /// The unit.
        unit: String,
        /// What for.
        role: Role,
        /// Where.
        place: Place,
        /// Bytes wanted.
        needed: u64,
        /// Bytes left.
        available: u64,
        /// The setting to change.
        advice: String,
    },
    /// A length or an index does not fit.
    #[error("{what} is {found}, at most or exactly {wanted} is allowed. This is a fault in stoker or in a plugin")]
    OutOfRange {
        /// What does not fit.
        what: String,
        /// What it is.
        found: u64,
        /// What it may be.
        wanted: u64,
    },
    /// A buffer holds another type.
    #[error("{what} is of {found}, {wanted} is wanted. This is a fault in stoker or in a plugin")]
    WrongType {
        /// Which buffer.
        what: String,
        /// What it holds.
        found: DType,
        /// What it should hold.
        wanted: DType,
    },
    /// Ranks made different collective calls.
    #[error(
        "ranks disagree about collective {number}: rank {rank} calls {mine}, rank {other} calls {theirs}{}. Every rank must run the same units in the same order; where one has no use for a unit it calls `Unit::skip`", calls(.before)
    )]
    Disagree {
        /// How many collectives came before it.
        number: u64,
        /// The last calls before it, oldest first, which both ranks made; none if it is the first, or if the
        /// communicator remembers none.
        before: Vec<String>,
        /// The rank that noticed.
        rank: usize,
        /// Its call.
        mine: String,
        /// The rank that differs.
        other: usize,
        /// That rank's call.
        theirs: String,
    },
    /// A rank gave up.
    #[error("rank {rank} is lost: {reason}")]
    RankLost {
        /// The rank.
        rank: usize,
        /// Its own words.
        reason: String,
    },
    /// Somebody did not come in time.
    #[error("{what} was not done within {seconds} s; waited for: {}. Raise the timeout if it is only slow", list(.late))]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: f64,
        /// Who is late.
        late: Vec<String>,
    },
    /// What a plugin failed with.
    #[error("{plugin}: {doing}")]
    Plugin {
        /// Name of the plugin.
        plugin: String,
        /// What it was doing.
        doing: String,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn calls(before: &[String]) -> String {
    if before.is_empty() {
        String::new()
    } else {
        format!(" (the last calls of both before it: {})", before.join(", "))
    }
}

/// The end of a message that has a [`nearest`] candidate, or nothing.
pub fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

/// The candidate that `given` was probably meant to be: for "did you mean" in messages.
///
/// ```
/// assert_eq!(stoker_core::error::nearest("adamx", ["sgd", "adamw"]), Some("adamw".to_owned()));
/// assert_eq!(stoker_core::error::nearest("zebra", ["sgd", "adamw"]), None);
/// ```
pub fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::normalized_damerau_levenshtein(given, candidate), candidate))
        .filter(|(score, _)| *score > 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.to_owned())
}

/// An error and its causes on one line.
///
/// Errors here say only their own part each: their sources have the rest.
///
/// ```
/// let cause = std::io::Error::other("the cause");
/// let error = stoker_core::Error::Plugin { plugin: "p".to_owned(), doing: "working".to_owned(), source: cause.into() };
/// assert_eq!(stoker_core::error::chain(&error), format!("{error}: the cause"));
/// ```
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// The text that a panic was raised with, from its payload.
///
/// ```
/// let payload = std::panic::catch_unwind(|| panic!("no {}", "way")).unwrap_err();
/// assert_eq!(stoker_core::error::panic_text(payload.as_ref()), "no way");
/// ```
pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
