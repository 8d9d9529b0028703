//! The lock of this crate: the standard library's where there are threads, a spin lock where there is one thread.

#[cfg(feature = "std")]
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value one thread at a time can reach. A panic under it leaves it usable.
#[cfg(feature = "std")]
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(Mutex<T>);

#[cfg(feature = "std")]
impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value one thread at a time can reach.
#[cfg(not(feature = "std"))]
#[derive(Debug, Default)]
pub(crate) struct Lock<T>(spin::Mutex<T>);

#[cfg(not(feature = "std"))]
impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(spin::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> spin::MutexGuard<'_, T> {
        self.0.lock()
    }
}
