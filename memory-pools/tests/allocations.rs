//! Once warm, a request and a free allocate nothing on the heap.
//!
//! Invariant of the one unsafe item: every call is passed on to the system's allocator as it came.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use std::alloc::System;
use trunnion_memory_pools::{MemoryPools, PoolsConfig, Request, Storage, StorageError};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::pool_layout::PoolLayout;
use trunnion_runtime_core::report::PoolKind;
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every method hands its arguments to `System` unchanged, so its guarantees are those of `System`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises for `alloc` are those `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` through `alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Pages;

impl Storage for Pages {
    type Page = u64;

    fn allocate(&mut self, size: u64, _: PoolKind) -> Result<u64, StorageError> {
        Ok(size)
    }

    fn release(&mut self, _: u64) {}

    fn alignment(&self) -> u64 {
        256
    }

    fn max_page(&self) -> u64 {
        1 << 40
    }
}

struct Lagging(u64);

impl Timeline for Lagging {
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

fn churn(pools: &mut MemoryPools<Pages>, seq: &mut u64, rounds: u64, lag: u64) {
    let mut random = *seq | 1;
    for _ in 0..rounds {
        for _ in 0..2000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            *seq += 1;
            let timeline = Lagging(seq.saturating_sub(lag));
            let (index, stream) = ((random >> 8) as u32 % 500, StreamId::from_raw(1 + random % 8));
            let memory = MemoryId { index, generation: 0 };
            let mut frontier = Frontier::new();
            frontier.add(Moment { stream, seq: *seq });
            if random.is_multiple_of(4) {
                frontier.add(Moment { stream: StreamId::from_raw(1 + random % 5), seq: *seq - 1 });
            }
            pools.free(&mut Pages, memory, frontier, &timeline);
            let request = Request { memory, size: 1 + (random >> 20) % 20_000, stream, mode: AllocationMode::Auto };
            pools.reserve(&mut Pages, &request, &timeline).expect("there is no limit");
        }
    }
}

#[test]
fn a_warm_pool_allocates_nothing_on_the_heap() {
    for lag in [0, 50] {
        // A page with room for all there ever is: taking another one is not what is asked here.
        let layout = PoolLayout::fixed(32 << 20).unwrap();
        let mut pools = MemoryPools::new(PoolsConfig { layout, ..PoolsConfig::fitting(&Pages) });
        let mut seq = 0;
        churn(&mut pools, &mut seq, 50, lag);
        let before = COUNT.get();
        churn(&mut pools, &mut seq, 10, lag);
        assert_eq!(COUNT.get() - before, 0, "lag {lag}");
    }
}
