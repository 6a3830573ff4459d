//! What a run would need, and what there is: for people and for programs, before anything is allocated.

use crate::json::write_json;
use crate::models::{self, WithModel, with_model};
use crate::{Classifier, Error, PeakBytes, Rank, Result, launch, text};
use burn::module::Module;
use burn::tensor::Device;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use stoker_config::Settings;
use stoker_core::Place;
use stoker_engine::{Limit, MemoryPlan, PlacePlan};

/// What a run would need, and what there is. Bytes are by place (`device`, `host`), then by role; `total` is their sum.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct PlanReport {
    /// Whether no limit is exceeded.
    pub fits: bool,
    /// Number of ranks.
    pub world: usize,
    /// ZeRO stage.
    pub stage: u8,
    /// The model, as in [`Summary::model`](crate::Summary::model).
    pub model: String,
    /// Its numbers that are trained or kept.
    pub parameters: u64,
    /// Name of the offload target.
    pub offload: String,
    /// What all ranks of this process need.
    pub needed_bytes: PeakBytes,
    /// What each of them needs.
    pub needed_bytes_of_a_rank: PeakBytes,
    /// The rank whose limits these are: the first that has no room, or the first.
    pub rank: usize,
    /// All that binds a place.
    pub limits: BTreeMap<String, Vec<Limit>>,
    /// What would make room in a place that has none.
    pub advice: BTreeMap<String, Vec<String>>,
    /// Bytes of each rank that will be pinned for the device.
    pub pinned_bytes_of_a_rank: u64,
    /// What `ulimit -l` allows, as the system says it; it does not bind what NVIDIA's driver pins.
    pub locked_memory: Option<String>,
}

/// Plans the run of the settings, as [`train`](crate::train()) does before it allocates.
///
/// Nothing is allocated, and no data set is opened.
///
/// # Errors
/// Any [`Error`] but one of memory: that there is too little of it is the report's to say.
pub fn plan(settings: &Settings) -> Result<PlanReport> {
    let planned = launch(settings, |rank| with_model(&settings.model, Planned { rank }))?;
    PlanReport::new(settings, planned)
}

/// What one rank finds: the plan, and the numbers in the model.
struct Planned<'a> {
    rank: &'a Rank,
}

impl WithModel for Planned<'_> {
    type Output = Result<(MemoryPlan, u64)>;

    fn run<M: Module + Classifier + 'static>(self, make: impl FnOnce(&Device) -> M) -> Self::Output {
        let mut parameters = 0;
        let plan = self.rank.plan(|device| {
            let model = make(device);
            parameters = models::count(&model);
            model
        })?;
        Ok((plan, parameters))
    }
}

impl PlanReport {
    fn new(settings: &Settings, planned: Vec<(MemoryPlan, u64)>) -> Result<Self> {
        let world = planned.len();
        let rank = planned.iter().position(|(plan, _)| !plan.fits()).unwrap_or(0);
        let chosen = planned.into_iter().nth(rank);
        let (plan, parameters) = chosen.ok_or(Error::Misuse("a run of no ranks has no plan"))?;
        let fits = plan.fits();
        let mut report = Self {
            fits,
            world,
            stage: settings.zero.stage,
            model: models::title(&settings.model),
            parameters,
            offload: settings.offload.name.clone(),
            needed_bytes: PeakBytes::new(),
            needed_bytes_of_a_rank: PeakBytes::new(),
            rank,
            limits: BTreeMap::new(),
            advice: BTreeMap::new(),
            pinned_bytes_of_a_rank: plan.pinned,
            locked_memory: std::fs::read_to_string("/proc/self/limits").ok().and_then(|limits| locked_memory(&limits)),
        };
        for place in plan.places {
            let needed = place.needed();
            let PlacePlan { place, roles, limits, advice, .. } = place;
            // Plans of all ranks are alike.
            let roles = roles.into_iter().map(|(role, bytes)| (role.to_string(), bytes));
            let of_a_rank: BTreeMap<String, u64> = roles.chain([("total".to_owned(), needed)]).collect();
            let of_all = of_a_rank.iter().map(|(role, bytes)| (role.clone(), bytes.saturating_mul(world as u64)));
            report.needed_bytes.insert(place.to_string(), of_all.collect());
            report.needed_bytes_of_a_rank.insert(place.to_string(), of_a_rank);
            report.limits.insert(place.to_string(), limits);
            if !advice.is_empty() {
                report.advice.insert(place.to_string(), advice);
            }
        }
        Ok(report)
    }

    /// Writes it to a file as one JSON object. The file is complete or, on an error, what it was before.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write_json(&self, path: &Path) -> Result<()> {
        write_json(self, path)
    }
}

/// The soft limit in `/proc/self/limits`: a number and its unit, or `unlimited`.
fn locked_memory(limits: &str) -> Option<String> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let soft = line.split_whitespace().next()?;
    Some(soft.parse().map_or_else(|_| soft.to_owned(), text::bytes))
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = if self.world == 1 { "rank" } else { "ranks" };
        writeln!(f, "model           {}, {} parameters", self.model, text::thousands(self.parameters))?;
        writeln!(f, "run             {} {ranks}, ZeRO stage {}, shards in {}", self.world, self.stage, self.offload)?;
        text::places(f, "needed memory", ["all ranks", "one rank"], &self.needed_bytes, &self.needed_bytes_of_a_rank)?;
        let of_rank = if self.world == 1 { String::new() } else { format!(" of rank {}", self.rank) };
        writeln!(f, "limits{of_rank}")?;
        let on_the_host = self.limits.values().flatten().any(|limit| limit.with_device);
        for (place, limits) in &self.limits {
            if limits.is_empty() {
                let none = if *place == Place::Device.to_string() && on_the_host { "the host's" } else { "not known" };
                writeln!(f, "  {place:<14}{none}")?;
            }
            for limit in limits {
                writeln!(f, "  {place:<14}{}", described(limit))?;
            }
        }
        if self.pinned_bytes_of_a_rank > 0 {
            let pinned = text::bytes(self.pinned_bytes_of_a_rank);
            write!(f, "pinned          {pinned} of each rank's host memory")?;
            match &self.locked_memory {
                Some(limit) => writeln!(f, " (`ulimit -l`, {limit} here, does not bind NVIDIA's driver)")?,
                None => writeln!(f)?,
            }
        }
        writeln!(
            f,
            "not counted     activations and temporaries of the computation (Burn's); buffers of copies and collectives"
        )?;
        writeln!(f, "verdict         {}", if self.fits { "it fits" } else { "it does not fit" })?;
        for (place, advice) in &self.advice {
            writeln!(f, "would help      {place}: {}", advice.join("; "))?;
        }
        Ok(())
    }
}

/// `5.6 MiB of 12.0 GiB (MemAvailable)`, and by whom.
fn described(limit: &Limit) -> String {
    let mut line = format!("{} of {} ({})", text::bytes(limit.needed), text::bytes(limit.bytes), limit.source);
    if limit.ranks > 1 {
        line.push_str(&format!(", {} ranks together", limit.ranks));
    }
    if limit.with_device {
        line.push_str(", with what is on the device, which is the host");
    }
    if !limit.is_kept() {
        line.push_str(": too much");
    }
    line
}

#[cfg(test)]
mod tests;
