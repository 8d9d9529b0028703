//! Memory pools over a storage that is nothing but numbers: ours, and what is done with ours and the peer's. And what many streams and
//! threads leave of a device's memory.

use crate::callgrind;
use crate::harness::{Case, Run, Target};
use std::error::Error;
use std::thread;
use std::time::Instant;
use trunnion_memory_pools::{MemoryPools, PoolsConfig, Request, Storage, StorageError};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::Result as CoreResult;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::report::PoolKind;
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

/// What offsets are multiples of, in bytes, as on CUDA; on both sides.
pub const ALIGNMENT: u64 = 256;
/// The largest page the storage gives, in bytes, as a card with 16 GiB would; on both sides.
pub const MAX_PAGE: u64 = 4 << 30;

/// Memory management as a server holds it: ours and the peer's, each in its default configuration.
pub trait Pool {
    /// What an allocation is held by.
    type Held;

    /// Finds a place for so many bytes.
    ///
    /// # Errors
    /// The pool's own, in words.
    fn reserve(&mut self, size: u64) -> Result<Self::Held, String>;

    /// Gives an allocation back; everything it was used for is done.
    fn free(&mut self, held: Self::Held);

    /// The most bytes the storage ever gave at a time.
    fn high_water(&mut self) -> u64;
}

/// Pages that are nothing but a size.
#[derive(Debug, Default)]
struct Nothing {
    given: u64,
    high_water: u64,
}

impl Storage for Nothing {
    type Page = u64;

    fn allocate(&mut self, size: u64, _: PoolKind) -> Result<u64, StorageError> {
        self.given += size;
        self.high_water = self.high_water.max(self.given);
        Ok(size)
    }

    fn release(&mut self, page: u64) {
        self.given -= page;
    }

    fn alignment(&self) -> u64 {
        ALIGNMENT
    }

    fn max_page(&self) -> u64 {
        MAX_PAGE
    }
}

/// A device that has done everything up to a number.
pub(super) struct Done(pub(super) u64);

impl Timeline for Done {
    fn is_done(&self, at: Moment) -> bool {
        at.seq <= self.0
    }

    fn is_epoch_done(&self, epoch: u64) -> bool {
        epoch <= self.0
    }

    fn is_ordered_after(&self, stream: StreamId, at: Moment) -> bool {
        stream == at.stream
    }
}

/// Ours, with the ids and last uses that a server gives them.
#[derive(Debug)]
pub struct Ours {
    pools: MemoryPools<Nothing>,
    storage: Nothing,
    stream: StreamId,
    seq: u64,
    /// Slots that hold nothing, and how many slots there are.
    vacant: Vec<u32>,
    slots: u32,
}

impl Default for Ours {
    fn default() -> Self {
        let storage = Nothing::default();
        let pools = MemoryPools::new(PoolsConfig::fitting(&storage));
        Self { pools, storage, stream: StreamId::from_raw(1), seq: 0, vacant: Vec::new(), slots: 0 }
    }
}

impl Pool for Ours {
    type Held = MemoryId;

    #[inline]
    fn reserve(&mut self, size: u64) -> Result<MemoryId, String> {
        self.seq += 1;
        let index = self.vacant.pop().unwrap_or(self.slots);
        self.slots = self.slots.max(index + 1);
        let memory = MemoryId { index, generation: 0 };
        let request = Request { memory, size, stream: self.stream, mode: AllocationMode::Auto };
        self.pools
            .reserve(&mut self.storage, &request, &Done(self.seq))
            .map_err(|pressure| format!("{size} bytes: {pressure:?}"))?;
        Ok(memory)
    }

    #[inline]
    fn free(&mut self, held: MemoryId) {
        self.seq += 1;
        let mut frontier = Frontier::new();
        frontier.add(Moment { stream: self.stream, seq: self.seq });
        self.pools.free(&mut self.storage, held, frontier, &Done(self.seq));
        self.vacant.push(held.index);
    }

    fn high_water(&mut self) -> u64 {
        self.storage.high_water
    }
}

/// A pool and what is live in it, the oldest first.
#[derive(Debug)]
pub struct Filled<P: Pool> {
    /// The pool.
    pub pool: P,
    live: Vec<Option<P::Held>>,
    sizes: Vec<u64>,
    next: usize,
    random: Random,
    peak: u64,
}

impl<P: Pool> Filled<P> {
    /// `live` allocations of the sizes that `size` gives.
    ///
    /// # Errors
    /// The pool's own.
    pub fn new(mut pool: P, live: usize, size: impl Fn(&mut Random) -> u64) -> Result<Self, String> {
        let mut random = Random(99);
        let sizes: Vec<_> = (0..live).map(|_| size(&mut random)).collect();
        let live = sizes.iter().map(|size| pool.reserve(*size).map(Some)).collect::<Result<_, _>>()?;
        let peak = sizes.iter().sum();
        Ok(Self { pool, live, sizes, next: 0, random, peak })
    }

    /// Reserves one of that size and frees it, in ns a time.
    ///
    /// # Errors
    /// The pool's own.
    pub fn reserve_and_free(&mut self, size: u64, count: usize) -> Result<f64, String> {
        let start = Instant::now();
        for _ in 0..count {
            let held = self.pool.reserve(size)?;
            self.pool.free(held);
        }
        Ok(start.elapsed().as_secs_f64() * 1e9 / count as f64)
    }

    /// Frees the oldest and reserves another of that size, in µs a time.
    ///
    /// # Errors
    /// The pool's own.
    pub fn first_in_first_out(&mut self, size: u64, count: usize) -> Result<f64, String> {
        let start = Instant::now();
        for _ in 0..count {
            let place = self.next % self.live.len();
            self.replace(place, size)?;
            self.next += 1;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
    }

    /// Frees a random one and reserves another of a random size, in µs a time.
    ///
    /// # Errors
    /// The pool's own.
    pub fn mixed(&mut self, count: usize, size: impl Fn(&mut Random) -> u64) -> Result<f64, String> {
        let mut bytes: u64 = self.sizes.iter().sum();
        let start = Instant::now();
        for _ in 0..count {
            let place = self.random.below(self.live.len());
            let size = size(&mut self.random);
            bytes = bytes - self.sizes[place] + size;
            self.peak = self.peak.max(bytes);
            self.replace(place, size)?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
    }

    fn replace(&mut self, place: usize, size: u64) -> Result<(), String> {
        if let Some(held) = self.live[place].take() {
            self.pool.free(held);
        }
        self.live[place] = Some(self.pool.reserve(size)?);
        self.sizes[place] = size;
        Ok(())
    }

    /// What the storage gave at most, over what was live at most, less one.
    pub fn over(&mut self) -> f64 {
        self.pool.high_water() as f64 / self.peak as f64 - 1.0
    }
}

/// A generator that is the same on every machine.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed, which is not 0.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// One of the nine sizes of pool-mixed.
#[inline]
pub fn one_of_nine(random: &mut Random) -> u64 {
    const KIB: [u64; 9] = [4, 16, 64, 256, 1024, 2048, 4096, 8192, 12288];
    KIB[random.below(KIB.len())] << 10
}

/// How many streams, and how many allocations they hold together.
const STREAMS: usize = 8;
const HELD: usize = 1600;
/// How many operations the device is behind. What they use cannot be reused by all streams, and is a 25th of what is held.
const BEHIND: u64 = 64;

/// The high water of 8 streams, and of threads that come and go, over the most that was live at once.
pub fn streams(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let operations = run.repeat(100_000).max(HELD);
    let over = (0..run.rounds(5)).map(|round| high_water(operations, 99 + round as u64)).collect::<Result<_, _>>()?;
    let unit = "of peak live";
    run.report(Case { case: "high-water", ours: over, unit, peer: None, target: Some(Target::Value(1.25)) });
    let count = run.repeat(1000).max(64);
    let over = (0..run.rounds(5)).map(|_| threads(count)).collect::<Result<_, _>>()?;
    run.report(Case { case: "threads", ours: over, unit, peer: None, target: Some(Target::Value(1.25)) });
    Ok(())
}

/// Random sizes up to 256 KiB on 8 streams: as many live as ever, each freed after a last use on its stream, on a device that is behind.
fn high_water(operations: usize, seed: u64) -> Result<f64, String> {
    let mut storage = Nothing::default();
    let mut pools = MemoryPools::new(PoolsConfig::fitting(&storage));
    let mut random = Random(seed);
    let mut held: Vec<(u64, StreamId)> = Vec::with_capacity(HELD);
    let (mut live, mut peak, mut seq) = (0, 0, 0u64);
    for _ in 0..HELD + operations {
        seq += 1;
        let (stream, size) = (StreamId::from_raw(1 + random.below(STREAMS) as u64), 1 + random.below(256 << 10) as u64);
        let index = if held.len() < HELD { held.len() } else { random.below(HELD) };
        let memory = MemoryId { index: index as u32, generation: 0 };
        match held.get_mut(index) {
            Some(before) => {
                let mut last = Frontier::new();
                last.add(Moment { stream: before.1, seq });
                pools.free(&mut storage, memory, last, &Done(seq.saturating_sub(BEHIND)));
                live -= before.0;
                *before = (size, stream);
            }
            None => held.push((size, stream)),
        }
        live += size;
        peak = peak.max(live);
        seq += 1;
        let request = Request { memory, size, stream, mode: AllocationMode::Auto };
        let placed = pools.reserve(&mut storage, &request, &Done(seq.saturating_sub(BEHIND)));
        placed.map_err(|pressure| format!("{size} bytes: {pressure}"))?;
    }
    Ok(storage.high_water as f64 / peak as f64)
}

/// Threads that each allocate 1 MiB on a host device, launch over it, wait for that and end, eight at a time. What is reserved after
/// them, over the most they had at once.
fn threads(count: usize) -> Result<f64, Box<dyn Error>> {
    let client = super::start::open_host()?;
    let kernel = client.prepare(super::start::increment())?;
    for _ in 0..count.div_ceil(STREAMS) {
        thread::scope(|scope| {
            let work = || -> CoreResult<()> {
                let buffer = client.empty(1 << 20)?;
                client.launch(&kernel, Grid::x(1 << 12), [&buffer])?;
                client.sync()?.wait()
            };
            let threads: Vec<_> = (0..STREAMS).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("the thread ends"))
        })?;
    }
    Ok(client.memory_usage()?.reserved as f64 / (STREAMS << 20) as f64)
}

/// The instructions of a reservation and a free of ours with so many live of that size.
///
/// # Errors
/// Where valgrind is missing.
pub fn instructions(size: u64, live: usize) -> Result<f64, Box<dyn Error>> {
    callgrind::instructions(&format!("pool-live-{size}-{live}"), None, 2_000, 12_000)
}

/// The parts that run under callgrind.
pub fn counted(case: &str, count: usize) -> Option<Result<(), Box<dyn Error>>> {
    let (size, live) = case.strip_prefix("pool-live-")?.split_once('-')?;
    let (size, live) = (size.parse().ok()?, live.parse().ok()?);
    let run = Filled::new(Ours::default(), live, |_| size).and_then(|mut filled| filled.reserve_and_free(size, count));
    Some(run.map(|_| ()).map_err(Into::into))
}
