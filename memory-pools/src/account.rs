//! A pool's numbers, kept up to date so that a report is read off.

use alloc::string::String;
use trunnion_runtime_core::report::{PoolKind, PoolReport};

/// What a pool or one stream's part of it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) allocations: u64,
    pub(crate) live: u64,
    pub(crate) padding: u64,
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, size: u64, padded: u64) {
        self.allocations += 1;
        self.live += size;
        self.padding += padded - size;
    }

    #[inline]
    pub(crate) fn subtract(&mut self, size: u64, padded: u64) {
        self.allocations -= 1;
        self.live -= size;
        self.padding -= padded - size;
    }

    /// The report of these alone.
    pub(crate) fn report(&self, name: String, kind: PoolKind) -> PoolReport {
        PoolReport {
            name,
            kind,
            allocations: self.allocations,
            live: self.live,
            padding: self.padding,
            reserved: self.live + self.padding,
            ..PoolReport::default()
        }
    }
}

/// The numbers of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    pub(crate) held: Tally,
    pub(crate) reserved: u64,
    pub(crate) pages: u64,
    peak_live: u64,
    peak_reserved: u64,
    reused: u64,
    grown: u64,
}

impl Account {
    /// An allocation was served; `grown` says whether the driver was asked for it.
    #[inline]
    pub(crate) fn served(&mut self, size: u64, padded: u64, grown: bool) {
        self.held.add(size, padded);
        self.peak_live = self.peak_live.max(self.held.live);
        self.grown += u64::from(grown);
        self.reused += u64::from(!grown);
    }

    /// Whether a page was ever taken.
    pub(crate) fn is_used(&self) -> bool {
        self.peak_reserved > 0
    }

    pub(crate) fn page_taken(&mut self, size: u64) {
        self.pages += 1;
        self.reserved += size;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }

    pub(crate) fn page_grown(&mut self, by: u64) {
        self.reserved += by;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }

    pub(crate) fn page_returned(&mut self, size: u64) {
        self.pages -= 1;
        self.reserved -= size;
    }

    /// Nothing is held any more; peaks and counters stay.
    pub(crate) fn emptied(&mut self) {
        (self.held, self.reserved, self.pages) = (Tally::default(), 0, 0);
    }

    pub(crate) fn report(&self, name: String, kind: PoolKind, largest_free: u64, retired: bool) -> PoolReport {
        PoolReport {
            free: self.reserved - self.held.live - self.held.padding,
            reserved: self.reserved,
            largest_free,
            pages: self.pages,
            peak_live: self.peak_live,
            peak_reserved: self.peak_reserved,
            reused: self.reused,
            grown: self.grown,
            retired,
            ..self.held.report(name, kind)
        }
    }
}
