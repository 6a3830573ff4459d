//! Keys whose value is one of a few words.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An enum, its words in configurations, and the list of them for the schema: written once, so that they cannot differ.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$meaning:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$meaning])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            pub(crate) const WORDS: &'static [&'static str] = &[$($word),+];

            /// Its word in a configuration.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// `model.name`
    ModelName {
        /// LeNet-5.
        LeNet = "lenet",
        /// Four convolutions and four linear layers, 561 million parameters at full width.
        SeedNet = "seednet",
        /// LeNet-5 with a layer of experts, of which a router chooses for every picture.
        MoeLeNet = "moe-lenet",
    }
}

words! {
    /// `model.running_statistics`
    RunningStatistics {
        /// The first rank's count.
        BroadcastFromFirst = "broadcast-from-0",
        /// Each rank has its own.
        Local = "local",
    }
}

words! {
    /// `data.source`
    DataSource {
        /// CIFAR-10 if it is installed, else built-in.
        Auto = "auto",
        /// CIFAR-10.
        Cifar10 = "cifar10",
        /// Images made by the program.
        Builtin = "builtin",
    }
}

words! {
    /// `learning_rate.schedule`
    LearningRateSchedule {
        /// Always the same.
        Constant = "constant",
        /// Decays along a line over the run.
        Linear = "linear",
        /// Decays along half a cosine over the run.
        Cosine = "cosine",
        /// Is multiplied by the same factor at every step.
        Exponential = "exponential",
        /// Is multiplied by the same factor every so many steps.
        Step = "step",
        /// Rises and falls once over the run.
        OneCycle = "one-cycle",
    }
}

impl LearningRateSchedule {
    /// Whether it depends on the number of steps of the run.
    pub const fn needs_steps(self) -> bool {
        matches!(self, Self::Linear | Self::Cosine | Self::OneCycle)
    }
}

words! {
    /// `learning_rate.warmup`
    Warmup {
        /// In equal parts.
        Linear = "linear",
        /// Fast at first, then slower.
        Logarithmic = "logarithmic",
    }
}

words! {
    /// `precision.compute`
    Compute {
        /// 32 bits.
        F32 = "f32",
        /// 16 bits with the range of f32.
        Bf16 = "bf16",
        /// 16 bits with a smaller range.
        F16 = "f16",
    }
}

words! {
    /// `precision.gradients`
    Gradients {
        /// 32 bits.
        F32 = "f32",
        /// What forward and backward compute in.
        Compute = "compute",
    }
}

words! {
    /// `precision.loss_scale`
    LossScale {
        /// Dynamic where f16 computes, none elsewhere.
        Auto = "auto",
        /// None.
        None = "none",
        /// Always the same.
        Static = "static",
        /// Follows the overflows.
        Dynamic = "dynamic",
    }
}

words! {
    /// `device.backend`
    Backend {
        /// Burn's CPU backend.
        Flex = "flex",
        /// LibTorch on the CPU.
        LibTorch = "libtorch",
        /// LibTorch on CUDA.
        LibTorchCuda = "libtorch-cuda",
    }
}

words! {
    /// `schedule.checkpointing`
    Checkpointing {
        /// Activations are kept.
        None = "none",
        /// Cheap activations are computed again.
        Balanced = "balanced",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_what_is_written() {
        let json = |value: &dyn Fn() -> serde_json::Result<String>| value().unwrap();
        for schedule in [LearningRateSchedule::OneCycle, LearningRateSchedule::Step] {
            assert_eq!(json(&|| serde_json::to_string(&schedule)), format!("\"{schedule}\""));
        }
        assert_eq!(serde_json::from_str::<ModelName>("\"moe-lenet\"").unwrap(), ModelName::MoeLeNet);
        assert_eq!(LossScale::WORDS, ["auto", "none", "static", "dynamic"]);
    }
}
