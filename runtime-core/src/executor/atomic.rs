//! Atomics and threads for the executor, the real ones or loom's, and two things it builds on them.

pub(super) use crate::sync::explored::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
#[cfg(feature = "std")]
pub(super) use crate::sync::explored::{JoinHandle, Thread, current, park, park_timeout};

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
