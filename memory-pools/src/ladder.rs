//! What is done before a request is refused: merge, grow within the budget, trim, say what to wait for.

use crate::placer::NONE;
use crate::pools::{DEDICATED, GENERAL, KINDS, MemoryPools, PERSISTENT, Placed, Request};
use crate::pressure::Pressure;
use crate::storage::{Storage, StorageError};
use alloc::boxed::Box;
use alloc::vec::Vec;
use trunnion_runtime_core::error::{OutOfMemory, Rung};
use trunnion_runtime_core::timeline::{Frontier, Timeline};

/// Why there is no new page.
enum Refusal {
    Budget,
    Driver(StorageError),
}

impl<S: Storage> MemoryPools<S> {
    /// The rungs after the quick look, for a request placed inside a page.
    #[cold]
    pub(crate) fn grow_placed(
        &mut self,
        storage: &mut S,
        request: &Request,
        padded: u64,
        units: u32,
        timeline: &(impl Timeline + ?Sized),
    ) -> Result<Placed, Pressure> {
        self.merge_done(storage, timeline);
        let placed =
            |found: crate::general::Found, grown, offset| Placed { page: found.page, offset, node: found.node, grown };
        if let Some(found) = self.general.reuse_any(units, request.stream, timeline) {
            return Ok(placed(found, false, self.to_bytes(found.offset.into())));
        }
        let mut tried = alloc::vec![Rung::Reuse, Rung::Merge];
        let preferred = self.config.next_page(self.general.account.reserved, padded);
        let refusal = match self.take_page(storage, GENERAL, preferred, padded, &mut tried, timeline) {
            Ok((page, size)) => {
                let found = self.general.grow(page, self.to_units(size), units);
                return found
                    .map(|found| placed(found, true, self.to_bytes(found.offset.into())))
                    .ok_or_else(|| self.refused(storage, request, tried, None));
            }
            Err(refusal) => refusal,
        };
        let fits = self.general.when_fits(units);
        self.wait_or_refuse(storage, request, padded, refusal, fits, tried)
    }

    /// The rungs after the quick look, for a request that is a page.
    #[cold]
    pub(crate) fn grow_whole(
        &mut self,
        storage: &mut S,
        request: &Request,
        padded: u64,
        pool: usize,
        timeline: &(impl Timeline + ?Sized),
    ) -> Result<Placed, Pressure> {
        if let Some(page) = self.whole(pool).reuse(padded, usize::MAX, request.stream, timeline) {
            return Ok(Placed { page, offset: 0, node: NONE, grown: false });
        }
        let mut tried = alloc::vec![Rung::Reuse];
        let refusal = match self.take_page(storage, pool, padded, padded, &mut tried, timeline) {
            Ok((page, _)) => return Ok(Placed { page, offset: 0, node: NONE, grown: true }),
            Err(refusal) => refusal,
        };
        let fits = self.whole(pool).when_fits(padded);
        self.wait_or_refuse(storage, request, padded, refusal, fits, tried)
    }

    /// Takes a page of about `preferred` and at least `least` bytes from the driver, within the budget; returns empty pages where
    /// that is what it takes.
    fn take_page(
        &mut self,
        storage: &mut S,
        pool: usize,
        preferred: u64,
        least: u64,
        tried: &mut Vec<Rung>,
        timeline: &(impl Timeline + ?Sized),
    ) -> Result<(u32, u64), Refusal> {
        if self.room() < least {
            tried.extend([Rung::Merge, Rung::Trim]);
            tried.dedup();
            self.general.merge_done(timeline);
            self.trim(storage, least - self.room(), timeline);
        }
        let room = self.room();
        if room < least {
            return Err(Refusal::Budget);
        }
        let most = room.min(storage.max_page());
        let size = preferred.min(most - most % self.config.alignment).max(least);
        tried.push(Rung::Grow);
        let (page, size) = match storage.allocate(size, KINDS[pool]) {
            Ok(page) => (page, size),
            Err(error) if !error.out_of_memory => return Err(Refusal::Driver(error)),
            Err(_) => {
                tried.extend([Rung::Merge, Rung::Trim, Rung::Grow]);
                self.general.merge_done(timeline);
                self.trim(storage, u64::MAX, timeline);
                (storage.allocate(least, KINDS[pool]).map_err(Refusal::Driver)?, least)
            }
        };
        self.account(pool).page_taken(size);
        Ok((self.pages.insert(page, size), size))
    }

    /// How many more bytes the budget allows.
    fn room(&self) -> u64 {
        let reserved = self.accounts().iter().map(|account| account.reserved).sum();
        self.config.budget.map_or(u64::MAX, |budget| budget.saturating_sub(reserved))
    }

    /// No page was to be had: what to wait for, or all that is known.
    fn wait_or_refuse(
        &self,
        storage: &S,
        request: &Request,
        padded: u64,
        refusal: Refusal,
        fits: Option<Frontier>,
        tried: Vec<Rung>,
    ) -> Result<Placed, Pressure> {
        if let Refusal::Driver(error) = &refusal
            && !error.out_of_memory
        {
            return Err(Pressure::Refused(error.clone()));
        }
        if let Some(fits) = fits.filter(|frontier| !frontier.is_empty()) {
            return Err(Pressure::Wait(fits));
        }
        let mut frontier = Frontier::new();
        let returned = self.to_bytes(self.general.when_pages_empty(&mut frontier))
            + self.dedicated.when_done(&mut frontier)
            + self.persistent.when_done(&mut frontier);
        let enough = match &refusal {
            Refusal::Budget => self.room().saturating_add(returned) >= padded,
            // The driver doesn't say what it takes: whatever there is may be enough.
            Refusal::Driver(_) => true,
        };
        if enough && !frontier.is_empty() {
            return Err(Pressure::Wait(frontier));
        }
        Err(match refusal {
            Refusal::Budget => Pressure::OverBudget(self.out_of_memory(storage, request, tried, None)),
            Refusal::Driver(error) => self.refused(storage, request, tried, Some(error)),
        })
    }

    fn refused(&self, storage: &S, request: &Request, tried: Vec<Rung>, error: Option<StorageError>) -> Pressure {
        Pressure::Exhausted(self.out_of_memory(storage, request, tried, error))
    }

    fn out_of_memory(
        &self,
        storage: &S,
        request: &Request,
        tried: Vec<Rung>,
        error: Option<StorageError>,
    ) -> Box<OutOfMemory> {
        let usage = self.usage();
        Box::new(OutOfMemory {
            requested: request.size,
            live: usage.live,
            reserved: usage.reserved,
            padding: usage.padding,
            largest_free: self.to_bytes(self.general.largest().0.into()),
            budget: self.config.budget,
            driver_free: storage.driver_free(),
            tried,
            driver: error.map(|error| error.message),
        })
    }

    /// Returns free pages until `enough` bytes are: first those that serve only one size, then empty pages of the general pool.
    pub(crate) fn trim(&mut self, storage: &mut S, enough: u64, timeline: &(impl Timeline + ?Sized)) {
        let mut returned = 0;
        for pool in [DEDICATED, PERSISTENT] {
            returned += self.return_done(storage, pool, enough - returned.min(enough), timeline);
        }
        while returned < enough
            && let Some(page) = self.general.take_free_page()
        {
            returned += self.return_page(storage, page, GENERAL);
        }
    }

    /// Returns freed whole pages whose last use is done until `enough` bytes are; the bytes.
    pub(crate) fn return_done(
        &mut self,
        storage: &mut S,
        pool: usize,
        enough: u64,
        timeline: &(impl Timeline + ?Sized),
    ) -> u64 {
        let (mut returned, mut from) = (0, 0);
        while returned < enough
            && let Some(page) = self.whole(pool).take_done(&mut from, timeline)
        {
            returned += self.return_page(storage, page, pool);
        }
        returned
    }

    /// Returns a page to the driver; its size.
    pub(crate) fn return_page(&mut self, storage: &mut S, page: u32, pool: usize) -> u64 {
        let Some((page, size)) = self.pages.remove(page) else { return 0 };
        self.account(pool).page_returned(size);
        storage.release(page);
        size
    }
}
