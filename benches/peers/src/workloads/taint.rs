//! A launch's failure bookkeeping where nothing fails, beside the peer's taint of an allocation and its graph of failures.
//!
//! The peer mints a provisional failure, points every written buffer at it, takes it off again and drops it: what its write scope does for
//! a launch, without the look-up of each buffer in its pools that the scope makes besides. Ours looks each buffer up, and says what the
//! launch must wait for on other streams; the peer keeps that elsewhere, and it is not counted.

use crate::beside::{Figures, attempt, measure};
use benches::callgrind;
use benches::harness::{Run, Target};
use benches::workloads::taint::{BUFFERS, CYCLES, Cycles, Ours, SIZE, allocations_of, instructions, round};
use cubecl_server::memory_management::{ErrorGraph, Taint};
use cubecl_server::server::ServerError;
use std::error::Error;

struct Peer {
    buffers: Vec<Taint>,
    failures: ErrorGraph,
}

impl Peer {
    fn new(buffers: usize) -> Self {
        Self { buffers: (0..buffers).map(|_| Taint::default()).collect(), failures: ErrorGraph::default() }
    }
}

impl Cycles for Peer {
    #[inline]
    fn cycle(&mut self) {
        let provisional = self.failures.insert(ServerError::TornDown);
        for buffer in &mut self.buffers {
            buffer.taint(0..SIZE, provisional, &mut self.failures);
        }
        for buffer in &mut self.buffers {
            buffer.written(0..SIZE, &mut self.failures);
        }
        self.failures.prune(provisional);
    }
}

pub fn cycle(run: &mut Run) -> Result<(), Box<dyn Error>> {
    for buffers in BUFFERS {
        let (mut ours, mut peer, cycles) = (Ours::new(buffers), Peer::new(buffers), run.repeat(CYCLES));
        let times = measure(run.rounds(15), || round(&mut ours, cycles), || Ok(round(&mut peer, cycles)));
        times.report(run, &buffers.to_string(), "ns", Some(Target::Ratio(0.5)));
        let made = Figures::single(
            allocations_of(&mut ours, cycles),
            attempt(|| Ok::<_, String>(allocations_of(&mut peer, cycles))),
        );
        made.report(run, &format!("{buffers}-allocations"), "allocations", Some(Target::Value(0.0)));
        let peers = attempt(|| callgrind::instructions(&format!("peer-taint-{buffers}"), None, 2_000, 22_000));
        let counted = Figures::single(instructions(&format!("taint-{buffers}"))?, peers);
        counted.report(run, &format!("{buffers}-instructions"), "instructions", None);
    }
    Ok(())
}

/// The parts that run under callgrind.
pub fn counted(case: &str, count: usize) -> Option<Result<(), Box<dyn Error>>> {
    let buffers = case.strip_prefix("peer-taint-")?.parse().ok()?;
    round(&mut Peer::new(buffers), count);
    Some(Ok(()))
}
