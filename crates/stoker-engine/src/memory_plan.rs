//! What a plan comes to: the bytes that are needed in each place, and what binds them.

use crate::{Error, Result};
use std::collections::BTreeMap;
use stoker_core::{Place, Role};

/// The bytes that an engine will use, and those that there are: see [`Engine::plan`](crate::Engine::plan).
///
/// Not in it: activations and temporaries of the computation, and buffers of copies and collectives on their way.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MemoryPlan {
    /// Places of which something is needed.
    pub places: Vec<PlacePlan>,
    /// Bytes of a rank's that will be pinned, for the device to copy from and to by itself.
    pub pinned: u64,
}

/// One place of a [`MemoryPlan`].
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PlacePlan {
    /// Where.
    pub place: Place,
    /// Bytes that one rank needs, by role.
    pub roles: BTreeMap<Role, u64>,
    /// All that binds it. None: nobody knows how much there is.
    pub limits: Vec<Limit>,
    /// What would help, if a limit is exceeded.
    pub advice: Vec<String>,
}

/// What there is of a place, by one account.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Limit {
    /// Bytes.
    pub bytes: u64,
    /// Where that number comes from.
    pub source: String,
    /// Who is behind it.
    pub kind: LimitKind,
    /// Ranks of this process that take from them together.
    pub ranks: usize,
    /// Bytes that these ranks need of it.
    pub needed: u64,
    /// Whether what they need on the device is counted, since the device is the host.
    pub with_device: bool,
}

/// Who says how much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitKind {
    /// The user.
    Setting,
    /// The device.
    Driver,
    /// The offload target, of itself or of the machine.
    Target,
}

impl MemoryPlan {
    /// Whether no limit is exceeded.
    pub fn fits(&self) -> bool {
        self.exceeded().is_none()
    }

    /// Bytes that one rank needs of a place.
    pub fn needed(&self, place: Place) -> u64 {
        self.of(place).map_or(0, PlacePlan::needed)
    }

    /// # Errors
    /// [`Error::DoesNotFit`] with the first limit that is exceeded.
    pub(crate) fn admit(&self) -> Result<()> {
        let Some((found, limit)) = self.exceeded() else { return Ok(()) };
        let device = self.of(Place::Device).filter(|_| limit.with_device && found.place != Place::Device);
        let mut roles: BTreeMap<Role, u64> = BTreeMap::new();
        for (&role, bytes) in [Some(found), device].into_iter().flatten().flat_map(|place| &place.roles) {
            *roles.entry(role).or_default() += bytes.saturating_mul(limit.ranks as u64);
        }
        Err(Error::DoesNotFit {
            place: found.place,
            needed: limit.needed,
            ranks: limit.ranks,
            limit: limit.bytes,
            source_of_limit: limit.source.clone(),
            breakdown: roles.iter().map(|(role, bytes)| format!("{role} {bytes}")).collect(),
            advice: found.advice.clone(),
        })
    }

    fn of(&self, place: Place) -> Option<&PlacePlan> {
        self.places.iter().find(|found| found.place == place)
    }

    fn exceeded(&self) -> Option<(&PlacePlan, &Limit)> {
        self.places.iter().find_map(|place| Some((place, place.exceeded()?)))
    }
}

impl PlacePlan {
    /// Bytes that one rank needs.
    pub fn needed(&self) -> u64 {
        self.roles.values().sum()
    }

    /// The first limit that is exceeded.
    pub fn exceeded(&self) -> Option<&Limit> {
        self.limits.iter().find(|limit| !limit.is_kept())
    }
}

impl Limit {
    /// Whether no more is needed than there is.
    pub fn is_kept(&self) -> bool {
        self.needed <= self.bytes
    }
}
