//! A launch's failure bookkeeping where nothing fails, for 1, 2 and 4 written buffers.

use crate::alloc_count::allocations;
use crate::callgrind;
use crate::harness::{Case, Run, Target};
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;
use trunnion_resource_tracker::{Name, Streams, Tracker, Use, Verdict};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::timeline::Moment;

/// How many buffers a launch writes, case by case.
pub const BUFFERS: [usize; 3] = [1, 2, 4];
/// The size of each, in bytes.
pub const SIZE: u64 = 4096;
/// How many cycles a round has.
pub const CYCLES: usize = 200_000;

/// Bookkeeping that can be done over and over: ours and the peer's.
pub trait Cycles {
    /// What a launch pays: its outputs are marked as not written, and the mark is taken off when it went well.
    fn cycle(&mut self);
}

/// Ours: what a server over the tracker does for a launch. It says besides what the launch must wait for, which the peer does elsewhere.
#[derive(Debug)]
pub struct Ours {
    tracker: Tracker,
    streams: Streams,
    uses: Vec<Use>,
    name: Name,
    at: Moment,
}

impl Ours {
    /// A tracker that knows so many buffers, of which every launch writes all.
    pub fn new(buffers: usize) -> Self {
        let (mut tracker, at) = (Tracker::new(), Moment { stream: StreamId::new(), seq: 1 });
        let memory = |index| MemoryId { index, generation: 0 };
        let write = |index| Use { memory: memory(index), range: 0..SIZE, access: Access::Write };
        let uses: Vec<_> = (0..buffers as u32).map(write).collect();
        uses.iter().for_each(|written| tracker.open(written.memory, SIZE, at));
        Self { name: tracker.name("kernel"), tracker, streams: Streams::new(), uses, at }
    }
}

impl Cycles for Ours {
    #[inline]
    fn cycle(&mut self) {
        self.at.seq += 1;
        // As on a busy device: a batch of 64 is unfinished while the next is encoded.
        if self.at.seq.is_multiple_of(64) {
            self.streams.issue(self.at);
            self.streams.complete(self.at.stream, self.at.seq - 64);
        }
        let resolved = self.tracker.resolve(self.at, self.name, black_box(&self.uses), &self.streams);
        assert!(matches!(black_box(&resolved).verdict, Verdict::Run));
        self.tracker.landed(self.at);
    }
}

/// A round, in ns a cycle.
pub fn round(cycles: &mut impl Cycles, count: usize) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        cycles.cycle();
    }
    start.elapsed().as_secs_f64() * 1e9 / count as f64
}

/// The allocations of so many cycles, warm.
pub fn allocations_of(cycles: &mut impl Cycles, count: usize) -> f64 {
    round(cycles, 1_000);
    allocations(|| {
        round(cycles, count);
    }) as f64
}

/// The instructions of a cycle of the counted case of that name.
///
/// # Errors
/// Where valgrind is missing.
pub fn instructions(case: &str) -> Result<f64, Box<dyn Error>> {
    callgrind::instructions(case, None, 2_000, 22_000)
}

/// `taint-cycle`: ours alone.
///
/// # Errors
/// Where valgrind is missing.
pub fn cycle(run: &mut Run) -> Result<(), Box<dyn Error>> {
    for buffers in BUFFERS {
        let (mut ours, cycles) = (Ours::new(buffers), run.repeat(CYCLES));
        round(&mut ours, cycles);
        let values = (0..run.rounds(15)).map(|_| round(&mut ours, cycles)).collect();
        run.report(Case { case: &buffers.to_string(), ours: values, unit: "ns", peer: None, target: None });
        let (case, made) = (format!("{buffers}-allocations"), allocations_of(&mut ours, cycles));
        let target = Some(Target::Value(0.0));
        run.report(Case { case: &case, ours: vec![made], unit: "allocations", peer: None, target });
        let (case, counted) = (format!("{buffers}-instructions"), instructions(&format!("taint-{buffers}"))?);
        run.report(Case { case: &case, ours: vec![counted], unit: "instructions", peer: None, target: None });
    }
    Ok(())
}

/// The parts that run under callgrind.
pub fn counted(case: &str, count: usize) -> Option<Result<(), Box<dyn Error>>> {
    let buffers = case.strip_prefix("taint-")?.parse().ok()?;
    round(&mut Ours::new(buffers), count);
    Some(Ok(()))
}
