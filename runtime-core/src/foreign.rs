//! What belongs to somebody else and is used here, memory and events: held as long as it is needed, then let go of.

use crate::error::{Error, Result};
use crate::executor::Wakers;
use crate::promise::Promise;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::any::{Any, type_name};
use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

/// Memory of somebody else, of a type that a backend's documentation names.
///
/// The value owns whatever keeps the memory there, so that dropping it is what gives the memory back: an owner, a reference count, a
/// function to be called.
pub trait ForeignMemory: Any + Send + Sync {
    /// How many bytes there are.
    fn size(&self) -> u64;
}

/// Something of somebody else, of a type that the backend knows. A clone is the same thing, which is dropped with the last of them.
///
/// A server holds one for as long as the device uses it, and does not drop it inside a call: it hands it over with its wakers
/// ([`let_go`](Self::let_go)), so that what somebody else does then is done without the device.
#[derive(Clone)]
pub struct Foreign(Arc<Held>);

struct Held {
    value: Box<dyn Any + Send + Sync>,
    name: &'static str,
}

/// Waking drops it.
impl Wake for Held {
    fn wake(self: Arc<Self>) {}
}

impl Foreign {
    /// Holds a value.
    pub fn new<T: Any + Send + Sync>(value: T) -> Self {
        Self(Arc::new(Held { value: Box::new(value), name: type_name::<T>() }))
    }

    /// The value, for a backend that takes this type.
    ///
    /// # Errors
    /// [`Error::ServiceMismatch`], with the names of both types, when it is another.
    pub fn get<T: Any>(&self) -> Result<&T> {
        self.0.value.downcast_ref().ok_or_else(|| self.mismatch(type_name::<T>()))
    }

    /// It is none of the types that the backend takes.
    pub fn mismatch(&self, takes: &'static str) -> Error {
        Error::ServiceMismatch { expected: self.0.name.into(), found: takes.into() }
    }

    /// Adds to the wakers something that drops this when it is woken.
    pub fn let_go(self, wakers: &mut Wakers) {
        wakers.push(Waker::from(self.0));
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign<{}>", self.0.name)
    }
}

/// Something that happens on the host, once: the event that every backend takes and gives.
///
/// ```
/// # use trunnion_runtime_core::foreign::Event;
/// let (event, signal) = Event::new();
/// assert!(!event.has_happened());
/// signal.give();
/// assert!(event.has_happened());
/// ```
///
/// Equivalent to: a callback of `cuLaunchHostFunc`; `vkSignalSemaphore` and `vkWaitSemaphores`.
#[derive(Clone)]
pub struct Event(Promise<()>);

/// Makes an [`Event`] happen. An event whose signal was dropped happens too, so that nobody waits for one that never will.
#[derive(Debug)]
#[must_use = "the event happens when this is dropped"]
pub struct Signal(Promise<()>);

impl Event {
    /// An event, and what makes it happen.
    #[allow(clippy::new_ret_no_self, reason = "an event and its signal are made together")]
    pub fn new() -> (Self, Signal) {
        let promise = Promise::new();
        (Self(promise.clone()), Signal(promise))
    }

    /// Whether it has happened.
    pub fn has_happened(&self) -> bool {
        self.0.is_given()
    }

    pub(crate) fn of(promise: Promise<()>) -> Self {
        Self(promise)
    }

    pub(crate) fn promise(&self) -> Promise<()> {
        self.0.clone()
    }
}

/// Ready when the event has happened.
impl Future for Event {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll(context.waker()).map(|_| ())
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("has_happened", &self.has_happened()).finish()
    }
}

impl Signal {
    /// Makes the event happen. May be called on any thread; who waits for it is woken.
    pub fn give(self) {}
}

impl Drop for Signal {
    fn drop(&mut self) {
        let mut wakers = Wakers::new();
        self.0.fulfil(Ok(()), &mut wakers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicU32, Ordering};

    struct Counted(Arc<AtomicU32>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_let_go_of_is_dropped_once_and_only_when_its_waker_is_woken() {
        let drops = Arc::new(AtomicU32::new(0));
        let foreign = Foreign::new(Counted(drops.clone()));
        let mut wakers = Wakers::new();
        foreign.let_go(&mut wakers);
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        wakers.into_iter().for_each(Waker::wake);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn another_type_is_named_with_the_one_that_is_taken() {
        let foreign = Foreign::new(1u8);
        assert_eq!(foreign.get::<u8>().unwrap(), &1);
        let error = foreign.get::<u16>().unwrap_err();
        assert_eq!(error, Error::ServiceMismatch { expected: "u8".into(), found: "u16".into() });
    }

    #[test]
    fn an_event_whose_signal_is_dropped_happens() {
        let (event, signal) = Event::new();
        let clone = event.clone();
        assert!(!event.has_happened());
        drop(signal);
        assert!(event.has_happened() && clone.has_happened());
        crate::platform::block_on(clone, &crate::platform::Deadline::after(core::time::Duration::ZERO)).unwrap();
    }
}
