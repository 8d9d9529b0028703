//! What an executor answers when it cannot.

use alloc::string::String;
use core::time::Duration;

/// Why an executor did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// `Config::ring_bytes` is above the limit.
    #[error("a ring of {asked} bytes is above the limit of {limit}")]
    RingTooLarge {
        /// What was asked for, in bytes.
        asked: usize,
        /// [`Config::MAX_RING_BYTES`](super::Config::MAX_RING_BYTES).
        limit: usize,
    },
    /// The host has no memory for the ring.
    #[error("no memory for a ring of {bytes} bytes")]
    OutOfMemory {
        /// The ring's size in bytes.
        bytes: usize,
    },
    /// `Execution::Runner` where there are no threads.
    #[error("Execution::Runner needs feature `std`; use Execution::Inline")]
    NoThreads,
    /// The operating system refused the runner thread.
    #[error("the runner thread `{name}` did not start: {reason}")]
    Spawn {
        /// The thread's name.
        name: String,
        /// What the system said.
        reason: String,
    },
}

/// Why an entry was not taken. It has been dropped without running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The ring stayed full, or reserved by another thread, for as long as the caller was willing to wait.
    #[error("the ring is full, or the device is reserved by another thread")]
    Busy,
    /// The executor was shut down.
    #[error("the executor was shut down")]
    Closed,
}

/// Why a blocking call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The deadline passed. A call that had not begun never runs; one that had begun ends without being heard.
    #[error("no answer after {waited:?}")]
    Timeout {
        /// How long the deadline had been running.
        waited: Duration,
    },
    /// The call panicked (std only).
    #[error("the call panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
    /// The executor was shut down before the call ran.
    #[error("the executor was shut down")]
    Closed,
    /// The ring stayed full, or reserved by another thread, until the deadline. Nothing ran.
    #[error("the ring is full, or the device is reserved by another thread")]
    Busy,
    /// The calling thread is running an entry of this executor, and would wait for itself. Nothing ran.
    #[error("a blocking call from inside an entry of the same executor")]
    Reentrant,
}

impl From<SubmitError> for CallError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Busy => Self::Busy,
            SubmitError::Closed => Self::Closed,
        }
    }
}

/// The device was not to be had within the deadline. Nothing changed; trying again is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device is reserved by another thread, or busy with what was queued before")]
pub struct Busy;
