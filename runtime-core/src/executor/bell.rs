//! What asks for attention between two entries, and the thread to rouse for it.
//!
//! The bell is an allocation of its own, without the resident's type: a [`Notifier`] that outlives its executor rings a
//! bell nobody hears, and never holds the resident.

use alloc::sync::Arc;

#[cfg(feature = "std")]
use super::atomic::Thread;
use super::atomic::{AtomicU32, Ordering};

/// Somebody called `notify`.
pub(super) const NOTIFIED: u32 = 1;
/// The shutdown's deadline has passed: drop what is queued. Stays.
pub(super) const ABANDON: u32 = 2;

pub(super) struct Bell {
    bits: AtomicU32,
    #[cfg(feature = "std")]
    runner: std::sync::OnceLock<Thread>,
}

impl Bell {
    pub(super) fn new() -> Self {
        Self {
            bits: AtomicU32::new(0),
            #[cfg(feature = "std")]
            runner: std::sync::OnceLock::new(),
        }
    }

    /// From now on this is the thread to rouse.
    #[cfg(feature = "std")]
    pub(super) fn hand_to(&self, runner: Thread) {
        let _ = self.runner.set(runner);
    }

    /// Nothing asks for attention.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.bits.load(Ordering::Acquire) == 0
    }

    /// Sets `bit`, and rouses the runner if it was not set. If it was, whoever set it does.
    pub(super) fn ring(&self, bit: u32) {
        if self.bits.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.rouse();
        }
    }

    /// What is asked for; the notification is taken by this.
    pub(super) fn answer(&self) -> u32 {
        self.bits.fetch_and(!NOTIFIED, Ordering::AcqRel)
    }

    /// Makes the runner's current or next park return. Cheap while it is awake.
    pub(super) fn rouse(&self) {
        #[cfg(feature = "std")]
        if let Some(runner) = self.runner.get() {
            runner.unpark();
        }
    }
}

/// Tells an executor that the hardware has progressed, from any thread or driver callback. Does nothing once the executor is gone.
#[derive(Clone)]
pub struct Notifier(pub(super) Arc<Bell>);

impl Notifier {
    /// As [`Executor::notify`](super::Executor::notify): never blocks, never runs the resident's code.
    pub fn notify(&self) {
        self.0.ring(NOTIFIED);
    }
}

impl core::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}
