//! Why a request was not served, as a value the caller acts on.

use crate::storage::StorageError;
use alloc::boxed::Box;
use core::fmt;
use trunnion_runtime_core::error::OutOfMemory;
use trunnion_runtime_core::id::MemoryId;
use trunnion_runtime_core::timeline::Frontier;

/// Why a request was not served. The pools are unchanged, except that they may have merged and returned what was free.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// There will be memory when this is done: wait for it, then ask again. Never empty.
    Wait(Frontier),
    /// Nothing unfinished would free enough, and the driver has no more.
    Exhausted(Box<OutOfMemory>),
    /// Nothing unfinished would free enough, and the budget allows no more. The driver was not asked.
    OverBudget(Box<OutOfMemory>),
    /// More than one allocation may ever have.
    TooLarge {
        /// The bytes asked for.
        requested: u64,
        /// The most one allocation may have.
        limit: u64,
    },
    /// The driver refused for another reason than lack of memory.
    Refused(StorageError),
    /// The slot of this id holds memory already.
    InUse {
        /// The id of the memory that holds the slot.
        memory: MemoryId,
    },
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(_) => f.write_str("memory is free once unfinished work is done"),
            Self::Exhausted(numbers) => numbers.fmt(f),
            Self::OverBudget(numbers) => write!(f, "over the budget: {numbers}"),
            Self::TooLarge { requested, limit } => {
                write!(f, "{requested} bytes requested, one allocation has at most {limit}")
            }
            Self::Refused(error) => write!(f, "the driver refused: {error}"),
            Self::InUse { memory } => write!(f, "the slot of {memory} holds memory already"),
        }
    }
}

impl core::error::Error for Pressure {}
