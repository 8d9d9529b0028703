//! Why there is no plan.

use core::fmt;

/// Why lifetimes cannot be planned.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// The alignment is no power of two.
    Alignment {
        /// What was asked for, in bytes.
        alignment: u64,
    },
    /// More buffers than a plan may have.
    TooManyBuffers {
        /// How many were given.
        buffers: usize,
        /// The most there may be.
        limit: usize,
    },
    /// A buffer is to end before it begins.
    UpperBeforeLower {
        /// Which buffer, from 0.
        buffer: usize,
        /// Its first time.
        lower: u64,
        /// The time it is to end at.
        upper: u64,
    },
    /// The sizes, rounded up to the alignment, add up to more than offsets are counted to.
    TooManyBytes {
        /// The buffer at which the limit is crossed, from 0.
        buffer: usize,
        /// Its bytes.
        size: u64,
        /// The sum of its bytes and those of the buffers before it, rounded up.
        total: u128,
        /// The most the sum may be.
        limit: u64,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alignment { alignment } => write!(f, "an alignment is a power of two, {alignment} is none"),
            Self::TooManyBuffers { buffers, limit } => {
                write!(f, "{buffers} buffers to plan, at most {limit} are planned at once")
            }
            Self::UpperBeforeLower { buffer, lower, upper } => {
                write!(f, "buffer {buffer} begins at {lower} and ends before that, at {upper}")
            }
            Self::TooManyBytes { buffer, size, total, limit } => {
                write!(
                    f,
                    "with the {size} bytes of buffer {buffer} the sizes add up to {total} bytes, at most {limit} are planned"
                )
            }
        }
    }
}

impl core::error::Error for PlanError {}
