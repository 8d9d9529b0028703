//! A device: its memory budget, its properties, and what was noticed on it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::HashSet;
use std::sync::Mutex;

use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::faults::Calls;
use crate::memory::{Kind, Region};
use crate::pool::Pool;
use crate::report::{ReportKind, Reports};
use crate::sync::lock;

/// Threads of a block at most.
pub(crate) const MOST_THREADS: u32 = 1024;
/// Shared memory of a block without asking.
pub(crate) const SHARED_BYTES: u32 = 48 << 10;
/// Shared memory of a block that asked.
pub(crate) const SHARED_BYTES_ASKED: u32 = 227 << 10;
/// Compute capability: code for later hardware is refused.
pub(crate) const CAPABILITY: (u32, u32) = (9, 0);
/// The newest PTX that a driver for CUDA 13.0 takes.
pub(crate) const PTX_VERSION: (u32, u32) = (9, 0);
/// Multiprocessors.
pub(crate) const MULTIPROCESSORS: u32 = 132;
/// Threads that a multiprocessor holds at once.
pub(crate) const RESIDENT_THREADS: u32 = 2048;
/// Blocks that a multiprocessor holds at once.
pub(crate) const RESIDENT_BLOCKS: u32 = 32;

/// Bytes a device has when nobody says otherwise.
const MEMORY: u64 = 1 << 30;
/// Instructions of a launch when nobody says otherwise.
const INSTRUCTIONS: u64 = 500_000_000;

/// One device.
pub(crate) struct Device {
    pub(crate) ordinal: u32,
    pub(crate) calls: Calls,
    pub(crate) reports: Reports,
    total: AtomicU64,
    used: AtomicU64,
    instructions: AtomicU64,
    /// Seed of the pauses before work; zero for none.
    delays: AtomicU64,
    /// Microseconds by which events come late.
    lateness: AtomicU64,
    pub(crate) primary: Mutex<Primary>,
    /// Devices that cannot be reached from here.
    unreachable: Mutex<HashSet<u32>>,
    pools: Mutex<Pools>,
    claimed: AtomicBool,
}

/// The context that everyone in the process shares.
#[derive(Default)]
pub(crate) struct Primary {
    pub(crate) context: Option<Arc<Context>>,
    pub(crate) retained: u32,
}

struct Pools {
    default: Arc<Pool>,
    current: Arc<Pool>,
}

impl Device {
    pub(crate) fn new(ordinal: u32) -> Self {
        let pool = Arc::new(Pool::new(ordinal));
        Self {
            ordinal,
            calls: Calls::default(),
            reports: Reports::default(),
            total: AtomicU64::new(MEMORY),
            used: AtomicU64::new(0),
            instructions: AtomicU64::new(INSTRUCTIONS),
            delays: AtomicU64::new(0),
            lateness: AtomicU64::new(0),
            primary: Mutex::default(),
            unreachable: Mutex::default(),
            pools: Mutex::new(Pools { default: pool.clone(), current: pool }),
            claimed: AtomicBool::new(false),
        }
    }

    /// Takes the device for a test of its own; whether nobody had it.
    pub(crate) fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::Relaxed)
    }

    /// Lets another test take it, as it was at the beginning.
    pub(crate) fn release_claim(&self) {
        self.set_memory(MEMORY);
        self.set_instructions(INSTRUCTIONS);
        self.set_delays(0);
        self.set_lateness(0);
        lock(&self.unreachable).clear();
        self.claimed.store(false, Ordering::Relaxed);
    }

    /// Bytes of memory, and bytes in use.
    pub(crate) fn memory(&self) -> (u64, u64) {
        (self.total.load(Ordering::Relaxed), self.used.load(Ordering::Relaxed))
    }

    pub(crate) fn set_memory(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Takes bytes from the budget.
    pub(crate) fn take(&self, bytes: u64) -> Outcome {
        let total = self.total.load(Ordering::Relaxed);
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= total);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map(drop).map_err(|_| Code::OUT_OF_MEMORY)
    }

    /// Gives bytes back to the budget.
    pub(crate) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn instructions(&self) -> u64 {
        self.instructions.load(Ordering::Relaxed)
    }

    pub(crate) fn set_instructions(&self, limit: u64) {
        self.instructions.store(limit, Ordering::Relaxed);
    }

    pub(crate) fn delays(&self) -> u64 {
        self.delays.load(Ordering::Relaxed)
    }

    pub(crate) fn set_delays(&self, seed: u64) {
        self.delays.store(seed, Ordering::Relaxed);
    }

    pub(crate) fn lateness(&self) -> Duration {
        Duration::from_micros(self.lateness.load(Ordering::Relaxed))
    }

    pub(crate) fn set_lateness(&self, microseconds: u64) {
        self.lateness.store(microseconds, Ordering::Relaxed);
    }

    pub(crate) fn reaches(&self, other: u32) -> bool {
        self.ordinal != other && !lock(&self.unreachable).contains(&other)
    }

    pub(crate) fn set_reaches(&self, other: u32, reaches: bool) {
        let mut unreachable = lock(&self.unreachable);
        if reaches {
            unreachable.remove(&other);
        } else {
            unreachable.insert(other);
        }
    }

    pub(crate) fn report(&self, kind: ReportKind, text: impl Into<String>) {
        self.reports.add(kind, text);
    }

    pub(crate) fn default_pool(&self) -> Arc<Pool> {
        lock(&self.pools).default.clone()
    }

    pub(crate) fn current_pool(&self) -> Arc<Pool> {
        lock(&self.pools).current.clone()
    }

    pub(crate) fn set_pool(&self, pool: Arc<Pool>) {
        lock(&self.pools).current = pool;
    }

    /// Gives a region of this device back: what it held is gone, and its bytes are free again.
    pub(crate) fn release(&self, region: &Region) {
        if region.free() {
            region.backing.clear();
            match region.kind {
                Kind::Device | Kind::Variable => self.give(region.size),
                _ => {}
            }
        }
    }
}
