//! How far a run landed from its trajectory.

use crate::spec::Tolerance;
use crate::training::{Seen, Trained};
use crate::trajectory::{Trajectory, Way};

/// A tensor that hardly moves is measured by how far the whole model moved: this part of it.
const LEAST_WAY: f64 = 0.01;

/// The largest deviation of a kind.
#[derive(Debug, Clone)]
pub(crate) struct Deviation {
    /// Of which kind.
    pub(crate) what: &'static str,
    /// How large.
    pub(crate) deviation: f64,
    /// How large it may be.
    pub(crate) tolerance: f64,
    /// The step, or the tensor.
    pub(crate) at: String,
}

impl Deviation {
    /// Whether it is tolerated. What is not a number is not.
    pub(crate) fn is_within(&self) -> bool {
        self.deviation <= self.tolerance
    }

    /// The deviation in tolerances.
    pub(crate) fn ratio(&self) -> f64 {
        if self.deviation == 0.0 { 0.0 } else { self.deviation / self.tolerance }
    }

    fn largest(what: &'static str, tolerance: f64, deviations: impl Iterator<Item = (String, f64)>) -> Self {
        let largest = deviations.max_by(|(_, a), (_, b)| worth(*a).total_cmp(&worth(*b)));
        // Nothing compared is nothing shown to be right.
        let (at, deviation) = largest.unwrap_or_else(|| ("nothing".to_owned(), f64::NAN));
        Self { what, deviation, tolerance, at }
    }
}

/// The worst of several, in tolerances.
pub(crate) fn worst(deviations: &[Deviation]) -> Option<&Deviation> {
    deviations.iter().max_by(|a, b| worth(a.ratio()).total_cmp(&worth(b.ratio())))
}

/// What is not a number is worse than any.
fn worth(deviation: f64) -> f64 {
    if deviation.is_nan() { f64::INFINITY } else { deviation }
}

/// Loss, gradient norm and displacement.
pub(crate) fn compare(trajectory: &Trajectory, trained: &Trained) -> [Deviation; 3] {
    let Tolerance { loss, grad_norm, displacement } = trajectory.spec.tolerance;
    [
        Deviation::largest("loss", loss, losses(&trajectory.losses, &trained.ranks)),
        Deviation::largest("gradient norm", grad_norm, norms(&trajectory.norms, &trained.ranks)),
        Deviation::largest("displacement", displacement, displacements(&trajectory.ways, &trained.last)),
    ]
}

/// Absolute, of the mean over ranks, which all have as many records.
fn losses(theirs: &[f32], ranks: &[Vec<Seen>]) -> impl Iterator<Item = (String, f64)> {
    theirs.iter().enumerate().map(|(step, theirs)| {
        let ours = ranks.iter().map(|steps| steps.get(step).map_or(f64::NAN, |seen| seen.loss));
        let ours = ours.sum::<f64>() / ranks.len() as f64;
        (format!("step {step}"), (ours - f64::from(*theirs)).abs())
    })
}

/// Relative, of the rank that is farthest off.
fn norms(theirs: &[f32], ranks: &[Vec<Seen>]) -> impl Iterator<Item = (String, f64)> {
    ranks.iter().flat_map(move |steps| {
        theirs.iter().enumerate().map(move |(step, theirs)| {
            let (ours, theirs) = (steps.get(step).map_or(f64::NAN, |seen| seen.norm), f64::from(*theirs));
            (format!("step {step}"), part((ours - theirs).abs(), theirs.abs()))
        })
    })
}

/// Relative to the tensor's own way, or to a part of the model's if that is longer.
fn displacements(ways: &[Way], last: &[Vec<f32>]) -> impl Iterator<Item = (String, f64)> {
    let lengths: Vec<f64> = ways.iter().map(|way| distance(&way.last, &way.first)).collect();
    let model = lengths.iter().map(|length| length * length).sum::<f64>().sqrt();
    ways.iter().zip(last).zip(lengths).map(move |((way, ours), length)| {
        (way.tensor.torch_name(), part(distance(ours, &way.last), length.max(LEAST_WAY * model)))
    })
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    let square = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).powi(2);
    a.iter().zip(b).map(square).sum::<f64>().sqrt()
}

/// No deviation is no part, even of nothing.
fn part(deviation: f64, of: f64) -> f64 {
    if deviation == 0.0 { 0.0 } else { deviation / of }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Named;

    fn way(path: &str, first: &[f32], last: &[f32]) -> Way {
        let tensor = Named { path: path.to_owned(), shape: vec![first.len()] };
        Way { tensor, first: first.to_vec(), last: last.to_vec() }
    }

    fn values(deviations: impl Iterator<Item = (String, f64)>) -> Vec<f64> {
        deviations.map(|(_, value)| value).collect()
    }

    #[test]
    fn losses_are_the_mean_over_ranks_and_norms_those_of_every_rank() {
        let seen = |loss, norm| Seen { loss, norm };
        let ranks = [vec![seen(1.0, 4.0), seen(2.0, 2.0)], vec![seen(2.0, 4.0), seen(2.5, 2.5)]];
        assert_eq!(values(losses(&[1.25, 2.25], &ranks)), [0.25, 0.0]);
        assert_eq!(values(norms(&[4.0, 2.0], &ranks)), [0.0, 0.0, 0.0, 0.25]);
        // A step that was not made.
        assert!(values(losses(&[1.5, 2.25, 2.0], &ranks))[2].is_nan());
    }

    #[test]
    fn a_tensor_that_hardly_moved_is_measured_by_the_model() {
        let ways = [way("a", &[0.0, 0.0], &[3.0, 4.0]), way("b", &[1.0], &[1.0])];
        // m is 5: `a` is off by 0.5 of 5, `b` by 0.5 of 0.05.
        let found = values(displacements(&ways, &[vec![3.0, 4.5], vec![0.5]]));
        assert!((found[0] - 0.1).abs() < 1e-12 && (found[1] - 10.0).abs() < 1e-12, "{found:?}");
        // Where nothing moved there is nothing to be off by, but by anything is too far.
        let still = [way("a", &[1.0], &[1.0])];
        assert_eq!(values(displacements(&still, &[vec![1.0]])), [0.0]);
        assert_eq!(values(displacements(&still, &[vec![1.5]])), [f64::INFINITY]);
    }

    #[test]
    fn what_is_not_a_number_is_the_largest_and_over() {
        for odd in [f64::NAN, -f64::NAN, f64::INFINITY] {
            let deviations = [("a", 1.0), ("b", odd), ("c", 2.0)].map(|(at, value)| (at.to_owned(), value));
            let largest = Deviation::largest("loss", 3.0, deviations.into_iter());
            assert_eq!(largest.at, "b");
            assert!(!largest.is_within());
            let fine = Deviation { deviation: 1.0, ..largest.clone() };
            assert!(fine.is_within() && (fine.ratio() - 1.0 / 3.0).abs() < 1e-12);
            assert_eq!(worst(&[fine.clone(), largest, fine]).map(|worst| worst.at.as_str()), Some("b"));
        }
        assert!(!Deviation::largest("loss", 3.0, std::iter::empty()).is_within());
    }
}
