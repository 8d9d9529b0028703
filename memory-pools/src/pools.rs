//! The pools of a device as one: requests in, places out.

use crate::account::{Account, Tally, stream_report};
use crate::general::General;
use crate::pages::{PageId, Pages};
use crate::placer::NONE;
use crate::policy::PoolsConfig;
use crate::pressure::Pressure;
use crate::storage::Storage;
use crate::streams::Streams;
use crate::whole::Whole;
use alloc::vec::Vec;
use core::fmt;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::report::{MemoryReport, MemoryUsage, PoolKind, ReportScope};
use trunnion_runtime_core::timeline::{Frontier, Timeline};

/// The pools in the order a request meets them; a pool's number is its position.
pub(crate) const KINDS: [PoolKind; 3] = [PoolKind::General, PoolKind::Dedicated, PoolKind::Persistent];
pub(crate) const GENERAL: usize = 0;
pub(crate) const DEDICATED: usize = 1;
pub(crate) const PERSISTENT: usize = 2;

/// How many freed pages of a request's size a whole-page pool looks at before it asks the driver.
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
    /// The general pool's block.
    node: u32,
    /// Whose bytes they are, in `Streams`.
    owner: u32,
    padding: u32,
    pool: u8,
}

const VACANT: Slot = Slot { generation: 0, page: NONE, offset: 0, size: 0, node: NONE, owner: 0, padding: 0, pool: 0 };

/// Where a request was placed: by the general pool with its block, elsewhere with none.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) page: u32,
    pub(crate) offset: u64,
    pub(crate) node: u32,
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
    alignment_log2: u32,
    slots: Vec<Slot>,
    pub(crate) pages: Pages<S::Page>,
    streams: Streams,
    pub(crate) general: General,
    pub(crate) dedicated: Whole,
    pub(crate) persistent: Whole,
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
        Self {
            alignment_log2: config.alignment.trailing_zeros(),
            config,
            slots: Vec::new(),
            pages: Pages::new(),
            streams: Streams::new(),
            general: General::new(),
            dedicated: Whole::new(),
            persistent: Whole::new(),
        }
    }

    /// The configuration, brought into line.
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
    /// it climbs the ladder: merge all blocks whose last use is done and look again, take a page within the budget, return empty
    /// pages and try once more.
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
        let index = request.memory.index as usize;
        match self.slots.get(index) {
            Some(slot) if slot.page != NONE => {
                let memory = MemoryId { generation: slot.generation, ..request.memory };
                return Err(Pressure::InUse { memory });
            }
            Some(_) => {}
            None => self.slots.resize(index + 1, VACANT),
        }
        let limit = self.config.max_allocation.min(storage.max_page());
        let padded = match self.config.padded(request.size) {
            Some(padded) if request.size <= limit && padded <= storage.max_page() => padded,
            _ => return Err(Pressure::TooLarge { requested: request.size, limit }),
        };
        if let Some(page) = self.dedicated.take_done_in_turn(timeline) {
            self.return_page(storage, page, DEDICATED);
        }
        let (pool, placed) = match request.mode {
            AllocationMode::Persistent => {
                (PERSISTENT, self.reserve_whole(storage, request, padded, PERSISTENT, timeline)?)
            }
            AllocationMode::Auto if self.config.is_placed(padded) => {
                (GENERAL, self.reserve_placed(storage, request, padded, timeline)?)
            }
            _ => (DEDICATED, self.reserve_whole(storage, request, padded, DEDICATED, timeline)?),
        };
        self.account(pool).served(request.size, padded, placed.grown);
        self.slots[index] = Slot {
            generation: request.memory.generation,
            page: placed.page,
            offset: placed.offset,
            size: request.size,
            node: placed.node,
            owner: self.streams.add(request.stream, pool, request.size, padded),
            padding: (padded - request.size) as u32,
            pool: pool as u8,
        };
        Ok(())
    }

    #[inline]
    fn reserve_placed(
        &mut self,
        storage: &mut S,
        request: &Request,
        padded: u64,
        timeline: &(impl Timeline + ?Sized),
    ) -> Result<Placed, Pressure> {
        // A placed request is at most a page, and a page is counted in `u32` units.
        let units = (padded >> self.alignment_log2) as u32;
        match self.general.reuse(units, request.stream, timeline) {
            Some(found) => Ok(Placed {
                page: found.page,
                offset: u64::from(found.offset) << self.alignment_log2,
                node: found.node,
                grown: false,
            }),
            None => self.grow_placed(storage, request, padded, units, timeline),
        }
    }

    fn reserve_whole(
        &mut self,
        storage: &mut S,
        request: &Request,
        padded: u64,
        pool: usize,
        timeline: &(impl Timeline + ?Sized),
    ) -> Result<Placed, Pressure> {
        match self.whole(pool).reuse(padded, LOOKS, request.stream, timeline) {
            Some(page) => Ok(Placed { page, offset: 0, node: NONE, grown: false }),
            None => self.grow_whole(storage, request, padded, pool, timeline),
        }
    }

    /// Frees an allocation, whose last uses are `frontier`; a tenant comes after them.
    ///
    /// The frontier MUST be ordered after the request itself, on the stream it named: memory may be given to a stream while earlier
    /// uses are unfinished, because what that stream does next comes after them. It is enough that the request counts as the first use, a
    /// write at its point, of which later uses on other streams come after; then an allocation that was never used has that
    /// point as its frontier.
    ///
    /// False when `memory` holds nothing, as after a request that failed. Takes constant time; a dedicated allocation whose uses are done goes back to the driver at once.
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
        let (pool, padded) = (usize::from(pool), size + u64::from(padding));
        self.account(pool).held.subtract(size, padded);
        self.streams.subtract(owner, pool, size, padded);
        match pool {
            GENERAL => self.general.free(node, frontier, timeline),
            DEDICATED if frontier.is_done(timeline) => {
                self.return_page(storage, page, DEDICATED);
            }
            pool => self.whole(pool).put(page, padded, frontier),
        }
        true
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

    /// Merges every freed block whose last use is done, and returns dedicated allocations whose last use is. Takes time with the number
    /// of freed blocks that are unfinished.
    pub fn merge_done(&mut self, storage: &mut S, timeline: &(impl Timeline + ?Sized)) {
        self.general.merge_done(timeline);
        self.return_done(storage, DEDICATED, u64::MAX, timeline);
    }

    /// Returns dedicated allocations that were freed and whose last use is done. Costs nothing where none waits for that.
    pub fn return_dedicated(&mut self, storage: &mut S, timeline: &(impl Timeline + ?Sized)) {
        if self.dedicated.holds_freed() {
            self.return_done(storage, DEDICATED, u64::MAX, timeline);
        }
    }

    /// Returns to the driver every page that holds nothing live and nothing unfinished, persistent ones that were freed included.
    /// Calling it again without anything between changes nothing.
    pub fn cleanup(&mut self, storage: &mut S, timeline: &(impl Timeline + ?Sized)) {
        self.general.merge_done(timeline);
        self.trim(storage, u64::MAX, timeline);
    }

    /// Returns every page to the driver, whatever holds it, and forgets all allocations: for shutdown, when the device is idle or gone.
    pub fn drain(&mut self, storage: &mut S) {
        for index in 0..self.pages.slots() {
            if let Some((page, _)) = self.pages.remove(index) {
                storage.release(page);
            }
        }
        self.slots.fill(VACANT);
        self.streams = Streams::new();
        self.general.clear();
        self.dedicated.clear();
        self.persistent.clear();
        for pool in 0..KINDS.len() {
            self.account(pool).emptied();
        }
    }

    /// What is live, by slot: the id, the bytes asked for, the stream that asked, and the pool that has it. Takes time with the number
    /// of slots.
    pub fn live(&self) -> impl Iterator<Item = (MemoryId, u64, StreamId, PoolKind)> {
        let live = self.slots.iter().zip(0..).filter(|(slot, _)| slot.page != NONE);
        live.map(|(slot, index)| {
            let memory = MemoryId { index, generation: slot.generation };
            (memory, slot.size, self.streams.owner(slot.owner), KINDS[usize::from(slot.pool)])
        })
    }

    /// The few numbers that are asked for often. Takes constant time.
    pub fn usage(&self) -> MemoryUsage {
        let mut usage = MemoryUsage::default();
        for account in self.accounts() {
            usage.allocations += account.held.allocations;
            usage.live += account.held.live;
            usage.padding += account.held.padding;
            usage.reserved += account.reserved;
        }
        usage
    }

    /// A report of every pool: general, dedicated, persistent. For one stream it has what that stream allocated and is live, and
    /// `reserved` is what that takes up.
    pub fn report(&self, scope: ReportScope) -> MemoryReport {
        let pools = match scope {
            ReportScope::Stream(stream) => {
                let tally = |pool| -> Tally { self.streams.get(stream, pool) };
                KINDS.iter().enumerate().map(|(pool, kind)| stream_report(*kind, tally(pool))).collect()
            }
            _ => {
                let largest = [
                    u64::from(self.general.largest().1) << self.alignment_log2,
                    self.dedicated.largest(),
                    self.persistent.largest(),
                ];
                let accounts = KINDS.iter().zip(self.accounts()).zip(largest);
                accounts.map(|((kind, account), largest)| account.report(*kind, largest)).collect()
            }
        };
        MemoryReport { pools, budget: self.config.budget }
    }

    pub(crate) fn accounts(&self) -> [&Account; KINDS.len()] {
        [&self.general.account, &self.dedicated.account, &self.persistent.account]
    }

    #[inline]
    pub(crate) fn account(&mut self, pool: usize) -> &mut Account {
        match pool {
            GENERAL => &mut self.general.account,
            pool => &mut self.whole(pool).account,
        }
    }

    #[inline]
    pub(crate) fn whole(&mut self, pool: usize) -> &mut Whole {
        if pool == PERSISTENT { &mut self.persistent } else { &mut self.dedicated }
    }

    pub(crate) fn to_bytes(&self, units: u64) -> u64 {
        units << self.alignment_log2
    }

    pub(crate) fn to_units(&self, bytes: u64) -> u32 {
        (bytes >> self.alignment_log2) as u32
    }
}
