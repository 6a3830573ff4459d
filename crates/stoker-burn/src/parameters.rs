//! What is said of parameters by their names.

use crate::{Error, Result};
use stoker_core::ParameterSpec;
use stoker_engine::ParameterRule;

/// Parameters whose paths match a pattern, and what is special about them.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterGroup {
    /// Its name, for messages.
    pub name: String,
    /// Patterns of paths: `*` stands for any text, dots included, `?` for one character: `*.bias`, `encoder.*`.
    pub patterns: Vec<String>,
    /// Factor of the step's learning rate.
    pub learning_rate_scale: f64,
    /// Weight decay, instead of the optimizer's.
    pub weight_decay: Option<f64>,
    /// Whether they are not trained at all.
    pub frozen: bool,
}

/// What is said of all parameters of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterRules {
    /// Groups; a parameter belongs to at most one.
    pub groups: Vec<ParameterGroup>,
    /// Whether parameters of one dimension, which are biases and the scales and shifts of norms, decay as others do.
    pub decay_vectors: bool,
}

impl Default for ParameterRules {
    fn default() -> Self {
        Self { groups: Vec::new(), decay_vectors: true }
    }
}

/// Whose running statistics (of batch norms) count when a model is evaluated or saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunningStatistics {
    /// Each rank's own; the first rank's are saved.
    Local,
    /// The first rank's.
    #[default]
    BroadcastFromFirst,
}

/// What the rules say of one parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Said {
    pub(crate) rule: ParameterRule,
    pub(crate) frozen: bool,
}

/// Rules whose patterns were read.
pub(crate) struct Resolver<'a> {
    groups: Vec<(&'a ParameterGroup, Vec<glob::Pattern>)>,
    /// Which patterns of each group have fitted a parameter.
    used: Vec<Vec<bool>>,
    decay_vectors: bool,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(rules: &'a ParameterRules) -> Result<Self> {
        let read = |group: &'a ParameterGroup| {
            let patterns = group.patterns.iter().map(|pattern| {
                glob::Pattern::new(pattern).map_err(|error| Error::Pattern {
                    group: group.name.clone(),
                    pattern: pattern.clone(),
                    problem: error.msg.to_owned(),
                })
            });
            Ok((group, patterns.collect::<Result<Vec<_>>>()?))
        };
        let groups = rules.groups.iter().map(read).collect::<Result<Vec<_>>>()?;
        let used = groups.iter().map(|(_, patterns)| vec![false; patterns.len()]).collect();
        Ok(Self { used, groups, decay_vectors: rules.decay_vectors })
    }

    /// # Errors
    /// [`Error::TwoGroups`].
    pub(crate) fn said_of(&mut self, parameter: &ParameterSpec) -> Result<Said> {
        let mut fitting = None;
        for ((group, patterns), used) in self.groups.iter().zip(&mut self.used) {
            let mut fits = false;
            for (pattern, used) in patterns.iter().zip(used) {
                let matches = pattern.matches(&parameter.path);
                *used |= matches;
                fits |= matches;
            }
            if !fits {
                continue;
            }
            if let Some(other) = fitting.replace(*group) {
                return Err(Error::TwoGroups {
                    path: parameter.path.clone(),
                    one: other.name.clone(),
                    other: group.name.clone(),
                });
            }
        }
        let mut rule = ParameterRule::default();
        if !self.decay_vectors && parameter.shape.len() <= 1 {
            rule.weight_decay = Some(0.0);
        }
        let Some(group) = fitting else { return Ok(Said { rule, frozen: false }) };
        rule.learning_rate_scale = group.learning_rate_scale;
        rule.weight_decay = group.weight_decay.or(rule.weight_decay);
        Ok(Said { rule, frozen: group.frozen })
    }

    /// A group that fits no parameter is a mistake; a pattern that does not may be one for other models, and is told.
    ///
    /// # Errors
    /// [`Error::EmptyGroup`].
    pub(crate) fn all_used<'p>(&self, paths: impl Iterator<Item = &'p str>) -> Result<()> {
        for (group, pattern) in self.unused_patterns() {
            tracing::warn!(group, pattern, "a pattern fits no parameter of this model; look for a typing error");
        }
        let unused = self.groups.iter().zip(&self.used).find(|(_, used)| !used.contains(&true));
        let Some(((group, _), _)) = unused else { return Ok(()) };
        let paths: Vec<_> = paths.collect();
        // A pattern stands for a part of a path: compare it with as much of each.
        let nearest = group.patterns.iter().find_map(|pattern| {
            let literal = pattern.replace(['*', '?'], "");
            let beginning = |path: &&str| path.chars().take(literal.chars().count()).collect::<String>();
            let beginnings: Vec<_> = paths.iter().map(beginning).collect();
            let nearest = stoker_core::error::nearest(&literal, beginnings.iter().map(String::as_str))?;
            paths.iter().find(|path| path.starts_with(&nearest)).copied()
        });
        Err(Error::EmptyGroup {
            group: group.name.clone(),
            patterns: group.patterns.clone(),
            example: nearest.or_else(|| paths.first().copied()).unwrap_or_default().to_owned(),
        })
    }

    /// Group and pattern of those that fitted nothing.
    fn unused_patterns(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.groups.iter().zip(&self.used).flat_map(|((group, _), used)| {
            let patterns = group.patterns.iter().zip(used);
            patterns.filter(|(_, used)| !**used).map(|(pattern, _)| (group.name.as_str(), pattern.as_str()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, pattern: &str, weight_decay: Option<f64>) -> ParameterGroup {
        ParameterGroup {
            name: name.to_owned(),
            patterns: vec![pattern.to_owned()],
            learning_rate_scale: 0.5,
            weight_decay,
            frozen: name == "still",
        }
    }

    fn spec(path: &str, dimensions: usize) -> ParameterSpec {
        ParameterSpec { path: path.to_owned(), shape: vec![2; dimensions] }
    }

    #[test]
    fn a_parameter_gets_what_its_group_says() {
        let rules = ParameterRules {
            groups: vec![group("still", "encoder.*", None), group("head", "head.weigh?", Some(0.1))],
            decay_vectors: false,
        };
        let mut resolver = Resolver::new(&rules).unwrap();
        let mut said = |path: &str, dimensions| {
            let Said { rule, frozen } = resolver.said_of(&spec(path, dimensions)).unwrap();
            (rule.learning_rate_scale, rule.weight_decay, frozen)
        };
        assert_eq!(said("encoder.layers.0.weight", 2), (0.5, None, true));
        assert_eq!(said("head.weight", 2), (0.5, Some(0.1), false));
        assert_eq!(said("head.bias", 1), (1.0, Some(0.0), false));
        assert_eq!(said("other.weight", 2), (1.0, None, false));
        assert!(resolver.all_used(std::iter::empty()).is_ok());
    }

    #[test]
    fn a_pattern_that_fits_nothing_is_told() {
        let mut two = group("a", "*.bias", None);
        two.patterns.push("haed.*".to_owned());
        let rules = ParameterRules { groups: vec![two], decay_vectors: true };
        let mut resolver = Resolver::new(&rules).unwrap();
        resolver.said_of(&spec("head.bias", 1)).unwrap();
        assert_eq!(resolver.unused_patterns().collect::<Vec<_>>(), [("a", "haed.*")]);
        assert!(resolver.all_used(std::iter::empty()).is_ok());
    }

    #[test]
    fn mistakes_are_named() {
        let rules = |groups| ParameterRules { groups, decay_vectors: true };
        let twice = rules(vec![group("a", "*.bias", None), group("b", "head.*", None)]);
        let error = Resolver::new(&twice).unwrap().said_of(&spec("head.bias", 1)).unwrap_err().to_string();
        assert!(error.starts_with("parameter `head.bias` is in groups `a` and `b`"), "{error}");
        let broken = rules(vec![group("a", "[", None)]);
        let error = Resolver::new(&broken).map(drop).unwrap_err().to_string();
        assert!(error.starts_with("group `a`: pattern `[`"), "{error}");
        let unused = rules(vec![group("a", "haed.*", None)]);
        let error = Resolver::new(&unused).unwrap().all_used(["conv.weight", "head.weight"].into_iter());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("group `a` (haed.*) fits no parameter") && error.contains("`head.weight`"), "{error}");
    }
}
