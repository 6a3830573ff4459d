//! How a comparison is shown.

use crate::comparison::{Deviation, worst};
use crate::trajectory::Trajectory;
use stoker::Settings;
use stoker::config::Backend;

/// A table of one file.
pub(crate) fn table(trajectory: &Trajectory, settings: &Settings, deviations: &[Deviation]) -> String {
    let spec = &trajectory.spec;
    let overlap = if settings.schedule.overlap { "overlapped" } else { "one after the other" };
    let mut text = format!(
        "{}: {}, {}, {} steps of {} x {}\n{}, {}, {overlap}, {}\n",
        trajectory.file.display(),
        spec.model,
        spec.optimizer.name,
        spec.steps,
        spec.accumulation(),
        spec.batch,
        ranks(settings),
        settings.offload.name,
        backend(settings),
    );
    text += &format!("  {:<14}{:>11}{:>11}{:>9}       largest at\n", "", "deviation", "tolerance", "ratio");
    for deviation in deviations {
        let Deviation { what, deviation: value, tolerance, at } = deviation;
        let (ratio, verdict) = (ratio(deviation), verdict(deviation.is_within()));
        text += &format!("  {what:<14}{value:>11.1e}{tolerance:>11.1e}{ratio:>9}  {verdict:<4} {at}\n");
    }
    text + "\n"
}

/// One line of one file: its worst deviation.
pub(crate) fn line(trajectory: &Trajectory, settings: &Settings, deviations: &[Deviation]) -> String {
    let Some(worst) = worst(deviations) else { return String::new() };
    let Deviation { what, at, .. } = worst;
    let (name, ranks, ratio) = (trajectory.name(), ranks(settings), ratio(worst));
    let verdict = verdict(deviations.iter().all(Deviation::is_within));
    let (offload, backend) = (&settings.offload.name, backend(settings));
    format!("{name:<28} {ranks:<16}  {offload:<11}  {backend:<8}  {ratio:>7}  {verdict:<4}  {what} at {at}\n")
}

fn ranks(settings: &Settings) -> String {
    let ranks = settings.run.ranks;
    format!("stage {}, {ranks} rank{}", settings.zero.stage, if ranks == 1 { "" } else { "s" })
}

/// In seven characters.
fn ratio(deviation: &Deviation) -> String {
    let ratio = deviation.ratio();
    if ratio < 1000.0 { format!("{ratio:.3}") } else { format!("{ratio:.1e}") }
}

fn verdict(is_within: bool) -> &'static str {
    if is_within { "ok" } else { "OVER" }
}

fn backend(settings: &Settings) -> &'static str {
    match settings.device.backend {
        Backend::Flex => "flex",
        Backend::LibTorch => "libtorch",
        Backend::LibTorchCuda => "libtorch-cuda",
    }
}
