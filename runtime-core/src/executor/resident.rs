//! What an executor holds.

use core::task::Waker;
use smallvec::SmallVec;

/// Wakers a [`Resident`] hands back as its lock is released.
pub type Wakers = SmallVec<[Waker; 4]>;

/// The value an executor holds and its entries act on.
///
/// Every method runs under the executor's lock, on whichever thread holds it. With `std` a panic in any of them is
/// caught, and reported through [`panicked`](Self::panicked) with ticket 0.
pub trait Resident: Send + 'static {
    /// The thread that runs entries is another one than the last time. Equivalent to: where `cuCtxSetCurrent` belongs.
    fn enter(&mut self) {}

    /// Somebody called `notify`: look what the hardware has finished. Several notifications may come as one call.
    fn progress(&mut self) {}

    /// The lock can be released: called each time before it is, and every few hundred entries of a long run. Wakers
    /// returned are woken as soon as it has been.
    fn leave(&mut self) -> Wakers {
        Wakers::new()
    }

    /// The entry with this ticket panicked with this message (std only); a ticket of 0 names a method of this trait.
    /// What the entry captured has been dropped. The executor goes on.
    fn panicked(&mut self, ticket: u64, message: &str) {
        log::error!("entry {ticket} panicked: {message}");
    }

    /// The executor is shut down, once: entries not run yet are dropped after this, none runs any more.
    fn closing(&mut self) {}
}
