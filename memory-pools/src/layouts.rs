//! The table of pools: which one a request is routed to, and how a layout takes the place of another.

use crate::placer::NONE;
use crate::policy::PoolsConfig;
use crate::pool::{Keeping, Placing, Pool};
use crate::pools::MemoryPools;
use crate::storage::Storage;
use alloc::format;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::pool_layout::{Placement, PoolLayout};
use trunnion_runtime_core::report::PoolKind;
use trunnion_runtime_core::timeline::Timeline;

/// Where requests up to a size go.
struct Route {
    takes: u64,
    pool: u16,
}

/// All pools. A pool's number is its position; it keeps it for as long as it holds a page.
pub(crate) struct Table {
    pub(crate) pools: Vec<Pool>,
    /// The pools of the layout, in the order in which a request is offered to them.
    routes: Vec<Route>,
    /// The pools of earlier layouts that hold pages yet.
    retired: Vec<u16>,
    /// Positions that hold no pool.
    vacant: Vec<u16>,
    /// Whose turn it is to be looked at, in `retired`.
    turn: usize,
}

impl Table {
    pub(crate) const DEDICATED: u16 = 0;
    pub(crate) const PERSISTENT: u16 = 1;
    /// Pages of somebody else. No request is ever served from it.
    pub(crate) const IMPORTED: u16 = 2;
    /// The pools whose allocations are pages that go with them.
    pub(crate) const RETURNED: [u16; 2] = [Self::DEDICATED, Self::IMPORTED];
    /// The most pools there are at once, those of earlier layouts included.
    const LIMIT: usize = 1 << 15;

    pub(crate) fn new(layout: &PoolLayout, alignment: u64) -> Self {
        let pools = alloc::vec![
            Pool::ungoverned(PoolKind::Dedicated, Keeping::Returned),
            Pool::ungoverned(PoolKind::Persistent, Keeping::Kept),
            Pool::ungoverned(PoolKind::Imported, Keeping::Returned),
        ];
        let mut table = Self { pools, routes: Vec::new(), retired: Vec::new(), vacant: Vec::new(), turn: 0 };
        table.replace(layout, alignment);
        table
    }

    /// How many positions there are, vacant ones included.
    pub(crate) fn len(&self) -> usize {
        self.pools.len()
    }

    /// The pool for a request of this size, with padding.
    #[inline]
    pub(crate) fn route(&self, padded: u64) -> u16 {
        self.routes.iter().find(|route| padded <= route.takes).map_or(Self::DEDICATED, |route| route.pool)
    }

    /// The pools that serve requests, in the order of a report.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = u16> + '_ {
        let governed = self.routes.iter().map(|route| route.pool);
        governed.chain([Self::DEDICATED, Self::PERSISTENT]).chain(self.retired.iter().copied())
    }

    /// Whether a pool of whole pages has one that was freed and whose last use was not done then.
    pub(crate) fn waits(&self, pool: u16) -> bool {
        matches!(&self[pool].placing, Placing::Whole(whole) if whole.holds_freed())
    }

    /// Routes requests to the pools of a layout from now on. A pool that is described as one there is goes on as it was; the others of the
    /// layout before retire.
    fn replace(&mut self, layout: &PoolLayout, alignment: u64) {
        let before: Vec<u16> = self.routes.drain(..).map(|route| route.pool).chain(self.retired.drain(..)).collect();
        let mut kept = Vec::new();
        for description in layout.pools() {
            let is_same = |pool: &&u16| self[**pool].description.as_ref() == Some(description);
            let pool = before.iter().find(is_same).copied().unwrap_or_else(|| {
                let pool = Pool::new(description, alignment);
                match self.vacant.pop() {
                    Some(vacant) => {
                        self[vacant] = pool;
                        vacant
                    }
                    None => {
                        self.pools.push(pool);
                        (self.pools.len() - 1) as u16
                    }
                }
            });
            let of = &mut self[pool];
            of.keeping = Keeping::Kept;
            let takes = of.sizes.as_ref().map_or(0, |sizes| sizes.takes);
            self.routes.push(Route { takes, pool });
            kept.push(pool);
        }
        for pool in before.into_iter().filter(|pool| !kept.contains(pool)) {
            self[pool].keeping = Keeping::Retired;
            self.retired.push(pool);
            self.forget_if_empty(pool);
        }
    }

    /// Forgets a retired pool that holds no page any more.
    pub(crate) fn forget_if_empty(&mut self, pool: u16) {
        let of = &mut self[pool];
        if of.keeping == Keeping::Retired && of.account.pages == 0 {
            *of = Pool::ungoverned(PoolKind::General, Keeping::Kept);
            self.retired.retain(|retired| *retired != pool);
            self.vacant.push(pool);
        }
    }

    /// The retired pool whose turn it is.
    fn retired_in_turn(&mut self) -> Option<u16> {
        self.turn = if self.turn + 1 < self.retired.len() { self.turn + 1 } else { 0 };
        self.retired.get(self.turn).copied()
    }

    /// Empties every pool, and forgets the retired ones.
    pub(crate) fn clear(&mut self, alignment: u64) {
        self.pools.iter_mut().for_each(|pool| pool.clear(alignment));
        for pool in core::mem::take(&mut self.retired) {
            self.forget_if_empty(pool);
        }
    }
}

impl Index<u16> for Table {
    type Output = Pool;

    #[inline(always)]
    fn index(&self, pool: u16) -> &Pool {
        &self.pools[usize::from(pool)]
    }
}

impl IndexMut<u16> for Table {
    #[inline(always)]
    fn index_mut(&mut self, pool: u16) -> &mut Pool {
        &mut self.pools[usize::from(pool)]
    }
}

impl<S: Storage> MemoryPools<S> {
    /// Puts another layout in the place of the one there is. It governs every request from now on; pages taken before go back to the
    /// driver as they become empty, and are used again only where a request would fail otherwise. A pool described exactly as one of the
    /// layout before, or of an earlier one whose pages are not all gone, goes on as it was. Persistent and dedicated allocations are not
    /// touched.
    ///
    /// # Errors
    /// [`Error::InvalidLayout`] for slots that are larger than any page of this driver, and when too many pools of earlier layouts
    /// hold memory yet. Nothing has changed then.
    pub fn install(&mut self, storage: &mut S, layout: &PoolLayout, timeline: &(impl Timeline + ?Sized)) -> Result<()> {
        for pool in layout.pools().iter().filter(|pool| pool.placement == Placement::Slabs) {
            let (slot, limit) = (pool.largest_request(), storage.max_page());
            if self.config.padded(slot).is_none_or(|padded| padded > limit) {
                let name = &pool.name;
                let why = format!("pool `{name}`: slots of {slot} bytes, a page of this device has at most {limit}");
                return Err(Error::InvalidLayout { why });
            }
        }
        if self.table.len() - self.table.vacant.len() + layout.pools().len() > Table::LIMIT {
            let why = format!(
                "{} pools of earlier layouts hold memory yet, with this one there would be more than {}",
                self.table.retired.len(),
                Table::LIMIT
            );
            return Err(Error::InvalidLayout { why });
        }
        self.table.replace(layout, self.config.alignment);
        self.streams.widen(self.table.len());
        self.config = PoolsConfig { layout: layout.clone(), ..self.config.clone() };
        self.merge_done(storage, timeline);
        self.unsettled = true;
        Ok(())
    }

    /// Does a bounded part of returning what is kept for nobody.
    #[cold]
    pub(crate) fn settle_in_turn(&mut self, storage: &mut S, timeline: &(impl Timeline + ?Sized)) {
        self.unsettled = !self.table.retired.is_empty();
        for pool in Table::RETURNED {
            if !self.table.waits(pool) {
                continue;
            }
            self.unsettled = true;
            if let Some(page) = self.table[pool].settle_in_turn(timeline) {
                self.return_page(storage, page, pool);
            }
        }
        self.settle_retired(storage, timeline);
    }

    /// Looks at a page of a retired pool. False when there is none.
    pub(crate) fn settle_retired(&mut self, storage: &mut S, timeline: &(impl Timeline + ?Sized)) -> bool {
        let Some(pool) = self.table.retired_in_turn() else { return false };
        if let Some(page) = self.table[pool].settle_in_turn(timeline) {
            self.return_page(storage, page, pool);
        }
        true
    }

    /// Returns a page to the driver; its size.
    pub(crate) fn return_page(&mut self, storage: &mut S, page: u32, pool: u16) -> u64 {
        debug_assert_ne!(page, NONE);
        let Some((gone, size)) = self.pages.remove(page) else { return 0 };
        self.table[pool].page_returned(page, size);
        storage.release(gone);
        if pool == Table::IMPORTED {
            self.imported.returned(page);
        } else {
            self.reserved -= size;
        }
        self.table.forget_if_empty(pool);
        size
    }
}
