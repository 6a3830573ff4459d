//! What is said of parameters by their names.

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
