//! What the training loop remembers of losses.

use std::collections::VecDeque;

/// Steps that the loss of a run is taken over.
const RECENT: usize = 50;

/// A mean of numbers; those that are not finite are counted and left out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mean {
    sum: f64,
    finite: usize,
}

impl Mean {
    pub(crate) fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.sum += value;
            self.finite += 1;
        }
    }

    /// NaN if there was no finite number.
    pub(crate) fn get(&self) -> f64 {
        self.sum / self.finite as f64
    }
}

impl FromIterator<f64> for Mean {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        let mut mean = Self::default();
        values.into_iter().for_each(|value| mean.add(value));
        mean
    }
}

/// Losses over all ranks, step by step.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    first: Option<f64>,
    recent: VecDeque<f64>,
    epoch: Mean,
    not_finite: usize,
}

impl Losses {
    /// The loss of the next step.
    pub(crate) fn add(&mut self, loss: f64) {
        self.first.get_or_insert(loss);
        self.epoch.add(loss);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(loss);
        self.not_finite += usize::from(!loss.is_finite());
    }

    /// Of the first step; NaN if there was none.
    pub(crate) fn first(&self) -> f64 {
        self.first.unwrap_or(f64::NAN)
    }

    /// The mean of the last steps.
    pub(crate) fn recent(&self) -> f64 {
        self.recent.iter().copied().collect::<Mean>().get()
    }

    /// Steps whose loss was no finite number.
    pub(crate) fn not_finite(&self) -> usize {
        self.not_finite
    }

    /// The mean of the epoch that ends here.
    pub(crate) fn end_epoch(&mut self) -> f64 {
        std::mem::take(&mut self.epoch).get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_that_are_not_finite_are_counted_and_left_out() {
        let mut losses = Losses::default();
        for loss in [4.0, f64::NAN, 2.0, f64::INFINITY] {
            losses.add(loss);
        }
        assert_eq!((losses.first(), losses.recent(), losses.not_finite()), (4.0, 3.0, 2));
        assert_eq!(losses.end_epoch(), 3.0);
        losses.add(f64::NAN);
        assert!(losses.end_epoch().is_nan());
    }

    #[test]
    fn only_the_last_steps_are_recent() {
        let mut losses = Losses::default();
        losses.add(1000.0);
        (0..RECENT).for_each(|_| losses.add(1.0));
        assert_eq!((losses.first(), losses.recent()), (1000.0, 1.0));
        assert!(Losses::default().first().is_nan());
    }
}
