//! Frees a random one of N live blocks of 256 B to 16 KiB and places another, in units of 16 bytes, which is what the peer's users do.

use crate::callgrind;
use crate::harness::{Case, Run, Target, interleave};
use crate::workloads::pools::Done;
use offset_allocator::{Allocation, Allocator};
use std::error::Error;
use std::time::Instant;
use trunnion_memory_pools::placer::{BlockKey, Placer, SegregatedFit};
use trunnion_memory_pools::{MemoryPools, PoolsConfig, Request, Storage, StorageError};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::report::PoolKind;
use trunnion_runtime_core::timeline::{Frontier, Moment};

const PEER: &str = "offset-allocator";
const ROOM: &str = "the arena is four times what lives";
const UNIT: u64 = 16;
const LIVE: [usize; 4] = [16, 256, 4096, 65536];
/// How many pairs a round makes, and how many the counted run does at least and at most.
const PAIRS: usize = 200_000;
const FEW: u64 = 20_000;
const MANY: u64 = 60_000;

/// The most instructions of a pair.
const MOST: f64 = 340.0;
/// How many times the fewest of them the most are at most.
const FLAT: f64 = 1.1;
/// How many times a bare placer's instructions the whole pool's are at most.
const FULL: f64 = 2.5;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn size(&mut self) -> u32 {
        (256 + self.next() % (16384 - 255)) as u32
    }
}

/// What is measured.
trait Churn {
    /// Places another live block.
    fn place(&mut self, size: u32);

    /// Frees one of the live blocks and places another instead.
    fn replace(&mut self, index: usize, size: u32);
}

/// What is filled, and the pairs to come, the same for all.
struct Filled<C> {
    churn: C,
    pairs: Vec<(u32, u32)>,
}

impl<C: Churn> Filled<C> {
    fn new(live: usize, pairs: usize, mut churn: C) -> Self {
        let mut random = Random(99);
        let pairs = (0..pairs).map(|_| ((random.next() % live as u64) as u32, random.size())).collect();
        (0..live).for_each(|_| churn.place(random.size()));
        Self { churn, pairs }
    }

    /// The first `count` pairs.
    #[inline]
    fn run(&mut self, count: usize) {
        let pairs = self.pairs.iter().take(count);
        pairs.for_each(|(index, size)| self.churn.replace(*index as usize, *size));
    }

    /// In ns a pair.
    fn round(&mut self) -> f64 {
        let start = Instant::now();
        self.run(usize::MAX);
        start.elapsed().as_secs_f64() * 1e9 / self.pairs.len() as f64
    }
}

/// The bytes of the arena: four times what lives.
fn arena(live: usize) -> u64 {
    live as u64 * 16384 * 2
}

fn units(size: u32) -> u32 {
    size.div_ceil(UNIT as u32)
}

struct Ours(SegregatedFit, Vec<BlockKey>);

impl Ours {
    fn new(live: usize) -> Self {
        let mut placer = SegregatedFit::new();
        placer.add_span(0, (arena(live) / UNIT) as u32);
        Self(placer, Vec::new())
    }

    #[inline]
    fn allocate(&mut self, size: u32) -> BlockKey {
        self.0.allocate(units(size)).expect(ROOM).key
    }
}

impl Churn for Ours {
    fn place(&mut self, size: u32) {
        let key = self.allocate(size);
        self.1.push(key);
    }

    #[inline]
    fn replace(&mut self, index: usize, size: u32) {
        self.0.free(self.1[index]);
        self.1[index] = self.allocate(size);
    }
}

struct Peer(Allocator, Vec<Allocation>);

impl Peer {
    fn new(live: usize) -> Self {
        // One node a block, and one a hole.
        Self(Allocator::with_max_allocs((arena(live) / UNIT) as u32, 2 * live as u32 + 16), Vec::new())
    }
}

impl Churn for Peer {
    fn place(&mut self, size: u32) {
        let block = self.0.allocate(units(size)).expect(ROOM);
        self.1.push(block);
    }

    #[inline]
    fn replace(&mut self, index: usize, size: u32) {
        self.0.free(self.1[index]);
        self.1[index] = self.0.allocate(units(size)).expect(ROOM);
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

/// The whole pool: its table of allocations, their last uses, the accounts.
struct Full {
    pools: MemoryPools<Nothing>,
    stream: StreamId,
    seq: u64,
    live: u32,
}

impl Full {
    fn new() -> Self {
        let pools = MemoryPools::new(PoolsConfig::fitting(&Nothing));
        Self { pools, stream: StreamId::from_raw(1), seq: 0, live: 0 }
    }

    #[inline]
    fn reserve(&mut self, index: u32, size: u32) {
        let memory = MemoryId { index, generation: 0 };
        let request = Request { memory, size: size.into(), stream: self.stream, mode: AllocationMode::Auto };
        self.pools.reserve(&mut Nothing, &request, &Done(self.seq)).expect(ROOM);
    }
}

impl Churn for Full {
    fn place(&mut self, size: u32) {
        self.live += 1;
        self.reserve(self.live - 1, size);
    }

    #[inline]
    fn replace(&mut self, index: usize, size: u32) {
        self.seq += 1;
        let mut frontier = Frontier::new();
        frontier.add(Moment { stream: self.stream, seq: self.seq });
        let memory = MemoryId { index: index as u32, generation: 0 };
        self.pools.free(&mut Nothing, memory, frontier, &Done(self.seq));
        self.reserve(index as u32, size);
    }
}

/// `pool-churn`. A count of instructions above its bound is an error, since a count is the same on a busy machine.
///
/// # Errors
/// The bounds that were crossed, and where valgrind is missing.
pub fn churn(run: &mut Run) -> Result<(), Box<dyn Error>> {
    let mut counts = Vec::new();
    for live in LIVE {
        let (rounds, pairs) = (run.rounds(9), run.repeat(PAIRS));
        let mut ours = Filled::new(live, pairs, Ours::new(live));
        let mut peer = Filled::new(live, pairs, Peer::new(live));
        let (values, peers) = interleave(rounds, || ours.round(), || peer.round());
        let target = (live <= 4096).then_some(Target::Ratio(1.1));
        let case = &format!("placer-{live}");
        run.report(Case { case, ours: values, unit: "ns", peer: Some((PEER, peers)), target });
        let mut full = Filled::new(live, pairs, Full::new());
        full.run(usize::MAX);
        let values = (0..rounds).map(|_| full.round()).collect();
        run.report(Case { case: &format!("full-{live}"), ours: values, unit: "ns", peer: None, target: None });

        let [placer, peer, full] = ["placer", "peer", "full"].map(|what| instructions(what, live));
        let (placer, peer, full) = (placer?, peer?, full?);
        let mut count = |what: &str, value: f64, peer: (&str, f64), target| {
            let (case, peer) = (format!("{what}-{live}-instructions"), Some((peer.0, vec![peer.1])));
            run.report(Case { case: &case, ours: vec![value], unit: "instructions", peer, target: Some(target) });
        };
        count("placer", placer, (PEER, peer), Target::Value(MOST));
        count("full", full, ("the bare placer", placer), Target::Ratio(FULL));
        counts.push(Count { live, placer, full });
    }
    match crossed(&counts).as_slice() {
        [] => Ok(()),
        crossed => Err(crossed.join("; ").into()),
    }
}

/// The instructions of a pair.
#[derive(Clone, Copy)]
struct Count {
    live: usize,
    placer: f64,
    full: f64,
}

/// The bounds that are crossed, each with the value and the limit.
fn crossed(counts: &[Count]) -> Vec<String> {
    let mut crossed = Vec::new();
    for Count { live, placer, full } in counts.iter().copied() {
        if placer > MOST {
            crossed.push(format!("placer-{live}-instructions: {placer:.0}, at most {MOST}"));
        }
        // Not of what the placer takes, or a faster placer would cross it.
        let most = FULL * MOST;
        if full > most {
            crossed.push(format!("full-{live}-instructions: {full:.0}, at most {most}"));
        }
    }
    let placers = || counts.iter().map(|count| count.placer);
    let (fewest, most) = (placers().fold(f64::MAX, f64::min), placers().fold(0.0, f64::max));
    if most > FLAT * fewest {
        crossed.push(format!("placer: {fewest:.0} to {most:.0} instructions, at most {FLAT} times the fewest"));
    }
    crossed
}

fn instructions(what: &str, live: usize) -> Result<f64, Box<dyn Error>> {
    callgrind::instructions(&format!("churn-{what}-{live}"), None, FEW, MANY)
}

/// The parts that run under callgrind.
pub fn counted(case: &str, count: usize) -> Option<Result<(), Box<dyn Error>>> {
    let (what, live) = case.strip_prefix("churn-")?.split_once('-')?;
    let live = live.parse().ok().filter(|live| LIVE.contains(live))?;
    match what {
        "placer" => Filled::new(live, MANY as usize, Ours::new(live)).run(count),
        "peer" => Filled::new(live, MANY as usize, Peer::new(live)).run(count),
        "full" => Filled::new(live, MANY as usize, Full::new()).run(count),
        _ => return None,
    }
    Some(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(live: usize, placer: f64, full: f64) -> Count {
        Count { live, placer, full }
    }

    #[test]
    fn a_count_above_its_bound_is_named_with_the_value_and_the_limit() {
        assert_eq!(crossed(&[count(16, 340.0, 850.0), count(256, 310.0, 700.0)]), [""; 0]);
        assert_eq!(crossed(&[count(16, 341.0, 700.0)]), ["placer-16-instructions: 341, at most 340"]);
        assert_eq!(crossed(&[count(16, 300.0, 851.0)]), ["full-16-instructions: 851, at most 850"]);
        let steep = crossed(&[count(16, 300.0, 600.0), count(256, 331.0, 600.0)]);
        assert_eq!(steep, ["placer: 300 to 331 instructions, at most 1.1 times the fewest"]);
    }
}
