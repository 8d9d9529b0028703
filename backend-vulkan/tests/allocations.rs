//! A warm launch allocates nothing on the heap, however its arguments reach the device.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{bytes_of, each, part};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use trunnion_backend_core::driver::{Driver, DriverGrid, Outcome};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no count any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SCALE: &str = "
struct Parameters { a: u32, b: u32 }
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> p: Parameters;
@compute @workgroup_size(32) fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&y) { y[id.x] = p.a * x[id.x] + p.b; }
}";

#[test]
fn a_warm_launch_allocates_nothing() {
    each(|rig| {
        let scale = rig.wgsl("scale", SCALE);
        let (x, y, counts) = (rig.page_of(&[1; 256]), rig.page_of(&[0; 256]), rig.page_of(&[1; 3]));
        let mut stream = rig.driver.open_stream().unwrap();
        let (mut outcome, parameters) = (Outcome::default(), bytes_of(&[3, 5]));
        let mut rounds = Vec::new();
        for round in 0..8 {
            let before = COUNT.get();
            for i in 0..64 {
                let buffers = [part(&x, 0, 1024 - 4 * (i % 2)), part(&y, 0, 1024)];
                let grid = match i % 8 {
                    0 => DriverGrid::Dynamic(part(&counts, 0, 12)),
                    _ => DriverGrid::Static([1, 1, 1]),
                };
                rig.launch_with(&mut stream, 64 * round + i + 1, &scale, grid, &buffers, &parameters).unwrap();
                rig.driver.barrier(&mut stream);
            }
            let seq = 64 * round + 64;
            rig.driver.submit(&mut stream, seq).unwrap();
            while rig.driver.poll(&mut stream, &mut outcome).unwrap() < seq {
                std::thread::yield_now();
            }
            assert!(outcome.failed.is_empty());
            rounds.push(COUNT.get() - before);
        }
        assert_eq!(rounds[4..], [0; 4], "{rounds:?}");
        assert_eq!(rig.read_u32(part(&y, 0, 4)), [8]);
        rig.driver.close_stream(stream);
    });
}
