//! The executor as its users hold it.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::time::Duration;

use super::bell::{NOTIFIED, Notifier};
use super::config::Config;
#[cfg(not(feature = "std"))]
use super::config::Execution;
use super::error::{Busy, CallError, StartError, SubmitError};
use super::guarded::word_of;
use super::reservation::Reservation;
use super::resident::Resident;
use super::shared::{Patience, Shared};
use super::shutdown::ShutdownReport;
use crate::platform::{Deadline, ThreadToken};

/// One resident value and the entries that act on it, in the order of their tickets, one at a time.
///
/// Dropping it is a [`shutdown`](Self::shutdown) with a deadline of half a second. `fork` is not supported.
pub struct Executor<T: Resident> {
    shared: Arc<Shared<T>>,
}

impl<T: Resident> Executor<T> {
    /// How long dropping an executor waits for what is queued.
    pub const DROP_TIMEOUT: Duration = Duration::from_millis(500);

    /// Starts an executor, and its runner thread where the configuration asks for one.
    ///
    /// # Errors
    /// [`StartError`] names what the configuration asks for and the host does not have.
    pub fn new(resident: T, config: Config) -> Result<Self, StartError> {
        #[cfg(not(feature = "std"))]
        if config.execution == Execution::Runner {
            return Err(StartError::NoThreads);
        }
        Self::start(Shared::new(resident, &config)?, &config)
    }

    pub(super) fn start(shared: Shared<T>, config: &Config) -> Result<Self, StartError> {
        let shared = Arc::new(shared);
        #[cfg(feature = "std")]
        if shared.has_runner {
            super::runner::start(&shared, config)?;
        }
        #[cfg(not(feature = "std"))]
        let _ = config;
        Ok(Self { shared })
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn shared(&self) -> &Arc<Shared<T>> {
        &self.shared
    }

    /// How many threads wait for the end of a reservation.
    #[cfg(all(test, feature = "std", not(loom)))]
    pub(crate) fn waiting(&self) -> usize {
        self.shared.desk.waiting()
    }

    /// Queues an entry and returns its ticket: never zero, and growing in the order entries run.
    ///
    /// The entry is passed its ticket. With a runner nothing is run here, except where the ring is full: then the caller
    /// runs entries to make room. Inline, whatever is queued is run before this returns, by this thread or the one that is at it.
    /// From inside an entry it works too, but never waits. Equivalent to: the enqueue in `cuLaunchHostFunc`.
    ///
    /// # Errors
    /// [`SubmitError::Busy`] when the ring stayed full or reserved by another thread for `Config::full_timeout`;
    /// [`SubmitError::Closed`] after a shutdown. The entry is dropped.
    #[inline]
    pub fn submit<F>(&self, entry: F) -> Result<u64, SubmitError>
    where
        F: FnOnce(&mut T, u64) + Send + 'static,
    {
        self.shared.push_any(move || entry, Patience::Configured)
    }

    /// As [`submit`](Self::submit), waiting for room or for the end of another thread's reservation until `deadline`.
    ///
    /// # Errors
    /// [`SubmitError::Busy`] when neither came by then; [`SubmitError::Closed`] after a shutdown. The entry is dropped.
    pub fn submit_until<F>(&self, entry: F, deadline: &Deadline) -> Result<u64, SubmitError>
    where
        F: FnOnce(&mut T, u64) + Send + 'static,
    {
        self.shared.push_any(move || entry, Patience::Until(deadline))
    }

    /// As [`submit`](Self::submit), for an entry that `make` gives once there is room for it: it is then built where it will lie, and
    /// never moved. `make` is not called where there is no room. It must be quick: what is queued later waits for it.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    #[inline(always)]
    pub fn submit_with<F>(&self, make: impl FnOnce() -> F) -> Result<u64, SubmitError>
    where
        F: FnOnce(&mut T, u64) + Send + 'static,
    {
        self.shared.push_any(make, Patience::Configured)
    }

    /// As [`submit`](Self::submit), but never waits, spins, or runs entries: for interrupt handlers. Inline, the entry is run by
    /// the next submit, call or [`drain`](Self::drain). An entry above a quarter of the ring is boxed, which allocates.
    ///
    /// # Errors
    /// [`SubmitError::Busy`] when the ring is full, or reserved by another thread; [`SubmitError::Closed`] after a shutdown.
    #[inline]
    pub fn try_submit<F>(&self, entry: F) -> Result<u64, SubmitError>
    where
        F: FnOnce(&mut T, u64) + Send + 'static,
    {
        self.shared.push_any(move || entry, Patience::None)
    }

    /// Queues an entry and waits for what it returns.
    ///
    /// The caller helps: if the lock is free it runs what is queued up to its own entry, so on an idle device the call
    /// runs on its caller and nobody is woken. Between batches it looks at the deadline; an entry that blocks the thread
    /// it runs on blocks its helper too. A call that had not begun when its deadline passed never runs.
    ///
    /// # Errors
    /// See [`CallError`].
    pub fn call<R, F>(&self, call: F, deadline: &Deadline) -> Result<R, CallError>
    where
        R: Send + 'static,
        F: FnOnce(&mut T, u64) -> R + Send + 'static,
    {
        self.shared.call(call, deadline)
    }

    /// Runs this here, after what is queued, if the device is to be had within moments; otherwise it is dropped, and it has not run. What
    /// it borrows need not outlive the call.
    ///
    /// # Errors
    /// [`CallError::Panicked`].
    pub fn try_run<R>(&self, run: impl FnOnce(&mut T, u64) -> R) -> Option<Result<R, CallError>> {
        self.shared.try_run(run)
    }

    /// The hardware has progressed: [`Resident::progress`] is called soon. From any thread, also a driver's callback: never
    /// blocks, never runs the resident's code. Several may come as one. Inline, the next submit, call, `try_run` or `drain` sees to it.
    pub fn notify(&self) {
        self.shared.bell.ring(NOTIFIED);
    }

    /// Something that can [`notify`](Self::notify) after the executor is gone.
    pub fn notifier(&self) -> Notifier {
        Notifier(self.shared.bell.clone())
    }

    /// Runs what is queued and sees to notifications, if the lock is free; otherwise whoever has it does.
    pub fn drain(&self) {
        self.shared.drain(word_of(ThreadToken::current()));
    }

    /// Something that can look at the executor, and does not keep it.
    pub(crate) fn glance(&self) -> Glance<T> {
        Glance(Arc::downgrade(&self.shared))
    }

    /// Takes the device for the calling thread, and returns when everything queued before has run.
    ///
    /// Until the reservation is dropped, other threads' submits and calls wait, and answer `Busy` at their deadlines; the owner's pass, and so do
    /// those of the entries it has run. A further `reserve` by the owner nests.
    ///
    /// # Errors
    /// [`Busy`] when it was not to be had within the deadline, from inside an entry, and after a shutdown.
    pub fn reserve(&self, deadline: &Deadline) -> Result<Reservation<'_, T>, Busy> {
        self.shared.reserve(deadline)
    }

    /// Whether nobody but the calling thread would run what is queued or see to notifications: there is no runner, or the caller is it.
    pub fn is_left_to_caller(&self) -> bool {
        !self.shared.has_runner || self.shared.is_runner(word_of(ThreadToken::current()))
    }

    /// Whether another thread has reserved the device.
    pub fn is_reserved_by_other(&self) -> bool {
        self.shared.is_reserved_by_other()
    }

    /// Ends the executor: takes nothing more, runs what is queued until the deadline, drops the rest, ends the runner.
    ///
    /// Repeatable, from any thread. From inside an entry it returns at once: what is queued still runs, and the end comes after
    /// that. Returns at the deadline, or a few hundredths of a second after it where entries are left.
    pub fn shutdown(&self, deadline: &Deadline) -> ShutdownReport {
        self.shared.shutdown(deadline)
    }
}

impl<T: Resident> Shared<T> {
    /// Puts an entry of any size into the ring: boxed where it is larger than a quarter of it.
    #[inline(always)]
    pub(super) fn push_any<F>(&self, make: impl FnOnce() -> F, patience: Patience<'_>) -> Result<u64, SubmitError>
    where
        F: FnOnce(&mut T, u64) + Send + 'static,
    {
        if self.ring.fits::<F>() {
            return self.push(make, patience);
        }
        let boxed = Box::new(make());
        self.push(move || move |resident: &mut T, ticket| boxed(resident, ticket), patience)
    }
}

/// A look at an executor that may be gone by now.
pub(crate) struct Glance<T: Resident>(Weak<Shared<T>>);

impl<T: Resident> Glance<T> {
    /// Has the resident see what the hardware has finished and runs what is queued, if the lock is free; otherwise whoever has it does.
    pub(crate) fn take(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.bell.ring(NOTIFIED);
            shared.drain(word_of(ThreadToken::current()));
        }
    }
}

impl<T: Resident> Drop for Executor<T> {
    fn drop(&mut self) {
        self.shared.shutdown(&Deadline::after(Self::DROP_TIMEOUT));
    }
}

impl<T: Resident> core::fmt::Debug for Executor<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Executor").field("runner", &self.shared.has_runner).finish_non_exhaustive()
    }
}
