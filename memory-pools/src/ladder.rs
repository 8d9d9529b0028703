//! What is done before a request is refused: merge, take memory within the budget, trim, say what to wait for.

use crate::general::latest;
use crate::growth::Growing;
use crate::layouts::Table;
use crate::pools::{MemoryPools, Placed, Request};
use crate::pressure::Pressure;
use crate::storage::{Storage, StorageError};
use alloc::boxed::Box;
use alloc::vec::Vec;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::{OutOfMemory, Rung};
use trunnion_runtime_core::report::PoolKind;
use trunnion_runtime_core::timeline::{Frontier, Timeline};

/// Why there is no new page.
enum Refusal {
    Budget,
    Driver(StorageError),
}

impl<S: Storage> MemoryPools<S> {
    /// The rungs after the quick look.
    #[cold]
    pub(crate) fn climb(
        &mut self,
        storage: &mut S,
        request: &Request,
        pool: u16,
        padded: u64,
        timeline: &(impl Timeline + ?Sized),
    ) -> Result<Placed, Pressure> {
        // A page that is a request has nothing to merge.
        let merges = !self.table[pool].is_whole();
        if merges {
            self.merge_done(storage, timeline);
        }
        if let Some(placed) = self.reuse_any(storage, pool, request, padded, timeline) {
            return Ok(placed);
        }
        let mut tried = alloc::vec![Rung::Reuse];
        tried.extend(merges.then_some(Rung::Merge));
        let taken = self.table[pool].taken(padded, storage);
        if taken > storage.max_page() {
            // The driver is not asked for a slot that no page could hold.
            return self.climb(storage, request, Table::DEDICATED, padded, timeline);
        }
        let mut no_growth = match self.grow_page(storage, pool, request, padded, &mut tried, timeline) {
            Ok(Some(placed)) => return Ok(placed),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        let refusal = match self.take_page(storage, pool, taken, &mut tried, timeline) {
            Ok((page, size)) => {
                let (size, units) = (self.to_units(size), self.to_units(taken));
                let of = &mut self.table[pool];
                return of
                    .grow(page, size, units, request.stream, timeline)
                    .map(|found| Placed { pool, found, taken, grown: true })
                    .ok_or_else(|| self.refused(storage, request, tried, None));
            }
            Err(refusal) => refusal,
        };
        if let Refusal::Driver(error) = &refusal
            && !error.out_of_memory
        {
            return Err(Pressure::Refused(error.clone()));
        }
        // What was returned meanwhile may be as much as is missing at the end of a page.
        match self.grow_page(storage, pool, request, padded, &mut tried, timeline) {
            Ok(Some(placed)) => return Ok(placed),
            Ok(None) => {}
            Err(error) => no_growth = Some(error),
        }
        let refusal = match (refusal, no_growth) {
            // The budget left what was missing, and the driver did not give it.
            (Refusal::Budget, Some(error)) => Refusal::Driver(error),
            (refusal, _) => refusal,
        };
        // Nothing new is to be had: whatever pool has room may serve, one of an earlier layout or of another size too.
        for other in self.others(pool, request, padded) {
            if let Some(placed) = self.reuse_any(storage, other, request, padded, timeline) {
                return Ok(placed);
            }
        }
        if taken > padded {
            // The pool rounds up to more than there is.
            return self.climb(storage, request, Table::DEDICATED, padded, timeline);
        }
        // A page grows by whole steps: what the request takes may be less, and is enough for a page of its own.
        let growth = self.growth_for(storage, pool, request, padded, timeline);
        let missing = growth.map_or(taken, |growth| growth.least.min(taken));
        self.wait_or_refuse(storage, request, (pool, missing), padded, refusal, tried)
    }

    /// Memory of a pool that the request's stream may have at once, if there is any.
    pub(crate) fn reuse_any(
        &mut self,
        storage: &S,
        pool: u16,
        request: &Request,
        padded: u64,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<Placed> {
        let of = &mut self.table[pool];
        let taken = of.taken(padded, storage);
        let units = (taken >> self.alignment_log2) as u32;
        let found = of.reuse_any(units, taken, request.stream, timeline)?;
        Some(Placed { pool, found, taken, grown: false })
    }

    /// The pools other than `pool` in which a request may lie rather than fail. A dedicated one has memory of its own or none.
    fn others(&self, pool: u16, request: &Request, padded: u64) -> Vec<u16> {
        let serves = |other: &u16| {
            let is_dedicated = request.mode == AllocationMode::Dedicated;
            *other != pool && !is_dedicated && self.table[*other].takes(padded)
        };
        self.table.in_order().filter(serves).collect()
    }

    /// Takes a page of at least `taken` bytes from the driver, within the budget; returns empty pages where that is what it takes.
    fn take_page(
        &mut self,
        storage: &mut S,
        pool: u16,
        taken: u64,
        tried: &mut Vec<Rung>,
        timeline: &(impl Timeline + ?Sized),
    ) -> Result<(u32, u64), Refusal> {
        let excess = self.excess(taken);
        if excess > 0 {
            tried.extend([Rung::Merge, Rung::Trim]);
            tried.dedup();
            self.table.pools.iter_mut().for_each(|pool| pool.merge_done(timeline));
            self.trim(storage, excess, timeline);
        }
        if self.excess(taken) > 0 {
            return Err(Refusal::Budget);
        }
        let share = self.config.share(storage.max_page());
        let preferred = self.table[pool].next_page(taken, share);
        if self.table[pool].kind != PoolKind::Slabs && !self.table[pool].is_whole() {
            // What is free as a whole is too small, or it would serve: requests that get larger and larger leave nothing behind.
            self.return_free(storage, pool, preferred, timeline);
        }
        let most = (self.most() - self.reserved).min(storage.max_page());
        let mut size = preferred.min(most - most % self.config.alignment).max(taken);
        let growing = self.begin_growing(pool, size, share.min(storage.max_page())).filter(|(size, _)| *size <= most);
        let reach = growing.map(|(rounded, reach)| {
            size = rounded;
            reach
        });
        tried.push(Rung::Grow);
        tried.dedup();
        let page = match self.ask(storage, pool, size, reach) {
            Ok(page) => page,
            Err(error) if !error.out_of_memory => return Err(Refusal::Driver(error)),
            Err(_) => {
                tried.extend([Rung::Merge, Rung::Trim, Rung::Grow]);
                self.table.pools.iter_mut().for_each(|pool| pool.merge_done(timeline));
                self.trim(storage, u64::MAX, timeline);
                self.smaller_page(storage, pool, &mut size, taken, reach).map_err(Refusal::Driver)?
            }
        };
        self.count(size);
        self.table[pool].account.page_taken(size);
        let page = self.pages.insert(page, size, pool);
        if let Some(reach) = self.reach_of(size, reach) {
            self.table[pool].growing.push(Growing { page, reach });
        }
        Ok((page, size))
    }

    /// Counts bytes that were taken from the driver.
    pub(crate) fn count(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }

    /// Asks the driver for less and less, so that what it has left is not cut into the smallest pages that do.
    fn smaller_page(
        &self,
        storage: &mut S,
        pool: u16,
        size: &mut u64,
        least: u64,
        reach: Option<u64>,
    ) -> Result<S::Page, StorageError> {
        loop {
            let error = match self.ask(storage, pool, *size, reach) {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            if *size <= least || !error.out_of_memory {
                return Err(error);
            }
            let quarter = *size / 4;
            *size = (quarter - quarter % self.config.alignment).max(least);
        }
    }

    /// The most bytes there may be: the budget, or as many as are counted.
    pub(crate) fn most(&self) -> u64 {
        self.config.budget.unwrap_or(u64::MAX)
    }

    /// By how many bytes so many more would be too many. A budget that was lowered may be exceeded already.
    fn excess(&self, more: u64) -> u64 {
        let excess = (u128::from(self.reserved) + u128::from(more)).saturating_sub(self.most().into());
        excess.try_into().unwrap_or(u64::MAX)
    }

    /// `taken` bytes were not to be had for a pool: what to wait for, or all that is known.
    fn wait_or_refuse(
        &self,
        storage: &S,
        request: &Request,
        (pool, taken): (u16, u64),
        padded: u64,
        refusal: Refusal,
        tried: Vec<Rung>,
    ) -> Result<Placed, Pressure> {
        let when_fits = |pool: u16| {
            let of = &self.table[pool];
            let taken = of.taken(padded, storage);
            of.when_fits(self.to_units(taken), taken).filter(|frontier| !frontier.is_empty())
        };
        let others = self.others(pool, request, padded);
        let left = match &refusal {
            Refusal::Driver(error) if error.out_of_memory => storage.driver_free().unwrap_or(0),
            _ => u64::MAX,
        };
        let left = left.min(self.most().saturating_sub(self.reserved));
        let when_grows = self.when_grows(storage, pool, padded, left).filter(|frontier| !frontier.is_empty());
        let fits = [pool].into_iter().chain(others).filter_map(when_fits);
        if let Some(earliest) = fits.chain(when_grows).min_by_key(latest) {
            return Err(Pressure::Wait(earliest));
        }
        let missing = match &refusal {
            Refusal::Driver(error) if error.out_of_memory => {
                storage.driver_free().map(|free| taken.saturating_sub(free))
            }
            // Where a page will never grow again, the budget is all there is against another one.
            _ => Some(self.excess(taken)),
        };
        if let Some(frontier) = self.when_returned(missing, taken) {
            return Err(Pressure::Wait(frontier));
        }
        Err(match refusal {
            Refusal::Budget if self.config.budget.is_some() => {
                Pressure::OverBudget(self.out_of_memory(storage, request, tried, None))
            }
            Refusal::Budget => self.refused(storage, request, tried, None),
            Refusal::Driver(error) if !error.out_of_memory => Pressure::Refused(error),
            Refusal::Driver(error) => self.refused(storage, request, tried, Some(error)),
        })
    }

    /// What to wait for, for pages with the `missing` bytes to be returned: the earliest of them. Where the driver does not say what it
    /// has, whatever there is may be enough, and no more than `taken` is waited for.
    fn when_returned(&self, missing: Option<u64>, taken: u64) -> Option<Frontier> {
        let mut pages: Vec<(u64, u64, Frontier)> = Vec::new();
        for pool in self.table.pools.iter().filter(|pool| pool.kind != PoolKind::Imported) {
            pool.emptying(self.alignment_log2, |bytes, frontier| pages.push((latest(&frontier), bytes, frontier)));
        }
        pages.sort_by_key(|(latest, ..)| *latest);
        let (mut returned, mut until) = (0u64, Frontier::new());
        for (_, bytes, frontier) in &pages {
            if returned >= missing.unwrap_or(taken) && !until.is_empty() {
                break;
            }
            returned = returned.saturating_add(*bytes);
            until.join(frontier);
        }
        (missing.is_none_or(|missing| returned >= missing) && !until.is_empty()).then_some(until)
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
            largest_free: self.largest_free(),
            budget: self.config.budget,
            driver_free: storage.driver_free(),
            tried,
            driver: error.map(|error| error.message),
        })
    }

    /// The largest block that is free now, in any pool.
    fn largest_free(&self) -> u64 {
        self.table.pools.iter().map(|pool| pool.largest(self.alignment_log2).0).max().unwrap_or(0)
    }

    /// Returns free pages until `enough` bytes are: first those that serve only one size, then those of earlier layouts, then those of
    /// the layout, the last pool's first.
    pub(crate) fn trim(&mut self, storage: &mut S, enough: u64, timeline: &(impl Timeline + ?Sized)) {
        let mut order: Vec<u16> = self.table.in_order().collect();
        order.reverse();
        order.sort_by_key(|pool| !self.table[*pool].is_whole());
        let mut returned = 0;
        for pool in order {
            returned += self.return_free(storage, pool, enough.saturating_sub(returned), timeline);
        }
    }

    /// Returns pages of a pool that are free as a whole until `enough` bytes are; the bytes.
    pub(crate) fn return_free(
        &mut self,
        storage: &mut S,
        pool: u16,
        enough: u64,
        timeline: &(impl Timeline + ?Sized),
    ) -> u64 {
        let (mut returned, mut from) = (0, None);
        while returned < enough
            && let Some(page) = self.table[pool].take_free_page(&mut from, timeline)
        {
            returned += self.return_page(storage, page, pool);
        }
        returned
    }
}
