//! What a file says of its run: the JSON of its metadata.

use crate::error::Problem;
use serde::Deserialize;
use std::collections::BTreeMap;
use stoker::core::OptionValue;
use stoker::core::registry::{self, Given};

/// `spec`. A field that is not here is refused, since it could mean another run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// Name of the network.
    pub(crate) model: String,
    /// Widths of `seednet` are divided by it.
    pub(crate) width_divisor: Option<usize>,
    /// Records of a micro-batch, over all ranks.
    pub(crate) batch: usize,
    accumulation: Option<usize>,
    /// Updates.
    pub(crate) steps: usize,
    /// How weights are updated.
    pub(crate) optimizer: OptimizerSpec,
    /// Global norm that longer gradients are scaled down to.
    pub(crate) gradient_clipping: Option<f64>,
    warmup_steps: Option<u64>,
    /// How far another implementation may land.
    pub(crate) tolerance: Tolerance,
}

/// An optimizer and its hyper-parameters, by PyTorch's names.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct OptimizerSpec {
    /// Name of the plugin.
    #[serde(rename = "type")]
    pub(crate) name: String,
    lr: f64,
    /// Which of these there are, the plugin knows.
    #[serde(flatten)]
    options: BTreeMap<String, Option<OptionValue>>,
}

/// Largest deviations that are tolerated.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tolerance {
    /// Of a step's loss, absolute.
    pub(crate) loss: f64,
    /// Of a step's gradient norm, relative.
    pub(crate) grad_norm: f64,
    /// Of a tensor's way from its first to its last value, relative.
    pub(crate) displacement: f64,
}

impl Spec {
    /// Reads and checks it, but for the network.
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        let spec: Self = serde_json::from_str(text).map_err(Problem::Spec)?;
        spec.check()?;
        registry::optimizer(&spec.optimizer.name, &spec.optimizer.options())
            .map_err(|error| Problem::Optimizer(Box::new(error)))?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), Problem> {
        for (field, value) in [("batch", self.batch), ("accumulation", self.accumulation()), ("steps", self.steps)] {
            if value == 0 {
                return Err(Problem::Value { field, found: value.to_string(), wanted: "a whole number from 1 on" });
            }
        }
        if let Some(norm) = self.gradient_clipping.filter(|norm| *norm <= 0.0) {
            let wanted = "a number above 0, or leave it out to clip nothing";
            return Err(Problem::Value { field: "gradient_clipping", found: norm.to_string(), wanted });
        }
        let Tolerance { loss, grad_norm, displacement } = self.tolerance;
        for (field, value) in [
            ("optimizer.lr", self.optimizer.lr),
            ("tolerance.loss", loss),
            ("tolerance.grad_norm", grad_norm),
            ("tolerance.displacement", displacement),
        ] {
            if value < 0.0 {
                return Err(Problem::Value { field, found: value.to_string(), wanted: "a number from 0 on" });
            }
        }
        Ok(())
    }

    /// Micro-batches of a step.
    pub(crate) fn accumulation(&self) -> usize {
        self.accumulation.unwrap_or(1)
    }

    /// Learning rate of step `step`, from 0.
    pub(crate) fn learning_rate(&self, step: usize) -> f64 {
        let warm = match self.warmup_steps {
            None | Some(0) => 1.0,
            Some(steps) => ((step + 1) as f64 / steps as f64).min(1.0),
        };
        self.optimizer.lr * warm
    }
}

impl OptimizerSpec {
    /// What the plugin is built with. A hyper-parameter that is null is one that is not given.
    pub(crate) fn options(&self) -> Given {
        self.options.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(optimizer: &str, more: &str) -> Result<Spec, Problem> {
        let tolerance = r#""tolerance": {"loss": 1e-5, "grad_norm": 3e-5, "displacement": 2e-4}"#;
        Spec::parse(&format!(
            r#"{{"model": "lenet", "batch": 12, "steps": 6, "optimizer": {optimizer}, {tolerance}{more}}}"#
        ))
    }

    fn chain(problem: Problem) -> String {
        stoker::core::error::chain(&problem)
    }

    #[test]
    fn what_is_left_out_or_null_has_its_default() {
        let adamw = r#"{"type": "adamw", "lr": 1, "betas": [0.5, 0.75], "eps": null}"#;
        for more in ["", r#", "gradient_clipping": null, "accumulation": null, "warmup_steps": null"#] {
            let spec = spec(adamw, more).unwrap();
            assert_eq!((spec.accumulation(), spec.gradient_clipping), (1, None));
            assert_eq!([0, 1, 9].map(|step| spec.learning_rate(step)), [1.0; 3]);
            let betas = OptionValue::List(vec![OptionValue::Float(0.5), OptionValue::Float(0.75)]);
            assert_eq!(spec.optimizer.options(), Given::from([("betas".to_owned(), betas)]));
        }
    }

    #[test]
    fn the_learning_rate_warms_up_from_its_first_part() {
        let spec = spec(r#"{"type": "adamw", "lr": 0.5}"#, r#", "warmup_steps": 4, "accumulation": 3"#).unwrap();
        assert_eq!([0, 1, 2, 3, 4, 9].map(|step| spec.learning_rate(step)), [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]);
        assert_eq!(spec.accumulation(), 3);
    }

    #[test]
    fn what_could_mean_another_run_is_refused() {
        let adamw = r#"{"type": "adamw", "lr": 0.5}"#;
        for (optimizer, more, wanted) in [
            (
                adamw,
                r#", "dropout": 0.1"#,
                "unknown field `dropout`, expected one of `model`, `width_divisor`, `batch`",
            ),
            (adamw, r#", "gradient_clipping": 0"#, "`gradient_clipping` of `spec` is 0; allowed: a number above 0"),
            (adamw, r#", "accumulation": 0"#, "`accumulation` of `spec` is 0; allowed: a whole number from 1 on"),
            (r#"{"type": "adamw"}"#, "", "missing field `lr`"),
            (r#"{"type": "adamw", "lr": -1}"#, "", "`optimizer.lr` of `spec` is -1; allowed: a number from 0 on"),
            (r#"{"type": "adamx", "lr": 1}"#, "", "no optimizer is called `adamx` (did you mean `adam"),
            (
                r#"{"type": "adamw", "lr": 1, "epsilon": 1e-8}"#,
                "",
                "`optimizer` of `spec` cannot be had: optimizer `adamw` has no option `epsilon`",
            ),
            (
                r#"{"type": "adamw", "lr": 1, "betas": 0.9}"#,
                "",
                "option `betas` of optimizer `adamw` is 0.9; allowed: two",
            ),
        ] {
            let problem = chain(spec(optimizer, more).unwrap_err());
            assert!(problem.contains(wanted), "{problem}");
        }
    }
}
