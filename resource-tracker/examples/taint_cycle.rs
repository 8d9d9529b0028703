//! A launch's bookkeeping on the success path, over and over, for 1, 2 and 4 written buffers: nanoseconds a cycle.
//!
//! With an argument (`1`, `2`, `4`) only that many buffers, and with a second one only so many cycles, for counting instructions:
//! run it with two counts under `valgrind --tool=callgrind` and divide the difference.

use core::hint::black_box;
use std::time::Instant;
use trunnion_resource_tracker::{Streams, Tracker, Use, Verdict};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::timeline::Moment;

/// Nanoseconds a cycle of `resolve` and `landed`.
fn cycles(buffers: u32, count: u64) -> f64 {
    let mut tracker = Tracker::new();
    let mut streams = Streams::new();
    let stream = StreamId::new();
    let name = tracker.name("kernel");
    let uses: Vec<Use> = (0..buffers)
        .map(|index| Use { memory: MemoryId { index, generation: 0 }, range: 0..4096, access: Access::Write })
        .collect();
    for u in &uses {
        tracker.open(u.memory, 4096, Moment { stream, seq: 1 });
    }
    // One operation stays unfinished for a while, as on a busy device; every 64th completes a batch.
    let start = Instant::now();
    for seq in 2..2 + count {
        let at = Moment { stream, seq };
        if seq.is_multiple_of(64) {
            streams.issue(at);
            streams.complete(stream, seq - 64);
        }
        let resolved = tracker.resolve(at, name, black_box(&uses), &streams);
        assert!(matches!(black_box(&resolved).verdict, Verdict::Run));
        tracker.landed(at);
    }
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let count = arguments.get(1).copied().unwrap_or(200_000);
    for buffers in [1, 2, 4] {
        if arguments.first().is_none_or(|only| *only == u64::from(buffers)) {
            let tries = if arguments.len() > 1 { 1 } else { 7 };
            let best = (0..tries).map(|_| cycles(buffers, count)).fold(f64::MAX, f64::min);
            println!("{buffers} written buffers: {best:.1} ns a cycle");
        }
    }
}
