//! How much of one arena is wasted at most: 1 − what was live at most / the highest end of a block.
//!
//! Everything lies in one arena without an end. The lifetime traces are replayed as a program would ask: at each time what ends is freed
//! before what begins is placed, in the order of the file, and nothing is known of the time to come. Sizes are as given, in units
//! of 1 KiB, of which the sizes of the known traces are multiples; others are rounded up.

use super::best_fit::BestFit;
use crate::harness::{Case, Run, Target, interleave};
use crate::lifetimes::{self, LETTERS, Lifetime, peak_live};
use offset_allocator::{Allocation, Allocator};
use std::error::Error;
use std::time::Instant;
use trunnion_memory_pools::placer::{BlockKey, MAX_SPAN, Placer, SegregatedFit};

const UNIT: u64 = 1024;
/// What the sizes of the seeded trace are multiples of.
const SEEDED_UNIT: u64 = 256;
const SEEDS: [u64; 3] = [1, 42, 0x5EED];
const OPERATIONS: usize = 10_000;
const LIVE: usize = 1000;

/// What a trace asks for, in the order of time.
#[derive(Clone, Copy)]
enum Operation {
    Allocate { id: u32, units: u32 },
    Free { id: u32 },
}

/// A trace, how many ids it has, the bytes of its units, and the most bytes that live at one time, as they were asked for.
struct Program {
    operations: Vec<Operation>,
    ids: usize,
    unit: u64,
    peak: u64,
}

/// An arena without an end, in units.
trait Arena {
    type Held: Copy;
    fn allocate(&mut self, units: u32) -> (Self::Held, u64);
    fn free(&mut self, held: Self::Held);
}

impl Arena for SegregatedFit {
    type Held = BlockKey;

    #[inline]
    fn allocate(&mut self, units: u32) -> (BlockKey, u64) {
        let block = Placer::allocate(self, units).expect("the arena has no end");
        (block.key, block.offset.into())
    }

    #[inline]
    fn free(&mut self, key: BlockKey) {
        Placer::free(self, key);
    }
}

impl Arena for Allocator {
    type Held = Allocation;

    #[inline]
    fn allocate(&mut self, units: u32) -> (Allocation, u64) {
        let block = self.allocate(units).expect("the arena has no end");
        (block, block.offset.into())
    }

    #[inline]
    fn free(&mut self, held: Allocation) {
        self.free(held);
    }
}

impl Arena for BestFit {
    type Held = (u64, u64);

    fn allocate(&mut self, units: u32) -> ((u64, u64), u64) {
        let offset = self.allocate(units.into());
        ((offset, units.into()), offset)
    }

    fn free(&mut self, (offset, units): (u64, u64)) {
        self.free(offset, units);
    }
}

fn ours() -> SegregatedFit {
    let mut placer = SegregatedFit::new();
    placer.add_span(0, MAX_SPAN);
    placer
}

impl Program {
    fn of_lifetimes(lifetimes: &[Lifetime]) -> Self {
        let living = lifetimes.iter().enumerate().filter(|(_, lifetime)| lifetime.lower < lifetime.upper);
        let mut events: Vec<_> =
            living.flat_map(|(id, lifetime)| [(lifetime.lower, true, id), (lifetime.upper, false, id)]).collect();
        events.sort_unstable();
        let operations = events.into_iter().map(|(_, begins, id)| {
            let units = lifetimes[id].size.div_ceil(UNIT).max(1) as u32;
            let id = id as u32;
            if begins { Operation::Allocate { id, units } } else { Operation::Free { id } }
        });
        Self { operations: operations.collect(), ids: lifetimes.len(), unit: UNIT, peak: peak_live(lifetimes) }
    }

    /// A thousand live blocks of 256 bytes to 64 MiB, as many of each power of two, that come and go at random.
    fn seeded(seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ z >> 31
        };
        let (mut operations, mut live, mut ids) = (Vec::new(), Vec::new(), 0);
        let (mut bytes, mut peak) = (0, 0);
        while operations.len() < OPERATIONS {
            if live.len() >= LIVE {
                let (id, size) = live.swap_remove((next() % live.len() as u64) as usize);
                bytes -= size;
                operations.push(Operation::Free { id });
            } else {
                let base = 1 << (8 + next() % 18);
                let size = base + next() % base;
                operations.push(Operation::Allocate { id: ids, units: size.div_ceil(SEEDED_UNIT) as u32 });
                live.push((ids, size));
                bytes += size;
                peak = peak.max(bytes);
                ids += 1;
            }
        }
        Self { operations, ids: ids as usize, unit: SEEDED_UNIT, peak }
    }

    /// What is wasted, and the ns an operation took.
    fn replay<A: Arena>(&self, mut arena: A) -> (f64, f64) {
        let mut held = vec![None; self.ids];
        let mut high_water = 0;
        let start = Instant::now();
        for operation in &self.operations {
            match *operation {
                Operation::Allocate { id, units } => {
                    let (block, offset) = arena.allocate(units);
                    held[id as usize] = Some(block);
                    high_water = high_water.max(offset + u64::from(units));
                }
                Operation::Free { id } => held[id as usize].take().into_iter().for_each(|block| arena.free(block)),
            }
        }
        let time = start.elapsed().as_secs_f64() * 1e9 / self.operations.len().max(1) as f64;
        (1.0 - self.peak as f64 / (high_water.max(1) * self.unit) as f64, time)
    }
}

/// `pool-waste`: the lifetime traces beside an exact best fit, the seeded trace beside `offset-allocator`, with the time that takes.
///
/// # Errors
/// A trace that cannot be read.
pub fn waste(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let (mut all, mut all_best) = (Vec::new(), Vec::new());
    for trace in lifetimes::traces(run)? {
        let program = Program::of_lifetimes(&trace.lifetimes);
        let (ours, best) = (program.replay(ours()).0, program.replay(BestFit::default()).0);
        let target = Some(Target::Value(best + 0.02));
        report(run, &trace.name, ours, (BEST_FIT, best), target);
        if LETTERS.contains(&trace.name.as_str()) {
            all.push(ours);
            all_best.push(best);
        }
    }
    if !all.is_empty() {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        report(run, "mean", mean(&all), (BEST_FIT, mean(&all_best)), Some(Target::Value(0.32)));
    }
    for seed in SEEDS {
        let program = Program::seeded(seed);
        let peer = || program.replay(Allocator::with_max_allocs(u32::MAX, 4 * LIVE as u32));
        let case = format!("seed-{seed}");
        report(run, &case, program.replay(ours()).0, ("offset-allocator", peer().0), Some(Target::Value(0.107)));
        let (times, peers) = interleave(run.rounds(101), || program.replay(ours()).1, || peer().1);
        let (case, target) = (format!("{case}-time"), Some(Target::Ratio(1.0)));
        run.report(Case { case: &case, ours: times, unit: "ns", peer: Some(("offset-allocator", peers)), target });
    }
    Ok(())
}

const BEST_FIT: &str = "best fit";

fn report(run: &mut Run, case: &str, ours: f64, peer: (&str, f64), target: Option<Target>) {
    let peer = Some((peer.0, vec![peer.1]));
    run.report(Case { case, ours: vec![ours], unit: "wasted", peer, target });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeded_trace_is_the_one_that_is_documented() {
        let mib = |seed| Program::seeded(seed).peak as f64 / (1 << 20) as f64;
        assert_eq!(SEEDS.map(|seed| (mib(seed) * 10.0).round() / 10.0), [5893.0, 6075.4, 6561.9]);
    }

    #[test]
    fn what_ends_makes_room_for_what_begins_at_the_same_time() {
        let lifetimes = lifetimes::parse("lower,upper,size\n0,5,2048\n5,9,2048\n2,9,1024").unwrap();
        let program = Program::of_lifetimes(&lifetimes);
        assert_eq!((program.replay(BestFit::default()).0, program.replay(ours()).0), (0.0, 0.0));
    }
}
