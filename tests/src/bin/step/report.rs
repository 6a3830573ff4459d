//! The figures, for people and for programs.

use crate::arguments::Arguments;
use crate::floor::{Needs, floor, limits};
use crate::machine::{Rates, Taken};
use serde_json::{Map, Value, json};
use stoker_core::Reading;
use stoker_engine::Peak;
use stoker_tests::memory::status;

/// What was measured: seconds, bytes, and bytes a second.
pub(crate) struct Report {
    pub(crate) parameters: usize,
    pub(crate) built: f64,
    /// Medians.
    pub(crate) step: f64,
    pub(crate) forward: f64,
    pub(crate) backward: f64,
    pub(crate) decision: f64,
    /// All of them.
    pub(crate) steps: Vec<f64>,
    /// From the decision to the last update, nothing else running.
    pub(crate) update_alone: f64,
    pub(crate) needs: Needs,
    pub(crate) rates: Rates,
    /// While updates ran in the steps.
    pub(crate) updating: Option<f64>,
    /// While updates ran and nothing else did.
    pub(crate) updating_alone: Option<f64>,
    /// Copies to the device and from it in the steps, if it times them.
    pub(crate) copying: Option<[Reading; 2]>,
    pub(crate) before: Taken,
    pub(crate) after: Taken,
    pub(crate) peaks: Vec<Peak>,
    pub(crate) losses: Vec<f64>,
}

/// One thing that moves bytes.
struct Row {
    what: &'static str,
    key: &'static str,
    /// In a step.
    bytes: f64,
    /// While it moved.
    rate: Option<f64>,
    /// What the machine can do.
    measured: Option<f64>,
}

impl Report {
    fn rows(&self) -> [Row; 4] {
        let Needs { update, to_device, from_device, .. } = self.needs;
        let [to, from] = self.copying.map_or([None, None], |copies| copies.map(Reading::rate));
        let host = Some(self.rates.host);
        let row = |what, key, bytes, rate, measured| Row { what, key, bytes, rate, measured };
        [
            row("copies to the device", "to_device", to_device, to, self.rates.to_device),
            row("copies from the device", "from_device", from_device, from, self.rates.from_device),
            row("updates in the steps", "update", update, self.updating, host),
            row("updates alone", "update_alone", update, self.updating_alone, host),
        ]
    }

    fn memory(&self) -> [(&'static str, &'static str, Option<f64>, Option<f64>); 3] {
        let (before, after) = (self.before, self.after);
        [
            ("resident in the host", "resident", Some(before.resident), Some(after.resident)),
            ("pinned in the host", "pinned", before.pinned, after.pinned),
            ("taken of the device", "device", before.device, after.device),
        ]
    }

    pub(crate) fn print(&self, arguments: &Arguments) {
        let limits = limits(&self.needs, &self.rates);
        let (what, floor) = floor(&limits);
        let Needs { forward, backward, .. } = self.needs;
        println!(
            "{} {:?}: {} parameters, built in {:.1} s",
            arguments.model, arguments.pairs, self.parameters, self.built
        );
        println!("losses {:.4?}\n", self.losses);
        println!("median of {} steps      seconds", self.steps.len());
        let fastest = self.steps.iter().copied().fold(f64::INFINITY, f64::min);
        for (what, seconds) in [
            ("step", self.step),
            ("  forward", self.forward),
            ("  backward", self.backward),
            ("  decision", self.decision),
            ("fastest", fastest),
            ("alone: forward", forward),
            ("  backward", backward),
            ("  update", self.update_alone),
        ] {
            println!("{what:26}  {seconds:8.4}");
        }
        println!("\nfloor: {what:19}  {floor:8.4}  of which the step reaches {:.2}", floor / self.step);
        for (what, seconds) in &limits {
            println!("  {what:24}  {seconds:8.4}");
        }
        println!("\n                          GB a step   GB/s  measured  ratio");
        for Row { what, bytes, rate, measured, .. } in self.rows() {
            let ratio = rate.zip(measured).map(|(rate, measured)| rate / measured);
            let [rate, measured] = [rate, measured].map(|rate| shown(rate.map(giga), 1));
            println!("{what:26} {:8.2} {rate:>6} {measured:>9} {:>6}", giga(bytes), shown(ratio, 2));
        }
        println!("\n                           GiB before    after    grown");
        for (what, _, before, after) in self.memory() {
            let grown = after.zip(before).map(|(after, before)| after - before);
            println!("{what:26} {:>11} {:>8} {:>8}", shown(before, 3), shown(after, 3), shown(grown, 3));
        }
        println!("{:26} {:>11} {:>8.3}", "resident, at most", "", status("VmHWM").unwrap());
        println!("\npeaks by the books               MiB");
        for peak in &self.peaks {
            println!("{:26}  {:8.1}", named(peak), peak.bytes as f64 / f64::from(1 << 20));
        }
        println!("{}", self.json(arguments, &limits, floor));
    }

    fn json(&self, arguments: &Arguments, limits: &[(&'static str, f64)], floor: f64) -> Value {
        let Needs { forward, backward, waits, .. } = self.needs;
        let rates: Map<String, Value> = self
            .rows()
            .into_iter()
            .map(|Row { key, bytes, rate, measured, .. }| {
                let figures = json!({
                    "gigabytes_a_step": giga(bytes), "gigabytes_a_second": rate.map(giga),
                    "measured": measured.map(giga), "ratio": rate.zip(measured).map(|(rate, most)| rate / most),
                });
                (key.to_owned(), figures)
            })
            .collect();
        let memory: Map<String, Value> = self
            .memory()
            .into_iter()
            .map(|(_, key, before, after)| (key.to_owned(), json!({ "before": before, "after": after })))
            .collect();
        let peaks: Map<String, Value> = self.peaks.iter().map(|peak| (named(peak), peak.bytes.into())).collect();
        let limits: Map<String, Value> = limits.iter().map(|(what, at)| ((*what).to_owned(), json!(at))).collect();
        json!({
            "model": arguments.model, "arguments": arguments.pairs, "parameters": self.parameters, "built": self.built,
            "step": self.step, "steps": self.steps, "forward": self.forward, "backward": self.backward,
            "decision": self.decision, "forward_alone": forward, "backward_alone": backward,
            "update_alone": self.update_alone, "floor": floor, "floor_reached": floor / self.step, "limits": limits,
            "update_waits_for_backward": waits, "rates": rates, "memory_gib": memory, "rss_gib": status("VmRSS").unwrap(),
            "peak_rss_gib": status("VmHWM").unwrap(), "peaks": peaks, "losses": self.losses,
        })
    }
}

fn giga(bytes: f64) -> f64 {
    bytes / 1e9
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
}

fn named(peak: &Peak) -> String {
    format!("{} {}", peak.place, peak.role.map_or_else(|| "in all".to_owned(), |role| role.to_string()))
}
