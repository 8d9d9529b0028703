//! Atomics and threads: the real ones, or loom's where its model checker runs these very files.

#[cfg(not(loom))]
pub(super) use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

#[cfg(all(feature = "std", not(loom)))]
pub(super) use std::thread::{JoinHandle, Thread, current, park, park_timeout};

#[cfg(all(feature = "std", loom))]
pub(super) use loom::thread::{JoinHandle, Thread, current, park};

/// loom knows no time: a timed park is a park.
#[cfg(all(feature = "std", loom))]
pub(super) fn park_timeout(_time: core::time::Duration) {
    park();
}

/// Tells loom which bytes of the ring are read and written, which it cannot see in raw memory.
#[cfg(loom)]
pub(super) struct Watched(loom::cell::UnsafeCell<()>);

#[cfg(loom)]
impl Watched {
    pub(super) fn new() -> Self {
        Self(loom::cell::UnsafeCell::new(()))
    }

    pub(super) fn write(&self) {
        self.0.with_mut(|_| ());
    }
}

/// A value on cache lines of its own: two of 64 bytes, because processors fetch them in pairs.
#[repr(align(128))]
pub(super) struct Line<T>(pub(super) T);
