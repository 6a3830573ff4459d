//! Which instructions a kernel may use: decided at run time.
//!
//! One source is compiled for each level, and the compiler vectorises it; `pulp` switches the instructions on for a call
//! and knows what the machine has. All levels give the same bits, since multiplications and additions are never fused.

use pulp::NullaryFnOnce;
use std::fmt;

/// A set of instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every machine of the architecture has: SSE2 on x86-64, NEON on AArch64.
    Portable,
    /// AVX2 with its companions (x86-64-v3).
    Avx2,
    /// AVX-512 F, BW, CD, DQ and VL (x86-64-v4).
    Avx512,
}

impl Level {
    /// All levels, the lowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => pulp::x86::V3::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => pulp::x86::V4::is_available(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// The highest that this machine has. Asking costs next to nothing.
    ///
    /// ```
    /// assert!(stoker_kernels::Level::best().is_available());
    /// ```
    pub fn best() -> Self {
        let available = |level: &&Self| level.is_available();
        Self::ALL.iter().rev().find(available).copied().unwrap_or(Self::Portable)
    }

    /// Runs `work` with its instructions; on a machine that lacks them, without.
    #[inline(always)]
    pub(crate) fn run<W: NullaryFnOnce>(self, work: W) -> W::Output {
        #[cfg(target_arch = "x86_64")]
        {
            if self == Self::Avx512
                && let Some(v4) = pulp::x86::V4::try_new()
            {
                return v4.vectorize(work);
            }
            if self >= Self::Avx2
                && let Some(v3) = pulp::x86::V3::try_new()
            {
                return v3.vectorize(work);
            }
        }
        work.call()
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable if cfg!(target_arch = "aarch64") => "neon",
            Self::Portable if cfg!(target_arch = "x86_64") => "sse2",
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        })
    }
}
