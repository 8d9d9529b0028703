//! The warm success path allocates nothing.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use std::alloc::System;
use trunnion_resource_tracker::{Streams, Tracker, Use, Verdict};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::timeline::Moment;

struct Counting;

std::thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches only a thread local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.with(|c| c.set(c.get() + 1));
        // SAFETY: `at` came from `System`.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.with(Cell::get);
    work();
    COUNT.with(Cell::get) - before
}

struct Device {
    tracker: Tracker,
    streams: Streams,
    seq: u64,
}

impl Device {
    /// One operation on one of three streams; 64 stay unfinished.
    fn operation(&mut self, stream: u64, uses: &[Use]) {
        self.seq += 1;
        let at = Moment { stream: StreamId::from_raw(stream), seq: self.seq };
        let name = self.tracker.name("kernel");
        self.streams.issue(at);
        let resolved = self.tracker.resolve(at, name, uses, &self.streams);
        assert!(matches!(resolved.verdict, Verdict::Run));
        self.streams.waited_for(at, &resolved.waits);
        self.tracker.landed(at);
        for stream in 1..=3 {
            self.streams.complete(StreamId::from_raw(stream), self.seq.saturating_sub(64));
        }
        if self.seq.is_multiple_of(64) {
            self.tracker.retire(&self.streams);
        }
    }
}

#[test]
fn nothing_is_allocated_once_warm_for_whole_buffers_and_parts_on_three_streams() {
    let mut device = Device { tracker: Tracker::new(), streams: Streams::new(), seq: 0 };
    let memory = |index| MemoryId { index, generation: 0 };
    for index in 0..8 {
        device.tracker.open(memory(index), 4096, Moment { stream: StreamId::from_raw(1), seq: 0 });
    }
    let accesses = [Access::Read, Access::ReadWrite, Access::Write, Access::Overwrite];
    let whole: Vec<Use> =
        (0..4).map(|i| Use { memory: memory(i), range: 0..4096, access: accesses[i as usize] }).collect();
    let parts: Vec<Vec<Use>> = (0..8)
        .map(|k| {
            (4..8)
                .map(|i| Use { memory: memory(i), range: k * 512..k * 512 + 512, access: accesses[i as usize - 4] })
                .collect()
        })
        .collect();
    let mut round = |count: u64| {
        for k in 0..count {
            device.operation(1 + k % 3, &whole);
            device.operation(1 + k % 3, &parts[(k % 8) as usize]);
        }
    };
    round(1000);
    assert_eq!(allocations(|| round(1000)), 0);
}
