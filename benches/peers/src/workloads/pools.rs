//! Memory pools beside the peer's memory management, over a storage that is nothing but numbers on both sides.
//!
//! Both pools have their default configuration, the same alignment and the same largest page. On both sides a job finds a place for an
//! allocation that the caller holds by something it can drop or give back, with everything that happened before known to be done. What a
//! server does besides is left out on both: the peer's binding of a client's handle to the place, our making of one.

use crate::beside::{Figures, attempt, measure};
use benches::alloc_count::allocations;
use benches::harness::{Case, Run, Target};
use benches::workloads::pools::{ALIGNMENT, Filled, MAX_PAGE, Ours, Pool, instructions, one_of_nine};
use cubecl_ir::MemoryDeviceProperties;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    ErrorGraph, ManagedMemoryHandle, MemoryConfiguration, MemoryManagement, MemoryManagementOptions, PageUpdate,
};
use cubecl_server::server::IoError;
use cubecl_server::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

/// Pages that are nothing but a size.
#[derive(Default)]
struct Nothing {
    pages: HashMap<StorageId, u64>,
    given: u64,
    high_water: u64,
}

impl ComputeStorage for Nothing {
    type Resource = ();

    fn alignment(&self) -> usize {
        ALIGNMENT as usize
    }

    fn get(&mut self, _: &StorageHandle) -> Result<(), IoError> {
        Ok(())
    }

    fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
        self.given += size;
        self.high_water = self.high_water.max(self.given);
        let id = StorageId::new();
        self.pages.insert(id, size);
        Ok(StorageHandle::new(id, StorageUtilization { offset: 0, size }))
    }

    fn dealloc(&mut self, id: StorageId) {
        self.given -= self.pages.remove(&id).unwrap_or(0);
    }

    fn flush(&mut self) {}

    fn bytes_allocated(&self) -> u64 {
        self.given
    }
}

struct Peer {
    memory: MemoryManagement<Nothing>,
    failures: ErrorGraph,
}

impl Peer {
    fn new() -> Self {
        let properties = MemoryDeviceProperties::new(MAX_PAGE, ALIGNMENT);
        let memory = MemoryManagement::from_configuration(
            Nothing::default(),
            &properties,
            MemoryConfiguration::default(),
            Arc::new(ServerLogger::default()),
            MemoryManagementOptions::new("bench"),
        );
        Self { memory, failures: ErrorGraph::default() }
    }
}

impl Pool for Peer {
    type Held = ManagedMemoryHandle;

    #[inline]
    fn reserve(&mut self, size: u64) -> Result<ManagedMemoryHandle, String> {
        self.memory
            .reserve(size, PageUpdate::Allow, &mut self.failures)
            .map_err(|error| format!("{size} bytes: {error:?}"))
    }

    #[inline]
    fn free(&mut self, held: ManagedMemoryHandle) {
        drop(held);
    }

    fn high_water(&mut self) -> u64 {
        self.memory.storage().high_water
    }
}

/// The peer's pools filled, or why they could not be.
fn filled(live: usize, size: u64) -> Result<Filled<Peer>, String> {
    attempt(|| Filled::new(Peer::new(), live, |_| size))
}

/// As many rounds of the peer as it takes; none where it could not be filled.
fn on<T>(
    peer: &mut Result<Filled<Peer>, String>,
    job: impl FnOnce(&mut Filled<Peer>) -> Result<T, String>,
) -> Result<T, String> {
    job(peer.as_mut().map_err(|reason| reason.clone())?)
}

/// Reserve one and free it, with so many live.
pub fn live(run: &mut Run) -> Result<(), Box<dyn Error>> {
    for (name, size, counts) in
        [("100KiB", 100 << 10, [0, 1_000, 4_000, 16_000]), ("256B", 256, [0, 1_000, 10_000, 50_000])]
    {
        let mut flat = None;
        for live in counts {
            // What is live stays as it is in a short run: it decides what is measured.
            let mut ours = Filled::new(Ours::default(), live, |_| size)?;
            let mut peer = filled(live, size);
            let (mine, yours) = (run.repeat(20_000), run.repeat(4_000_000 / (live + 400)));
            let one = || ours.reserve_and_free(size, mine).unwrap_or(f64::NAN) / 1e3;
            let times =
                measure(run.rounds(11), one, || on(&mut peer, |peer| Ok(peer.reserve_and_free(size, yours)? / 1e3)));
            times.report(run, &format!("{name}-{live}"), "µs", Some(Target::Value(1.0)));

            let count = |job: &mut dyn FnMut() -> Result<f64, String>, times: usize| -> Result<f64, String> {
                let mut done = Ok(0.0);
                let made = allocations(|| done = job());
                done.map(|_| made as f64 / times as f64)
            };
            let made = Figures::single(
                count(&mut || ours.reserve_and_free(size, 1_000), 1_000)?,
                attempt(|| count(&mut || on(&mut peer, |peer| peer.reserve_and_free(size, 20)), 20)),
            );
            made.report(run, &format!("{name}-{live}-allocations"), "allocations", Some(Target::Value(0.0)));

            // Flat, whatever the peer: beside ours with none live.
            let counted = instructions(size, live)?;
            let none = *flat.get_or_insert(counted);
            let case = format!("{name}-{live}-instructions");
            let peer = Some(("ours with none live", vec![none]));
            run.report(Case {
                case: &case,
                ours: vec![counted],
                unit: "instructions",
                peer,
                target: Some(Target::Ratio(1.2)),
            });
        }
    }
    Ok(())
}

/// 204,800 reservations of 1 MiB, of which 4,000 are live, the oldest freed first.
pub fn first_in_first_out(run: &mut Run) -> Result<(), Box<dyn Error>> {
    const SIZE: u64 = 1 << 20;
    const LIVE: usize = 4_000;
    let fresh = |started: std::time::Instant| started.elapsed().as_secs_f64() * 1e6 / LIVE as f64;
    let fill = measure(
        run.rounds(5),
        || {
            let started = std::time::Instant::now();
            Filled::new(Ours::default(), LIVE, |_| SIZE).map_or(f64::NAN, |_| fresh(started))
        },
        || {
            let started = std::time::Instant::now();
            filled(LIVE, SIZE).map(|_| fresh(started))
        },
    );
    fill.report(run, "fill", "µs", None);
    let (mut ours, mut peer) = (Filled::new(Ours::default(), LIVE, |_| SIZE)?, filled(LIVE, SIZE));
    let rounds = run.rounds(50);
    let each = run.repeat((204_800 - LIVE) / 50);
    let steady = measure(
        rounds,
        || ours.first_in_first_out(SIZE, each).unwrap_or(f64::NAN),
        || on(&mut peer, |peer| peer.first_in_first_out(SIZE, each)),
    );
    steady.report(run, "steady", "µs", Some(Target::Ratio(0.02)));
    Ok(())
}

/// 400 live of nine sizes; 50,000 times a random one is freed and one of a random size reserved.
pub fn mixed(run: &mut Run) -> Result<(), Box<dyn Error>> {
    const LIVE: usize = 400;
    let mut ours = Filled::new(Ours::default(), LIVE, one_of_nine)?;
    let mut peer = attempt(|| Filled::new(Peer::new(), LIVE, one_of_nine));
    let rounds = run.rounds(50);
    let each = run.repeat(1_000);
    let pair = measure(
        rounds,
        || ours.mixed(each, one_of_nine).unwrap_or(f64::NAN),
        || on(&mut peer, |peer| peer.mixed(each, one_of_nine)),
    );
    pair.report(run, "pair", "µs", Some(Target::Ratio(0.02)));
    let over = Figures::single(ours.over(), on(&mut peer, |peer| Ok(peer.over())));
    over.report(run, "over", "of peak live", Some(Target::Value(0.1)));
    Ok(())
}
