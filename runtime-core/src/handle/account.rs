//! What one client and its clones hold live, counted against a cap.
//!
//! Accounts lie in a slab, as control blocks do: a block names its account by index, and is counted until its last handle is dropped.

use super::slab::{Slab, Slot};
use crate::error::{Error, Result};
use crate::sync::explored::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::process_wide;
use core::fmt;

process_wide! {
    static TALLIES: Slab<Tally> = Slab::new();
}

/// An account's numbers.
struct Tally {
    index: u32,
    link: AtomicU32,
    limit: AtomicU64,
    live: AtomicU64,
    /// Clients and live allocations. The slot is free when there are none.
    holders: AtomicUsize,
}

impl Slot for Tally {
    fn new(index: u32) -> Self {
        Self {
            index,
            link: AtomicU32::new(0),
            limit: AtomicU64::new(0),
            live: AtomicU64::new(0),
            holders: AtomicUsize::new(0),
        }
    }
    fn index(&self) -> u32 {
        self.index
    }
    fn link(&self) -> &AtomicU32 {
        &self.link
    }
}

impl Tally {
    fn let_go(&'static self) {
        // Whoever takes the slot next comes after everything that was counted here.
        if self.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            TALLIES.give(self);
        }
    }
}

/// Live bytes that are counted together against a cap. Clones share the account.
pub(crate) struct Account {
    tally: &'static Tally,
}

impl Account {
    /// An account with nothing live. `None` when the process has run out of slots.
    pub(crate) fn new(limit: u64) -> Option<Self> {
        let tally = TALLIES.take()?;
        tally.limit.store(limit, Ordering::Relaxed);
        tally.live.store(0, Ordering::Relaxed);
        tally.holders.store(1, Ordering::Relaxed);
        Some(Self { tally })
    }

    /// The most bytes that may be live.
    pub(crate) fn limit(&self) -> u64 {
        self.tally.limit.load(Ordering::Relaxed)
    }

    /// Bytes that are live.
    pub(crate) fn live(&self) -> u64 {
        self.tally.live.load(Ordering::Relaxed)
    }

    /// Counts an allocation, until [`release`] is told its size; answers what names the account there.
    ///
    /// # Errors
    /// [`Error::ClientMemoryLimit`]; nothing was then counted.
    pub(super) fn hold(&self, size: u64) -> Result<u32> {
        let limit = self.limit();
        let add = |live: u64| live.checked_add(size).filter(|live| *live <= limit);
        self.tally
            .live
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .map_err(|live| Error::ClientMemoryLimit { requested: size, live, limit })?;
        self.tally.holders.fetch_add(1, Ordering::Relaxed);
        Ok(self.tally.index + 1)
    }
}

/// The last handle of an allocation that was counted is gone. `account` is what [`Account::hold`] answered.
pub(super) fn release(account: u32, size: u64) {
    if let Some(tally) = account.checked_sub(1).and_then(|index| TALLIES.get(index)) {
        tally.live.fetch_sub(size, Ordering::Relaxed);
        tally.let_go();
    }
}

impl Clone for Account {
    fn clone(&self) -> Self {
        self.tally.holders.fetch_add(1, Ordering::Relaxed);
        Self { tally: self.tally }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.tally.let_go();
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("live", &self.live()).field("limit", &self.limit()).finish()
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use super::super::Handles;
    use super::*;
    use crate::id::ServiceId;

    #[test]
    fn an_allocation_counts_until_its_last_handle_is_dropped() {
        let handles = Handles::new(ServiceId::new()).unwrap();
        let account = Account::new(100).unwrap();
        let first = handles.create_within(60, &account).unwrap().unwrap();
        let part = first.slice(5..6).unwrap();
        drop(first);
        assert_eq!(account.live(), 60);
        let refused = handles.create_within(41, &account).map(|_| ()).unwrap_err();
        assert_eq!(refused, Error::ClientMemoryLimit { requested: 41, live: 60, limit: 100 });
        assert!(handles.create_within(u64::MAX, &account).is_err());
        let second = handles.create_within(40, &account).unwrap().unwrap();
        drop(part);
        assert_eq!(account.live(), 40);
        drop(second);
        assert_eq!(account.live(), 0);
    }

    #[test]
    fn an_account_outlives_its_clients_as_long_as_something_is_live() {
        let handles = Handles::new(ServiceId::new()).unwrap();
        let account = Account::new(100).unwrap();
        let (tally, clone) = (account.tally, account.clone());
        let held = handles.create_within(60, &account).unwrap().unwrap();
        drop((account, clone));
        let others: alloc::vec::Vec<_> = (0..100).map(|_| Account::new(1).unwrap()).collect();
        assert!(others.iter().all(|other| !core::ptr::eq(other.tally, tally)));
        assert_eq!(tally.live.load(Ordering::Relaxed), 60);
        drop(held);
        assert_eq!(tally.holders.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_together_never_hold_more_than_the_limit() {
        let (handles, account) = (Handles::new(ServiceId::new()).unwrap(), Account::new(1000).unwrap());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..2_000u64 {
                        let held = handles.create_within(round % 700, &account);
                        assert!(account.live() <= 1000);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(account.live(), 0);
    }
}
