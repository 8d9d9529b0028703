//! The device to oneself: a flag in the ring's tail word that every other producer's claim sees.

use core::marker::PhantomData;

use super::atomic::{AtomicUsize, Ordering};
use super::error::Busy;
use super::guarded::word_of;
use super::resident::Resident;
use super::ring::Ring;
use super::shared::Shared;
use crate::platform::{Backoff, Deadline, ThreadToken};

/// Who has the reservation, and who waits for its end.
pub(super) struct Desk {
    owner: AtomicUsize,
    /// Guards alive. Touched by the owner's thread only.
    depth: AtomicUsize,
    #[cfg(feature = "std")]
    waiting: spin::Mutex<alloc::vec::Vec<super::atomic::Thread>>,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self {
            owner: AtomicUsize::new(0),
            depth: AtomicUsize::new(0),
            #[cfg(feature = "std")]
            waiting: spin::Mutex::new(alloc::vec::Vec::new()),
        }
    }

    pub(super) fn is_owned_by(&self, me: usize) -> bool {
        self.owner.load(Ordering::Relaxed) == me
    }

    /// Waits until the reservation ends, the deadline passes, or for no reason.
    pub(super) fn wait<T>(&self, ring: &Ring<T>, deadline: &Deadline) {
        #[cfg(all(feature = "std", not(loom)))]
        {
            let me = super::atomic::current();
            let id = me.id();
            self.waiting.lock().push(me);
            // The owner takes the flag down before it takes the list: it finds us there, or we find the flag down.
            if ring.is_reserved() {
                match deadline.remaining() {
                    Some(left) => super::atomic::park_timeout(left),
                    None => super::atomic::park(),
                }
            }
            self.waiting.lock().retain(|thread| thread.id() != id);
        }
        #[cfg(not(all(feature = "std", not(loom))))]
        {
            let _ = (ring, deadline);
            Backoff::default().wait();
        }
    }

    /// How many threads wait.
    #[cfg(all(test, feature = "std", not(loom)))]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    fn leave<T>(&self, ring: &Ring<T>) {
        self.owner.store(0, Ordering::Relaxed);
        ring.end_reservation();
        #[cfg(feature = "std")]
        {
            let waiting = core::mem::take(&mut *self.waiting.lock());
            waiting.iter().for_each(super::atomic::Thread::unpark);
        }
    }
}

impl<T: Resident> Shared<T> {
    pub(super) fn reserve(&self, deadline: &Deadline) -> Result<Reservation<'_, T>, Busy> {
        let me = word_of(ThreadToken::current());
        if self.state.is_held_by(me) {
            return Err(Busy);
        }
        if self.desk.is_owned_by(me) {
            self.desk.depth.fetch_add(1, Ordering::Relaxed);
            return Ok(Reservation { shared: self, thread: PhantomData });
        }
        while !self.ring.reserve() {
            if deadline.expired() {
                return Err(Busy);
            }
            self.desk.wait(&self.ring, deadline);
        }
        self.desk.owner.store(me, Ordering::Relaxed);
        self.desk.depth.store(1, Ordering::Relaxed);
        // From here a failure gives the reservation back by dropping it.
        let reservation = Reservation { shared: self, thread: PhantomData };
        let mut backoff = Backoff::default();
        while !self.ring.is_empty() {
            if self.help(me, u64::MAX) {
                backoff = Backoff::default();
            } else {
                backoff.wait();
            }
            if !self.ring.is_empty() && deadline.expired() {
                return Err(Busy);
            }
        }
        if self.ring.is_closed() { Err(Busy) } else { Ok(reservation) }
    }

    pub(super) fn is_reserved_by_other(&self) -> bool {
        self.ring.is_reserved() && !self.desk.is_owned_by(word_of(ThreadToken::current()))
    }
}

/// The device belongs to the thread that holds this, until it is dropped there. Equivalent to: nothing in CUDA or
/// Vulkan; an external lock around every queue of the device.
#[must_use = "the reservation ends when this is dropped"]
pub struct Reservation<'a, T: Resident> {
    shared: &'a Shared<T>,
    /// Not `Send`: the reservation is the thread's.
    thread: PhantomData<*const ()>,
}

impl<T: Resident> core::fmt::Debug for Reservation<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}

impl<T: Resident> Drop for Reservation<'_, T> {
    fn drop(&mut self) {
        if self.shared.desk.depth.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.shared.desk.leave(&self.shared.ring);
        }
    }
}
