//! The order in which units are wanted, recorded in one step and expected in the next.

/// [Note: Order] A training loop wants the same units in the same order in every step. What the last step did is the
/// forecast for this one: it decides what to fetch ahead and whose slab is wanted last. A wrong forecast costs time,
/// never correctness; and since ranks make the same calls, their forecasts agree, and so do their collectives.
#[derive(Debug, Default)]
pub(crate) struct Order {
    forecast: Vec<usize>,
    cursor: usize,
    recorded: Vec<usize>,
}

impl Order {
    /// Notes that `unit` is wanted now.
    pub(crate) fn record(&mut self, unit: usize) {
        if self.recorded.last() == Some(&unit) {
            return;
        }
        self.recorded.push(unit);
        if let Some(ahead) = self.forecast.iter().skip(self.cursor).position(|&u| u == unit) {
            self.cursor += ahead + 1;
        }
    }

    /// The step is over: what it did is the forecast.
    pub(crate) fn next_step(&mut self) {
        self.forecast = std::mem::take(&mut self.recorded);
        self.cursor = 0;
    }

    /// Forgets an unfinished step (a forward whose backward failed, or was never wanted).
    pub(crate) fn restart(&mut self) {
        self.recorded.clear();
        self.cursor = 0;
    }

    /// Units expected from here on: the rest of this step.
    pub(crate) fn upcoming(&self) -> impl Iterator<Item = usize> + '_ {
        self.forecast.iter().skip(self.cursor).copied()
    }

    /// How far away the next use of `unit` is, counting into the next step; `None` if it is not expected.
    pub(crate) fn distance(&self, unit: usize) -> Option<usize> {
        let (done, ahead) = self.forecast.split_at(self.cursor.min(self.forecast.len()));
        ahead.iter().chain(done).position(|&u| u == unit)
    }

    /// How many uses came before the first one of `unit` in this step; `None` if it was not used.
    pub(crate) fn first_use(&self, unit: usize) -> Option<usize> {
        self.recorded.iter().position(|&u| u == unit)
    }

    /// Units in the order of their first use in this step.
    pub(crate) fn first_uses(&self) -> Vec<usize> {
        let mut units = Vec::new();
        for &unit in &self.recorded {
            if !units.contains(&unit) {
                units.push(unit);
            }
        }
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(steps: &[&[usize]]) -> Order {
        let mut order = Order::default();
        for (i, step) in steps.iter().enumerate() {
            step.iter().for_each(|&unit| order.record(unit));
            if i + 1 < steps.len() {
                order.next_step();
            }
        }
        order
    }

    #[test]
    fn the_last_step_is_the_forecast() {
        let order = after(&[&[0, 1, 2, 2, 1, 0], &[0, 1]]);
        assert_eq!(order.upcoming().collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!([order.distance(2), order.distance(1), order.distance(0)], [Some(0), Some(1), Some(2)]);
        assert_eq!(order.first_uses(), [0, 1]);
        assert_eq!([order.first_use(1), order.first_use(2)], [Some(1), None]);
    }

    #[test]
    fn distance_wraps_into_the_next_step() {
        let order = after(&[&[0, 1, 0], &[0, 1, 0]]);
        assert_eq!(order.upcoming().count(), 0);
        assert_eq!(order.distance(1), Some(1));
        assert_eq!(order.distance(7), None);
    }

    #[test]
    fn a_surprise_moves_nothing() {
        let order = after(&[&[0, 1, 2], &[0, 5]]);
        assert_eq!(order.upcoming().collect::<Vec<_>>(), [1, 2]);
    }
}
