//! How much memory there is to use, what a client may hold, and what a program does when there is too little.

use super::Client;
use crate::budget::MemoryBudget;
use crate::error::{Error, Result};
use crate::handle::{Account, Handle};
use crate::platform::Deadline;
use crate::pressure::{MemoryPressure, PressureAnswer, PressureHook, RETRIES};
use alloc::sync::Arc;
use core::time::Duration;

/// How old an answer about the memory there is may be.
const AGE: Duration = Duration::from_millis(100);

impl Client {
    /// How much memory the device has, what of it is free, and what this process, the device's pools and this client use and may use.
    /// At most a tenth of a second old: asking the driver can be slow. What the driver does not say is `None`.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), trunnion_runtime_core::error::Error> {
    /// # let client = trunnion_runtime_core::client::Client::open("host", 0)?;
    /// let budget = client.memory_budget()?;
    /// println!("{budget}");
    /// let batch = budget.room().unwrap_or(1 << 30) / 4;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Equivalent to: `cuMemGetInfo`; `VK_EXT_memory_budget`.
    ///
    /// # Errors
    /// [`Error::Unsupported`]; the device's fault.
    pub fn memory_budget(&self) -> Result<MemoryBudget> {
        self.memory_budget_within(AGE)
    }

    /// [`memory_budget`](Self::memory_budget), at most this old; zero asks the driver in any case.
    ///
    /// # Errors
    /// As for [`memory_budget`](Self::memory_budget).
    pub fn memory_budget_within(&self, age: Duration) -> Result<MemoryBudget> {
        self.service.shared.check()?;
        let known = *self.service.budget.lock();
        let (asked, mut budget) = match known.filter(|(asked, _)| asked.waited() < age) {
            Some(known) => known,
            None => {
                let asked = Deadline::never();
                let budget = self.ask_memory("memory_budget", |memory| Ok(memory.budget()))?;
                *self.service.budget.lock() = Some((asked, budget));
                (asked, budget)
            }
        };
        budget.age = asked.waited();
        budget.client_limit = self.account.as_ref().map(Account::limit);
        budget.client_live = self.account.as_ref().map(Account::live);
        Ok(budget)
    }

    /// Caps what this client, and clones made from it from now on, hold live together, in bytes asked for; `None` lifts the cap. What was
    /// allocated before does not count. An allocation counts until its last handle is dropped, and no queued operation holds it.
    ///
    /// A request over the cap is [`Error::ClientMemoryLimit`] on the spot: neither device nor driver is asked.
    ///
    /// # Errors
    /// [`Error::Busy`] when the process has as many capped clients as it can have.
    pub fn set_memory_limit(&mut self, bytes: impl Into<Option<u64>>) -> Result<()> {
        let busy = || Error::Busy { what: "every memory account this process can have is in use".into() };
        self.account = match bytes.into() {
            Some(bytes) => Some(Account::new(bytes).ok_or_else(busy)?),
            None => None,
        };
        Ok(())
    }

    /// The most bytes this client and its clones may hold live.
    pub fn memory_limit(&self) -> Option<u64> {
        self.account.as_ref().map(Account::limit)
    }

    /// Has `hook` asked before a request for memory on this device is refused, by whichever client: the last rung of the ladder. It is told
    /// the numbers, may drop handles and clear caches, and answers whether to try again: at most [`RETRIES`] times a request. Of several
    /// hooks each is asked, and one that answers [`Retry`](PressureAnswer::Retry) is enough. It is asked until what is answered here is
    /// dropped, or the device ends.
    ///
    /// A request that the device finds no memory for is made in the device's own work, and so is the call of the hook, on whichever thread
    /// has the device: a blocking call on the same device answers [`Error::Reentrant`] there, and what the hook queues runs later. A
    /// request over a client's limit is refused on its caller's thread, and the hook is called there. A request made inside
    /// a hook, of this device or another, asks no hook; nor does one of somebody else that the thread carries out there while it waits. A panic in it is caught (with `std`) and counts as [`Refuse`](PressureAnswer::Refuse).
    ///
    /// A hook that holds a client keeps the device alive for as long as the hook is there.
    ///
    /// ```no_run
    /// use std::sync::{Arc, Mutex};
    /// use trunnion_runtime_core::pressure::PressureAnswer;
    /// # fn main() -> Result<(), trunnion_runtime_core::error::Error> {
    /// # let client = trunnion_runtime_core::client::Client::open("host", 0)?;
    /// let cache = Arc::new(Mutex::new(vec![client.zeros(64 << 20)?]));
    /// let theirs = cache.clone();
    /// let _hook = client.on_memory_pressure(move |pressure| match theirs.try_lock() {
    ///     Ok(mut cache) if !cache.is_empty() => {
    ///         log::info!("the cache is dropped: {}", pressure.error);
    ///         cache.clear();
    ///         PressureAnswer::Retry
    ///     }
    ///     _ => PressureAnswer::Refuse,
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The device's fault; [`Error::ShutDown`].
    pub fn on_memory_pressure(
        &self,
        hook: impl Fn(&MemoryPressure<'_>) -> PressureAnswer + Send + Sync + 'static,
    ) -> Result<PressureHook> {
        self.service.shared.check()?;
        self.service.shared.hooks.add(Arc::new(hook)).ok_or(Error::ShutDown { service: self.service.id })
    }

    /// A handle of a new allocation, which nothing is reserved for yet, within what this client may hold.
    #[inline]
    pub(super) fn new_handle(&self, size: u64) -> Result<Handle> {
        let handle = match &self.account {
            Some(account) if size > 0 => self.new_counted_handle(account, size)?,
            _ => self.service.shared.handles.create(size),
        };
        handle.ok_or(Error::Busy { what: "every handle this process can have is in use".into() })
    }

    fn new_counted_handle(&self, account: &Account, size: u64) -> Result<Option<Handle>> {
        let shared = &self.service.shared;
        let mut attempt = 0;
        loop {
            let error = match shared.handles.create_within(size, account) {
                Ok(handle) => return Ok(handle),
                Err(error) => error,
            };
            if size > account.limit() || attempt == RETRIES || !shared.hooks.any() {
                return Err(error);
            }
            match shared.hooks.ask(&MemoryPressure::new(size, &error, attempt)) {
                Some(PressureAnswer::Retry) => attempt += 1,
                _ => return Err(error),
            }
        }
    }
}
