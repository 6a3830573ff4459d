//! The number that a loss is multiplied by before backward (Micikevicius et al., 2018).

use crate::settings::{DynamicLossScale, LossScale};

/// The loss scale of a run, step by step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scaler {
    rule: LossScale,
    scale: f64,
    /// Steps taken, skipped ones among them.
    steps: u64,
    /// The last step that overflowed; `None` before the first.
    last_overflow: Option<u64>,
    /// Overflows that are still borne, the one that halves the scale included.
    patience: u32,
}

impl Scaler {
    pub(crate) fn new(rule: LossScale) -> Self {
        let (scale, patience) = match rule {
            LossScale::None => (1.0, 1),
            LossScale::Static(scale) => (scale, 1),
            LossScale::Dynamic(DynamicLossScale { initial_power, hysteresis, minimum, .. }) => {
                (f64::from(initial_power).exp2().max(minimum), hysteresis.max(1))
            }
        };
        Self { rule, scale, steps: 0, last_overflow: None, patience }
    }

    /// The scale of the step that is being made.
    pub(crate) fn scale(&self) -> f64 {
        self.scale
    }

    /// The step is over.
    pub(crate) fn step(&mut self, overflowed: bool) {
        if let LossScale::Dynamic(rule) = self.rule {
            if overflowed { self.overflow(&rule) } else { self.good(&rule) }
        }
        self.steps += 1;
    }

    fn overflow(&mut self, rule: &DynamicLossScale) {
        if self.patience <= 1 {
            self.scale = (self.scale / 2.0).max(rule.minimum);
        } else {
            self.patience -= 1;
        }
        self.last_overflow = Some(self.steps);
    }

    fn good(&mut self, rule: &DynamicLossScale) {
        if rule.consecutive_hysteresis {
            self.patience = rule.hysteresis.max(1);
        }
        // DeepSpeed counts the window from a step before the first.
        let since = self.last_overflow.map_or(self.steps + 1, |overflow| self.steps - overflow);
        if since.is_multiple_of(u64::from(rule.window.max(1))) {
            self.patience = rule.hysteresis.max(1);
            // Beyond this a scaled loss is infinite whatever it was.
            self.scale = (self.scale * 2.0).min(f64::from(f32::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scales(rule: DynamicLossScale, overflows: &[bool]) -> Vec<f64> {
        let mut scaler = Scaler::new(LossScale::Dynamic(rule));
        overflows
            .iter()
            .map(|&overflowed| {
                scaler.step(overflowed);
                scaler.scale()
            })
            .collect()
    }

    const RULE: DynamicLossScale =
        DynamicLossScale { initial_power: 4, window: 3, hysteresis: 2, consecutive_hysteresis: false, minimum: 2.0 };

    /// As `DynamicLossScaler` of DeepSpeed's `loss_scaler.py` does, which this follows.
    #[test]
    fn it_doubles_after_a_window_and_halves_when_patience_ends() {
        let (good, over) = (false, true);
        assert_eq!(scales(RULE, &[good, good, good, good, good, good]), [16.0, 16.0, 32.0, 32.0, 32.0, 64.0]);
        assert_eq!(scales(RULE, &[over, over, over, over, over]), [16.0, 8.0, 4.0, 2.0, 2.0]);
        // The first overflow is borne; the window begins anew with it.
        assert_eq!(scales(RULE, &[over, good, good, good, over, over]), [16.0, 16.0, 16.0, 32.0, 32.0, 16.0]);
        // Without consecutive hysteresis a good step does not restore patience, with it, it does.
        assert_eq!(scales(RULE, &[over, good, over]), [16.0, 16.0, 8.0]);
        let forgiving = DynamicLossScale { consecutive_hysteresis: true, ..RULE };
        assert_eq!(scales(forgiving, &[over, good, over, over]), [16.0, 16.0, 16.0, 8.0]);
    }

    #[test]
    fn other_rules_stay() {
        for (rule, scale) in [(LossScale::None, 1.0), (LossScale::Static(128.0), 128.0)] {
            let mut scaler = Scaler::new(rule);
            [true, false, true].into_iter().for_each(|overflowed| scaler.step(overflowed));
            assert_eq!(scaler.scale(), scale);
        }
    }
}
