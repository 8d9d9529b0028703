//! The pools of a device as one: requests in, places out.

use crate::general::Found;
use crate::imported::Imports;
use crate::layouts::Table;
use crate::pages::{PageId, Pages};
use crate::placer::NONE;
use crate::policy::PoolsConfig;
use crate::pool::{Keeping, Placing};
use crate::pressure::Pressure;
use crate::storage::Storage;
use crate::streams::Streams;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::report::{MemoryReport, MemoryUsage, PoolKind, ReportScope};
use trunnion_runtime_core::timeline::{Frontier, Timeline};

/// How many pages of layouts that were replaced are looked at together.
const LOOKS: usize = 8;

/// A request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The id the place is recorded under, chosen by the caller: its slots are dense from 0, and the slot must be free.
    pub memory: MemoryId,
    /// The bytes wanted; 0 counts as 1.
    pub size: u64,
    /// The stream that uses the memory first.
    pub stream: StreamId,
    /// How the request is served.
    pub mode: AllocationMode,
}

/// Where an allocation is.
#[derive(Debug)]
pub struct Place<'a, P> {
    /// The page it lies in.
    pub page: &'a P,
    /// That page's id, which no other page ever has.
    pub page_id: PageId,
    /// Where in the page it begins, in bytes; a multiple of the alignment.
    pub offset: u64,
    /// The bytes that were asked for. What the page has beyond them belongs to others.
    pub size: u64,
}

impl<P> Clone for Place<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Place<'_, P> {}

#[derive(Clone, Copy)]
pub(crate) struct Slot {
    generation: u32,
    /// [`NONE`] while the slot is vacant.
    page: u32,
    offset: u64,
    size: u64,
    /// What the pool knows it by, where it lies inside a page.
    node: u32,
    /// Whose bytes they are, in `Streams`.
    owner: u32,
    padding: u32,
    pool: u16,
}

const VACANT: Slot = Slot { generation: 0, page: NONE, offset: 0, size: 0, node: NONE, owner: 0, padding: 0, pool: 0 };

/// Where a request was placed.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) pool: u16,
    pub(crate) found: Found,
    /// What it takes up of the pool, in bytes.
    pub(crate) taken: u64,
    /// Whether the driver was asked for it: a page was taken, or one grew.
    pub(crate) grown: bool,
}

/// All memory of a device, reused across its streams.
///
/// A freed block carries its *frontier*, the last uses a new tenant has to come after. [`reserve`](Self::reserve) gives a block to a
/// stream only when every moment of it is done or ordered before what that stream does next, so the tenant has nothing to wait for.
///
/// The driver's memory comes in through the [`Storage`] given to each call. Dropping the pools does not return it:
/// [`drain`](Self::drain) does.
///
/// Equivalent to: `cudaMemPool_t` with its opportunistic and event-dependent reuse policies; `gpu-allocator` or VMA, with an order over streams.
pub struct MemoryPools<S: Storage> {
    pub(crate) config: PoolsConfig,
    pub(crate) alignment_log2: u32,
    slots: Vec<Slot>,
    pub(crate) pages: Pages<S::Page>,
    pub(crate) streams: Streams,
    pub(crate) table: Table,
    pub(crate) imported: Imports,
    /// The bytes taken from the driver, and the most there were at once.
    pub(crate) reserved: u64,
    pub(crate) peak_reserved: u64,
    /// Whether there may be pages that are kept for nobody.
    pub(crate) unsettled: bool,
}

impl<S: Storage> fmt::Debug for MemoryPools<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPools").field("config", &self.config).field("usage", &self.usage()).finish()
    }
}

impl<S: Storage> MemoryPools<S> {
    /// Pools that hold nothing yet. [`PoolsConfig::fitting`] makes a configuration for a storage.
    pub fn new(config: PoolsConfig) -> Self {
        let config = config.in_line();
        let table = Table::new(&config.layout, config.alignment);
        Self {
            alignment_log2: config.alignment.trailing_zeros(),
            config,
            slots: Vec::new(),
            pages: Pages::new(),
            streams: Streams::new(table.len()),
            table,
            imported: Imports::default(),
            reserved: 0,
            peak_reserved: 0,
            unsettled: false,
        }
    }

    /// The configuration, brought into line, with the layout that is installed.
    pub fn config(&self) -> &PoolsConfig {
        &self.config
    }

    /// Sets or lifts the budget. What is reserved beyond it stays, but nothing is taken from the driver until it fits.
    pub fn set_budget(&mut self, budget: Option<u64>) {
        self.config.budget = budget;
    }

    /// Places an allocation and records it under `request.memory`.
    ///
    /// Where memory the pools hold fits, this takes constant time, asks nothing of the driver and allocates nothing on the heap. Otherwise
    /// it climbs the ladder: merge all blocks whose last use is done and look again, let a page grow or take another one within the
    /// budget, return empty pages and try once more.
    ///
    /// # Errors
    /// [`Pressure`], with nothing recorded. After [`Pressure::Wait`] wait for the frontier and ask again; a caller that has waited adds
    /// [`Rung::Wait`](trunnion_runtime_core::error::Rung::Wait) to what `OutOfMemory::tried` says then.
    pub fn reserve(
        &mut self,
        storage: &mut S,
        request: &Request,
        timeline: &(impl Timeline + ?Sized),
    ) -> Result<(), Pressure> {
        self.make_slot(request.memory)?;
        let limit = self.config.max_allocation.min(storage.max_page());
        let padded = match self.config.padded(request.size) {
            Some(padded) if request.size <= limit && padded <= storage.max_page() => padded,
            _ => return Err(Pressure::TooLarge { requested: request.size, limit }),
        };
        if self.unsettled {
            self.settle_in_turn(storage, timeline);
        }
        let pool = match request.mode {
            AllocationMode::Auto => self.table.route(padded),
            AllocationMode::Persistent => Table::PERSISTENT,
            _ => Table::DEDICATED,
        };
        // A request inside a page is at most a page, and that is counted in `u32` units.
        let units = (padded >> self.alignment_log2) as u32;
        let of = &mut self.table[pool];
        let placed = match &mut of.placing {
            Placing::Fit(general) => general.reuse(units, request.stream, timeline),
            _ => None,
        };
        match placed {
            Some(found) => self.record(request, &Placed { pool, found, taken: padded, grown: false }),
            None => {
                let placed = self.reserve_otherwise(storage, request, pool, padded, timeline)?;
                self.record(request, &placed);
            }
        }
        Ok(())
    }

    /// A slot for an allocation, which must be free.
    #[inline(always)]
    pub(crate) fn make_slot(&mut self, memory: MemoryId) -> Result<(), Pressure> {
        let index = memory.index as usize;
        match self.slots.get(index) {
            Some(slot) if slot.page != NONE => {
                let memory = MemoryId { generation: slot.generation, ..memory };
                return Err(Pressure::InUse { memory });
            }
            Some(_) => {}
            None => self.slots.resize(index + 1, VACANT),
        }
        Ok(())
    }

    /// A request that the quick look into a pool of any sizes did not serve, or that goes to another kind of pool.
    #[inline(never)]
    fn reserve_otherwise(
        &mut self,
        storage: &mut S,
        request: &Request,
        pool: u16,
        padded: u64,
        timeline: &(impl Timeline + ?Sized),
    ) -> Result<Placed, Pressure> {
        let of = &mut self.table[pool];
        if !matches!(of.placing, Placing::Fit(_)) {
            let taken = of.taken(padded, storage);
            let units = (taken >> self.alignment_log2) as u32;
            if let Some(found) = of.reuse(units, taken, request.stream, timeline) {
                return Ok(Placed { pool, found, taken, grown: false });
            }
        }
        self.climb(storage, request, pool, padded, timeline)
    }

    #[inline(always)]
    pub(crate) fn record(&mut self, request: &Request, placed: &Placed) {
        let &Placed { pool, found, taken, grown } = placed;
        self.table[pool].account.served(request.size, taken, grown);
        self.slots[request.memory.index as usize] = Slot {
            generation: request.memory.generation,
            page: found.page,
            offset: u64::from(found.offset) << self.alignment_log2,
            size: request.size,
            node: found.node,
            owner: self.streams.add(request.stream, usize::from(pool), request.size, taken),
            padding: (taken - request.size) as u32,
            pool,
        };
    }

    /// An allocation is a whole page, and begins at this offset in it.
    pub(crate) fn move_to(&mut self, memory: MemoryId, offset: u64) {
        if let Some(slot) = self.slots.get_mut(memory.index as usize) {
            slot.offset = offset;
        }
    }

    /// Frees an allocation, whose last uses are `frontier`; a tenant comes after them.
    ///
    /// The frontier MUST be ordered after the request itself, on the stream it named: memory may be given to a stream while earlier
    /// uses are unfinished, because what that stream does next comes after them. It is enough that the request counts as the first use, a
    /// write at its point, of which later uses on other streams come after; then an allocation that was never used has that
    /// point as its frontier.
    ///
    /// False when `memory` holds nothing, as after a request that failed. Takes constant time; a dedicated allocation whose uses are done
    /// goes back to the driver at once, and so does a page of a layout that was replaced with the last allocation in it.
    pub fn free(
        &mut self,
        storage: &mut S,
        memory: MemoryId,
        frontier: Frontier,
        timeline: &(impl Timeline + ?Sized),
    ) -> bool {
        let Some(slot) = self.slots.get_mut(memory.index as usize) else { return false };
        if slot.generation != memory.generation || slot.page == NONE {
            return false;
        }
        let Slot { page, size, node, owner, padding, pool, .. } = *slot;
        slot.page = NONE;
        let taken = size + u64::from(padding);
        let of = &mut self.table[pool];
        of.account.held.subtract(size, taken);
        self.streams.subtract(owner, usize::from(pool), size, taken);
        match &mut of.placing {
            Placing::Fit(general) if of.keeping == Keeping::Kept => general.free(node, frontier, timeline),
            _ => self.free_otherwise(storage, pool, node, page, taken, frontier, timeline),
        }
        true
    }

    /// Frees what does not lie in a pool of any sizes, or lies in one whose pages are to be returned.
    #[inline(never)]
    #[allow(clippy::too_many_arguments, reason = "what a slot holds, taken apart")]
    fn free_otherwise(
        &mut self,
        storage: &mut S,
        pool: u16,
        node: u32,
        page: u32,
        taken: u64,
        frontier: Frontier,
        timeline: &(impl Timeline + ?Sized),
    ) {
        let of = &mut self.table[pool];
        match of.free(node, page, taken, frontier, timeline) {
            Some(page) => _ = self.return_page(storage, page, pool),
            None => self.unsettled |= of.keeping != Keeping::Kept,
        }
    }

    /// Where an allocation is; `None` when `memory` holds nothing. Takes constant time.
    #[inline]
    pub fn place(&self, memory: MemoryId) -> Option<Place<'_, S::Page>> {
        let slot = self.slots.get(memory.index as usize)?;
        if slot.generation != memory.generation {
            return None;
        }
        // A vacant slot names no page.
        let (page, page_id) = self.pages.get(slot.page)?;
        Some(Place { page, page_id, offset: slot.offset, size: slot.size })
    }

    /// Merges every freed block whose last use is done, and returns the pages that are kept for nobody: dedicated allocations, and pages
    /// of a layout that was replaced. Takes time with the number of freed blocks that are unfinished.
    pub fn merge_done(&mut self, storage: &mut S, timeline: &(impl Timeline + ?Sized)) {
        self.table.pools.iter_mut().for_each(|pool| pool.merge_done(timeline));
        for pool in 0..self.table.len() as u16 {
            if self.table[pool].keeping != Keeping::Kept {
                self.return_free(storage, pool, u64::MAX, timeline);
            }
        }
    }

    /// Returns dedicated allocations and imported pages that were freed and whose last use is done, and looks at a few pages of a layout that
    /// was replaced. Costs nothing where there is none of them.
    pub fn return_dedicated(&mut self, storage: &mut S, timeline: &(impl Timeline + ?Sized)) {
        for pool in Table::RETURNED {
            if self.table.waits(pool) {
                self.return_free(storage, pool, u64::MAX, timeline);
            }
        }
        for _ in 0..LOOKS {
            if !self.settle_retired(storage, timeline) {
                break;
            }
        }
    }

    /// Returns to the driver every page that holds nothing live and nothing unfinished, persistent ones that were freed included.
    /// Calling it again without anything between changes nothing.
    pub fn cleanup(&mut self, storage: &mut S, timeline: &(impl Timeline + ?Sized)) {
        self.table.pools.iter_mut().for_each(|pool| pool.merge_done(timeline));
        self.trim(storage, u64::MAX, timeline);
        self.return_free(storage, Table::IMPORTED, u64::MAX, timeline);
    }

    /// Returns every page to the driver, whatever holds it, and forgets all allocations: for shutdown, when the device is idle or gone.
    pub fn drain(&mut self, storage: &mut S) {
        for index in 0..self.pages.slots() {
            if let Some((page, _)) = self.pages.remove(index) {
                storage.release(page);
            }
        }
        self.imported.all_returned();
        self.slots.fill(VACANT);
        self.table.clear(self.config.alignment);
        self.streams = Streams::new(self.table.len());
        self.reserved = 0;
    }

    /// What is live, by slot: the id, the bytes asked for, the stream that asked, and the pool that has it. Imported memory, which nobody
    /// asked for, is left out. Takes time with the number of slots.
    pub fn live(&self) -> impl Iterator<Item = (MemoryId, u64, StreamId, PoolKind)> {
        let is_live = |slot: &Slot| slot.page != NONE && slot.pool != Table::IMPORTED;
        let live = self.slots.iter().zip(0..).filter(move |(slot, _)| is_live(slot));
        live.map(|(slot, index)| {
            let memory = MemoryId { index, generation: slot.generation };
            (memory, slot.size, self.streams.owner(slot.owner), self.table[slot.pool].kind)
        })
    }

    /// The bytes behind an allocation that nobody else can have; 0 when `memory` holds nothing.
    pub(crate) fn padding(&self, memory: MemoryId) -> u64 {
        let slot = self.slots.get(memory.index as usize);
        slot.filter(|slot| slot.generation == memory.generation && slot.page != NONE)
            .map_or(0, |slot| slot.padding.into())
    }

    /// The pages that are taken: each with its bytes, and the name and the kind of its pool.
    pub(crate) fn taken_pages(&self) -> impl Iterator<Item = (&S::Page, u64, String, PoolKind)> {
        self.pages.iter().map(|(page, size, pool)| {
            let pool = &self.table[pool];
            (page, size, pool.name(), pool.kind)
        })
    }

    /// The few numbers that are asked for often, without imported memory. Takes time with the number of pools only.
    pub fn usage(&self) -> MemoryUsage {
        let mut usage = MemoryUsage::default();
        for pool in self.table.pools.iter().filter(|pool| pool.kind != PoolKind::Imported) {
            usage.allocations += pool.account.held.allocations;
            usage.live += pool.account.held.live;
            usage.padding += pool.account.held.padding;
            usage.reserved += pool.account.reserved;
        }
        usage
    }

    /// A report of every pool: those of the layout in the order in which a request is offered to them, dedicated, persistent, then
    /// those of earlier layouts that hold pages yet, and last what was imported, where anything ever was. For one stream it has what that
    /// stream allocated and is live, and `reserved` is what that takes up.
    pub fn report(&self, scope: ReportScope) -> MemoryReport {
        let imported = self.table[Table::IMPORTED].account.is_used().then_some(Table::IMPORTED);
        let order = self.table.in_order().chain(imported);
        let (pools, peak_reserved) = match scope {
            ReportScope::Stream(stream) => {
                let of = |pool: u16| {
                    let known = &self.table[pool];
                    self.streams.get(stream, usize::from(pool)).report(known.name(), known.kind)
                };
                (order.map(of).collect(), 0)
            }
            _ => {
                let of = |pool: u16| self.table[pool].report(self.alignment_log2);
                (order.map(of).collect(), self.peak_reserved)
            }
        };
        MemoryReport { pools, budget: self.config.budget, peak_reserved }
    }

    pub(crate) fn to_units(&self, bytes: u64) -> u32 {
        (bytes >> self.alignment_log2) as u32
    }
}
