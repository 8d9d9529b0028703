//! The doubles: a storage that counts and can refuse, and a device whose progress the test decides.

use alloc::collections::BTreeMap;
use core::cell::RefCell;
use std::collections::HashMap;
use trunnion_memory_pools::{MemoryPools, PageId, PoolsConfig, Pressure, Request, Storage, StorageError};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::pool_layout::{PageSizes, Placement, PoolDescription, PoolLayout};
use trunnion_runtime_core::report::{PoolKind, ReportScope};
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// A page of the counting storage.
#[derive(Debug)]
pub struct Page {
    pub number: u64,
    pub size: u64,
    pub kind: PoolKind,
}

/// Counts pages, panics on a double release, refuses as told.
pub struct Counting {
    next: u64,
    pub bytes: u64,
    pub capacity: u64,
    pub asked: u64,
    /// Refuses the request of this number, counted from 1, and says whether for lack of memory.
    pub refuse: Option<(u64, bool)>,
    pub max_page: u64,
    pub alignment: u64,
    /// In what steps pages grow.
    pub step: Option<u64>,
    /// How often one grew, and up to what each may.
    pub grew: u64,
    pub reaches: BTreeMap<u64, u64>,
    /// Whether the driver says what it has free.
    pub tells: bool,
    /// Pages returned since the test last looked, and those that are live.
    pub returned: Vec<u64>,
    pub sizes: BTreeMap<u64, (u64, PoolKind)>,
}

impl Counting {
    pub fn new() -> Self {
        Self {
            next: 0,
            bytes: 0,
            capacity: u64::MAX,
            asked: 0,
            refuse: None,
            max_page: 1 << 40,
            alignment: 256,
            step: None,
            grew: 0,
            reaches: BTreeMap::new(),
            tells: true,
            returned: Vec::new(),
            sizes: BTreeMap::new(),
        }
    }

    fn take(&mut self, size: u64) -> Result<(), StorageError> {
        self.asked += 1;
        if let Some((at, out_of_memory)) = self.refuse
            && at == self.asked
        {
            return Err(StorageError { message: "told to refuse".into(), out_of_memory });
        }
        if self.bytes.checked_add(size).is_none_or(|bytes| bytes > self.capacity) {
            return Err(StorageError { message: "the device is full".into(), out_of_memory: true });
        }
        self.bytes += size;
        Ok(())
    }

    pub fn pages(&self) -> usize {
        self.sizes.len() - self.lent()
    }

    /// A page of somebody else, which counts for nothing.
    pub fn lend(&mut self, size: u64) -> Page {
        let kind = PoolKind::Imported;
        self.next += 1;
        self.sizes.insert(self.next, (size, kind));
        Page { number: self.next, size, kind }
    }

    /// Pages of somebody else that are out.
    pub fn lent(&self) -> usize {
        self.sizes.values().filter(|(_, kind)| *kind == PoolKind::Imported).count()
    }
}

impl Storage for Counting {
    type Page = Page;

    fn allocate(&mut self, size: u64, kind: PoolKind) -> Result<Page, StorageError> {
        assert!(size > 0 && size.is_multiple_of(self.alignment()), "{size}");
        assert!(size <= self.max_page, "{size} bytes asked for, a page has at most {}", self.max_page);
        self.take(size)?;
        self.next += 1;
        self.sizes.insert(self.next, (size, kind));
        Ok(Page { number: self.next, size, kind })
    }

    fn growth_step(&self) -> Option<u64> {
        self.step
    }

    fn allocate_growing(&mut self, size: u64, reach: u64, kind: PoolKind) -> Result<Page, StorageError> {
        let step = self.step.expect("pages grow");
        assert!(size.is_multiple_of(step) && reach.is_multiple_of(step) && size < reach, "{size} of {reach}");
        assert!(reach <= self.max_page);
        let page = self.allocate(size, kind)?;
        self.reaches.insert(page.number, reach);
        Ok(page)
    }

    fn grow(&mut self, page: &mut Page, from: u64, to: u64) -> Result<(), StorageError> {
        let step = self.step.expect("pages grow");
        assert!(from < to && to.is_multiple_of(step) && to <= self.reaches[&page.number], "{from} to {to}");
        assert_eq!((page.size, self.sizes[&page.number]), (from, (from, page.kind)));
        self.take(to - from)?;
        page.size = to;
        self.sizes.insert(page.number, (to, page.kind));
        self.grew += 1;
        Ok(())
    }

    fn release(&mut self, page: Page) {
        let known = self.sizes.remove(&page.number);
        assert_eq!(known, Some((page.size, page.kind)), "page {} was released twice", page.number);
        if page.kind != PoolKind::Imported {
            self.returned.push(page.number);
            self.bytes -= page.size;
        }
    }

    fn alignment(&self) -> u64 {
        self.alignment
    }

    fn max_page(&self) -> u64 {
        self.max_page
    }

    fn driver_free(&self) -> Option<u64> {
        (self.tells && self.capacity != u64::MAX).then(|| self.capacity.saturating_sub(self.bytes))
    }
}

/// For each stream the latest number that is ordered before.
type Clock = HashMap<StreamId, u64>;

/// A device that does what it is told when it is told.
#[derive(Default)]
pub struct Device {
    seq: u64,
    issued: HashMap<StreamId, Vec<u64>>,
    done: HashMap<StreamId, u64>,
    /// What a stream's next operation comes after, directly or through others.
    clocks: HashMap<StreamId, Clock>,
    /// What each operation came after.
    after: HashMap<u64, Clock>,
    /// Questions asked, to see that a request asks few.
    pub questions: RefCell<u64>,
}

impl Device {
    /// Issues an operation.
    pub fn issue(&mut self, stream: StreamId) -> Moment {
        self.seq += 1;
        self.issued.entry(stream).or_default().push(self.seq);
        self.after.insert(self.seq, self.clocks.get(&stream).cloned().unwrap_or_default());
        Moment { stream, seq: self.seq }
    }

    /// The stream's last operation up to a number.
    fn last(&self, at: Moment) -> Option<u64> {
        let issued = self.issued.get(&at.stream)?;
        issued[..issued.partition_point(|seq| *seq <= at.seq)].last().copied()
    }

    /// The latest number given out.
    pub fn now(&self) -> u64 {
        self.seq
    }

    /// Finishes a stream's operations up to a number, and what they came after.
    pub fn finish(&mut self, stream: StreamId, seq: u64) {
        let before = self.last(Moment { stream, seq }).map(|last| self.after[&last].clone());
        for (stream, seq) in before.into_iter().flatten().chain([(stream, seq)]) {
            let done = self.done.entry(stream).or_default();
            *done = (*done).max(seq);
        }
    }

    /// Finishes every stream's operations up to a number.
    pub fn finish_all(&mut self, seq: u64) {
        for stream in self.issued.keys().copied().collect::<Vec<_>>() {
            self.finish(stream, seq);
        }
    }

    /// Finishes a frontier.
    pub fn finish_frontier(&mut self, frontier: &Frontier) {
        self.finish_all(frontier.epoch());
        for at in frontier.moments() {
            self.finish(at.stream, at.seq);
        }
    }

    /// Lets a stream wait for a moment, and so for what that came after.
    pub fn wait(&mut self, stream: StreamId, at: Moment) {
        let Some(last) = self.last(at) else { return };
        let clock = self.clocks.entry(stream).or_default();
        for (stream, seq) in self.after[&last].iter().chain([(&at.stream, &last)]) {
            let known = clock.entry(*stream).or_default();
            *known = (*known).max(*seq);
        }
    }
}

impl Timeline for Device {
    fn is_done(&self, at: Moment) -> bool {
        *self.questions.borrow_mut() += 1;
        self.done.get(&at.stream).is_some_and(|done| *done >= at.seq)
    }

    fn is_epoch_done(&self, epoch: u64) -> bool {
        *self.questions.borrow_mut() += 1;
        self.issued.keys().all(|stream| {
            let done = self.done.get(stream).copied().unwrap_or(0);
            self.last(Moment { stream: *stream, seq: epoch }).is_none_or(|last| done >= last)
        })
    }

    fn is_ordered_after(&self, stream: StreamId, at: Moment) -> bool {
        let clock = self.clocks.get(&stream);
        stream == at.stream || clock.and_then(|clock| clock.get(&at.stream)).is_some_and(|seq| *seq >= at.seq)
    }
}

/// Pools with their storage and device.
pub struct Rig {
    pub pools: MemoryPools<Counting>,
    pub storage: Counting,
    pub device: Device,
    generations: Vec<u32>,
    vacant: Vec<u32>,
}

/// One pool of every size, with pages from `first` to `largest` bytes.
pub fn pages(first: u64, largest: u64) -> PoolLayout {
    let pages = PageSizes::growing(first, largest, 12);
    PoolLayout::new(vec![PoolDescription::new("general", Placement::Fit, pages)]).unwrap()
}

pub fn stream(number: u64) -> StreamId {
    StreamId::from_raw(number)
}

pub fn frontier(moments: &[Moment]) -> Frontier {
    let mut frontier = Frontier::new();
    moments.iter().for_each(|at| frontier.add(*at));
    frontier
}

impl Rig {
    pub fn new() -> Self {
        Self::with(PoolsConfig { layout: pages(MIB, 64 * MIB), ..PoolsConfig::default() })
    }

    pub fn with(config: PoolsConfig) -> Self {
        let storage = Counting { alignment: config.alignment, step: config.growth_step, ..Counting::new() };
        Self {
            pools: MemoryPools::new(config),
            storage,
            device: Device::default(),
            generations: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// An id that nothing has.
    pub fn next_memory(&mut self) -> MemoryId {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.generations.push(0);
            self.generations.len() as u32 - 1
        });
        self.generations[index as usize] += 1;
        MemoryId { index, generation: self.generations[index as usize] }
    }

    pub fn try_reserve(&mut self, size: u64, stream: StreamId, mode: AllocationMode) -> Result<MemoryId, Pressure> {
        let memory = self.next_memory();
        let request = Request { memory, size, stream, mode };
        let result = self.pools.reserve(&mut self.storage, &request, &self.device);
        self.check();
        match result {
            Ok(()) => Ok(memory),
            Err(pressure) => {
                assert!(self.pools.place(memory).is_none(), "a refused request has no place");
                self.vacant.push(memory.index);
                Err(pressure)
            }
        }
    }

    pub fn reserve(&mut self, size: u64, stream: StreamId) -> MemoryId {
        self.try_reserve(size, stream, AllocationMode::Auto).expect("memory")
    }

    pub fn free(&mut self, memory: MemoryId, moments: &[Moment]) {
        assert!(self.pools.free(&mut self.storage, memory, frontier(moments), &self.device));
        assert!(self.pools.place(memory).is_none());
        self.vacant.push(memory.index);
        self.check();
    }

    /// After a drain, which forgets all allocations.
    pub fn forget_all(&mut self) {
        self.vacant = (0..self.generations.len() as u32).collect();
    }

    pub fn install(&mut self, layout: &PoolLayout) -> Result<(), Error> {
        let result = self.pools.install(&mut self.storage, layout, &self.device);
        self.check();
        result
    }

    pub fn cleanup(&mut self) {
        self.pools.cleanup(&mut self.storage, &self.device);
        self.check();
    }

    /// Page, offset and size of an allocation.
    pub fn place(&self, memory: MemoryId) -> (PageId, u64, u64) {
        let place = self.pools.place(memory).expect("live memory has a place");
        assert!(place.offset + place.size <= place.page.size);
        (place.page_id, place.offset, place.size)
    }

    /// The report's sums agree with each other, with the usage and with the storage.
    pub fn check(&self) {
        let report = self.pools.report(ReportScope::Device);
        for pool in &report.pools {
            assert_eq!(pool.reserved, pool.live + pool.padding + pool.free);
            assert!(pool.largest_free <= pool.free, "{pool:?}");
            assert!((0.0..=1.0).contains(&pool.fragmentation()));
            assert!(!pool.retired || pool.pages > 0, "{pool:?}");
            assert!(pool.peak_live >= pool.live && pool.peak_reserved >= pool.reserved);
        }
        assert_eq!(report.usage(), self.pools.usage());
        assert!(
            report.peak_reserved >= report.total().reserved && report.total().peak_reserved == report.peak_reserved
        );
        assert_eq!(report.total().reserved, self.storage.bytes);
        assert_eq!(report.total().pages, self.storage.pages() as u64);
    }
}
