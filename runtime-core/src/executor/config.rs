//! What an executor is told at its start.

use alloc::string::String;
use core::time::Duration;

/// Who runs entries when nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// A thread of the executor's own. Needs feature `std` and a host with threads.
    Runner,
    /// Whoever submits, at once, if the lock is free; otherwise whoever has it. The same code without a thread.
    Inline,
}

/// How an [`Executor`](super::Executor) is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who runs entries when nobody waits.
    pub execution: Execution,
    /// The ring's size in bytes: rounded up to a power of two, at least [`Config::MIN_RING_BYTES`]. An entry of up to
    /// a quarter of it lies in the ring; a larger one is boxed. Memory of it that was never used is never touched.
    pub ring_bytes: usize,
    /// How long the runner looks for work before it sleeps; a blocking caller looks for its answer twice as long.
    pub spin: Duration,
    /// How long `submit` waits for room in a full ring, or for another thread's reservation to end, before it answers `Busy`.
    pub full_timeout: Duration,
    /// The runner thread's name.
    pub name: String,
}

impl Config {
    /// The smallest ring: 4 KiB.
    pub const MIN_RING_BYTES: usize = 4 << 10;
    /// The largest ring: 1 GiB (256 MiB on 32-bit targets).
    pub const MAX_RING_BYTES: usize = if usize::BITS >= 64 { 1 << 30 } else { 256 << 20 };
}

impl Default for Config {
    /// With `std`: a runner, 256 KiB. Without: inline, 16 KiB. 50 µs of spinning, 10 s of waiting for room.
    fn default() -> Self {
        let std = cfg!(feature = "std");
        Self {
            execution: if std { Execution::Runner } else { Execution::Inline },
            ring_bytes: if std { 256 << 10 } else { 16 << 10 },
            spin: Duration::from_micros(50),
            full_timeout: Duration::from_secs(10),
            name: String::from("trunnion"),
        }
    }
}
