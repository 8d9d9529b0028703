//! A result that somebody will give later, once.

use crate::error::Result;
use crate::executor::Wakers;
use crate::sync::explored::Mutex;
use alloc::sync::Arc;
use core::fmt;
use core::task::{Poll, Waker};
use smallvec::SmallVec;

/// A result that will be given once and can be taken by everybody who holds a clone.
///
/// Whoever fulfils it gets the wakers back and MUST wake them, without holding the device.
pub struct Promise<T>(Arc<Mutex<State<T>>>);

enum State<T> {
    Waiting(SmallVec<[Waker; 1]>),
    Given(Result<T>),
}

impl<T: Clone> Promise<T> {
    /// One that nobody has fulfilled.
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State::Waiting(SmallVec::new()))))
    }

    /// Gives the result; the first one counts. The wakers of those who wait are added to `wakers`.
    pub fn fulfil(&self, result: Result<T>, wakers: &mut Wakers) {
        let mut state = self.0.lock();
        if let State::Waiting(waiting) = &mut *state {
            wakers.extend(waiting.drain(..));
            *state = State::Given(result);
        }
    }

    /// The result, if it is there.
    pub fn get(&self) -> Option<Result<T>> {
        match &*self.0.lock() {
            State::Given(result) => Some(result.clone()),
            State::Waiting(_) => None,
        }
    }

    /// Whether the result is there.
    pub fn is_given(&self) -> bool {
        matches!(&*self.0.lock(), State::Given(_))
    }

    /// The result, or a wake-up when it is there. Several may wait; the same waker is kept once.
    pub fn poll(&self, waker: &Waker) -> Poll<Result<T>> {
        match &mut *self.0.lock() {
            State::Given(result) => Poll::Ready(result.clone()),
            State::Waiting(waiting) => {
                if !waiting.iter().any(|known| known.will_wake(waker)) {
                    waiting.push(waker.clone());
                }
                Poll::Pending
            }
        }
    }
}

impl<T: Clone> Default for Promise<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Promise")
    }
}

#[cfg(all(test, loom))]
mod loom;
