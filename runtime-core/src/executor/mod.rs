//! The executor: one resident value, and closures that act on it one at a time, in the order they were submitted.
//!
//! An entry is an inline `FnOnce(&mut T, ticket)` in a byte ring. Whoever would wait anyway runs entries under the
//! resident's lock: the runner thread, a blocking caller up to its own entry, a caller that finds the ring full, a
//! reservation that waits for what was queued before it. A fire-and-forget [`Executor::submit`] runs none where there is a runner.
//!
//! | file | job |
//! |---|---|
//! | `resident.rs` | what an executor holds |
//! | `config.rs`, `error.rs` | what it is told, what it answers |
//! | `handle.rs` | [`Executor`] itself |
//! | `ring.rs` | the byte ring: claim, publish, run in place |
//! | `guarded.rs` | the resident's lock, with a note that somebody came by |
//! | `bell.rs` | what asks for attention between entries; [`Notifier`] |
//! | `shared.rs` | running entries under the lock, admission to the ring |
//! | `call.rs`, `slot.rs` | blocking calls and the place their answer lies in |
//! | `runner.rs` | the runner thread: run, spin, sleep |
//! | `reservation.rs` | the device to oneself |
//! | `shutdown.rs` | the end, bounded |
//! | `unwind.rs` | panics end where they began |
//! | `atomic.rs` | atomics and threads, the real ones or loom's |
//!
//! The ring's tail word carries three flags beside the position, so that a producer's one compare-exchange sees them
//! without a fence: *sleeping* (the producer that clears it wakes the runner), *reserved*, *closed*. The runner sets
//! *sleeping* by a compare-exchange on the same word, and only where nothing was claimed: a wake-up cannot be lost.
//!
//! `fork` is not supported: the child of a process with an executor has the memory but not the runner thread. It must not use it.

mod atomic;
mod bell;
mod call;
mod config;
mod error;
mod guarded;
mod handle;
mod reservation;
mod resident;
mod ring;
#[cfg(feature = "std")]
mod runner;
mod shared;
mod shutdown;
mod slot;
mod unwind;

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;

pub use bell::Notifier;
pub use config::{Config, Execution};
pub use error::{Busy, CallError, StartError, SubmitError};
pub use handle::Executor;
pub(crate) use handle::Glance;
pub use reservation::Reservation;
pub use resident::{Resident, Wakers};
#[cfg(feature = "std")]
pub use runner::is_runner;
pub use shutdown::ShutdownReport;
pub(crate) use unwind::{contain, let_go};
