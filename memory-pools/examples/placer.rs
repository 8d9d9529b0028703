//! The churn loop: frees a random one of N live blocks of 256 B to 16 KiB and places another, for counting instructions.
//!
//! `placer [placer|full|lag] LIVE PAIRS`: the bare placer, the whole pool with its table, frontiers and accounts, or that with a device that
//! is always 100 operations behind. The instructions of a pair are the difference of two runs:
//! `valgrind --tool=callgrind target/release/examples/placer placer 4096 200000`, and the same with 100000.

use core::hint::black_box;
use std::time::Instant;
use trunnion_memory_pools::placer::{BlockKey, Placer, SegregatedFit};
use trunnion_memory_pools::{MemoryPools, PoolsConfig, Request, Storage, StorageError};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::pool_layout::PoolLayout;
use trunnion_runtime_core::report::PoolKind;
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

/// Units of 16 bytes, as many as a peer that counts in them.
const UNIT: u64 = 16;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn size(&mut self) -> u64 {
        256 + self.next() % (16384 - 255)
    }
}

fn operations(random: &mut Random, live: usize, pairs: usize) -> Vec<(u32, u32)> {
    (0..pairs).map(|_| ((random.next() % live as u64) as u32, random.size() as u32)).collect()
}

#[inline(never)]
fn churn_placer(placer: &mut SegregatedFit, live: &mut [BlockKey], operations: &[(u32, u32)]) {
    for &(index, size) in operations {
        placer.free(live[index as usize]);
        if let Ok(block) = placer.allocate(size.div_ceil(UNIT as u32)) {
            live[index as usize] = block.key;
        }
    }
}

/// Pages that are nothing but a size.
struct Nothing;

impl Storage for Nothing {
    type Page = u64;

    fn allocate(&mut self, size: u64, _: PoolKind) -> Result<u64, StorageError> {
        Ok(size)
    }

    fn release(&mut self, _: u64) {}

    fn alignment(&self) -> u64 {
        UNIT
    }

    fn max_page(&self) -> u64 {
        1 << 40
    }
}

struct Done(u64);

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

/// A pool whose first page has so many bytes.
fn one_page(bytes: u64) -> PoolLayout {
    PoolLayout::fixed(bytes).unwrap_or_default()
}

#[inline(never)]
fn churn_pools(pools: &mut MemoryPools<Nothing>, operations: &[(u32, u32)], seq: &mut u64, lag: u64) {
    let stream = StreamId::from_raw(1);
    for &(index, size) in operations {
        *seq += 1;
        let timeline = Done(seq.saturating_sub(lag));
        let memory = MemoryId { index, generation: 0 };
        let mut frontier = Frontier::new();
        frontier.add(Moment { stream, seq: *seq });
        pools.free(&mut Nothing, memory, frontier, &timeline);
        let request = Request { memory, size: size.into(), stream, mode: AllocationMode::Auto };
        let _ = black_box(pools.reserve(&mut Nothing, &request, &timeline));
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.first().map_or("placer", String::as_str);
    let number = |i: usize, default| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (live, pairs): (usize, usize) = (number(1, 4096), number(2, 200_000));
    let mut random = Random(99);
    let operations = operations(&mut random, live, pairs);
    let total = live as u64 * 16384 * 2;
    let elapsed = if what == "placer" {
        let mut placer = SegregatedFit::new();
        placer.add_span(0, (total / UNIT) as u32);
        let mut blocks = Vec::new();
        while blocks.len() < live
            && let Ok(block) = placer.allocate(random.size().div_ceil(UNIT) as u32)
        {
            blocks.push(block.key);
        }
        let start = Instant::now();
        churn_placer(&mut placer, &mut blocks, &operations);
        start.elapsed()
    } else {
        let mut pools = MemoryPools::new(PoolsConfig { layout: one_page(total), ..PoolsConfig::fitting(&Nothing) });
        for index in 0..live as u32 {
            let memory = MemoryId { index, generation: 0 };
            let request =
                Request { memory, size: random.size(), stream: StreamId::from_raw(1), mode: AllocationMode::Auto };
            let _ = pools.reserve(&mut Nothing, &request, &Done(0));
        }
        let start = Instant::now();
        churn_pools(&mut pools, &operations, &mut 0, if what == "lag" { 100 } else { 0 });
        start.elapsed()
    };
    println!("{what}, {live} live: {:.1} ns a pair", elapsed.as_nanos() as f64 / pairs as f64);
}
