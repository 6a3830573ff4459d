//! The way up to a schedule's first rate.

use stoker_config::Warmup;

/// Factors of a schedule's first rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct WarmUp {
    kind: Warmup,
    steps: usize,
}

impl WarmUp {
    pub(super) fn new(kind: Warmup, steps: usize) -> Self {
        let steps = match kind {
            // The logarithm of 1 cannot be divided by; DeepSpeed takes 2 for 1, too.
            Warmup::Logarithmic if steps == 1 => 2,
            _ => steps,
        };
        Self { kind, steps }
    }

    /// Steps that it takes.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// The factor of a step, from 0; 1 after the warm-up.
    pub(super) fn factor(&self, step: usize) -> f64 {
        if step >= self.steps {
            return 1.0;
        }
        let (step, steps) = (step as f64 + 1.0, self.steps as f64);
        match self.kind {
            Warmup::Linear => step / steps,
            Warmup::Logarithmic => step.ln() / steps.ln(),
        }
    }
}
