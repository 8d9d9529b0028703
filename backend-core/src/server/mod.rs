//! [`DriverServer`]: the one server that composes tracker, pools and compile cache over any [`Driver`].
//!
//! An operation is resolved by the tracker the moment it is accepted, in the order of its number. Then it is encoded at once, or it is
//! parked on its stream behind what only the host will signal. What was resolved stays ordered either way, because whoever touches
//! the same bytes later was told to wait for it.
//!
//! The invariant that everything rests on: **a moment is done only when all it was told to wait for is done**. An operation that failed
//! after others could see it in the tracker therefore keeps its place in its stream, as a marker without effect.
//!
//! | file | job |
//! |---|---|
//! | `settings.rs` | what a server is told |
//! | `contract.rs` | the `Server` trait, call by call |
//! | `lanes.rs`, `flight.rs` | a stream as the server sees it, and what is encoded on it |
//! | `operations.rs` | accept an operation: resolve, then encode, park or refuse |
//! | `tasks.rs` | what an operation does, borrowed or kept |
//! | `encoding.rs` | the driver's unsafe calls |
//! | `batching.rs` | when a batch is submitted, and waits between streams |
//! | `parking.rs` | streams whose next operation waits for the host |
//! | `completion.rs` | what the hardware has finished: moments, wakers, late failures |
//! | `reading.rs` | reads under way |
//! | `memory.rs` | reservations over the driver's pages |
//! | `recording.rs` | writing down what becomes of the memory |
//! | `access.rs` | use in place |
//! | `foreign.rs` | memory and events of somebody else |
//! | `code.rs`, `disk.rs` | compiled kernels, in memory and on disk |
//! | `ending.rs` | panics, the lost device, shutdown |

mod access;
mod batching;
mod code;
mod completion;
mod contract;
#[cfg(feature = "std")]
mod disk;
#[allow(unsafe_code, reason = "the one place that calls the driver's unsafe functions")]
mod encoding;
mod ending;
mod flight;
mod foreign;
mod lanes;
mod memory;
mod operations;
mod parking;
mod reading;
mod recording;
mod settings;
mod tasks;

pub use settings::ServerSettings;

use crate::driver::{Driver, Outcome};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use code::CodeCache;
use core::fmt;
use core::task::Waker;
use hashbrown::HashMap;
use lanes::Lanes;
use memory::Hardware;
use operations::Names;
use parking::Hand;
use reading::PendingRead;
use recording::Recording;
use trunnion_memory_pools::{MemoryPools, PoolsConfig, Request};
use trunnion_resource_tracker::{Streams, Tracker};
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::executor::Wakers;
use trunnion_runtime_core::failure::Failure;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::id::{MemoryId, ServiceId};
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::Grant;
use trunnion_runtime_core::timeline::Moment;

/// A server over a driver. See the [`server`](crate::server) module for how it works.
pub struct DriverServer<D: Driver> {
    settings: ServerSettings,
    hardware: Hardware<D>,
    pools: MemoryPools<Hardware<D>>,
    tracker: Tracker,
    timeline: Streams,
    names: Names,
    lanes: Lanes<D>,
    code: CodeCache<D::Code>,
    reads: BTreeMap<u64, PendingRead>,
    /// Memory whose reservation failed, and why.
    unplaced: HashMap<MemoryId, Failure>,
    /// Writes down what becomes of the memory.
    recording: Recording,
    /// Stands for buffers of zero bytes, which have no memory; made when the first is bound.
    nothing: Option<D::Page>,
    /// Operations that are parked.
    parked: usize,
    /// Events of somebody else that the device waits for, and the moments that are done with them.
    events: Vec<(Moment, Foreign)>,
    /// Accesses that were granted and are not closed.
    granted: Vec<Moment>,
    wakers: Wakers,
    /// Rings the notifier.
    waker: Waker,
    completions: u64,
    /// What every call answers from now on.
    ended: Option<Error>,
    lost: bool,
    /// The first server named by a handle or kernel.
    service: Option<ServiceId>,
    /// A stream may go on that could not before.
    stirred: bool,
    outcome: Outcome,

    // What is under way, for whoever finds out that it panicked.
    current: Option<Moment>,
    /// A failure that reached the operation under way.
    tainted: Option<Failure>,
    hand: Option<Hand>,
    reserving: Option<Request>,
    /// The mode of the request that was tried last, for when it is refused.
    tried: AllocationMode,
    granting: Option<Promise<Grant>>,
    submitting: Option<usize>,
    polling: bool,
}

impl<D: Driver> DriverServer<D> {
    /// A server over a driver that nobody else uses.
    pub fn new(driver: D, settings: ServerSettings) -> Self {
        let hardware = Hardware::new(driver);
        let config = PoolsConfig {
            budget: settings.memory_budget,
            layout: settings.memory_pools.clone(),
            max_allocation: hardware.driver.properties().limits.max_allocation,
            ..PoolsConfig::fitting(&hardware)
        };
        let mut tracker = Tracker::new();
        Self {
            names: Names::new(&mut tracker),
            pools: MemoryPools::new(config),
            code: CodeCache::new(&settings, &hardware.driver),
            lanes: Lanes::new(settings.idle_streams),
            hardware,
            tracker,
            timeline: Streams::new(),
            reads: BTreeMap::new(),
            unplaced: HashMap::new(),
            recording: Recording::default(),
            nothing: None,
            parked: 0,
            events: Vec::new(),
            granted: Vec::new(),
            wakers: Wakers::new(),
            waker: Waker::noop().clone(),
            completions: 0,
            ended: None,
            lost: false,
            service: None,
            stirred: false,
            outcome: Outcome::default(),
            current: None,
            tainted: None,
            hand: None,
            reserving: None,
            tried: AllocationMode::Auto,
            granting: None,
            submitting: None,
            polling: false,
            settings,
        }
    }

    /// The driver: for a backend's own calls, which MUST leave the server's streams and pages as they are.
    pub fn driver(&mut self) -> &mut D {
        &mut self.hardware.driver
    }

    /// How many streams have something to do, or lately had.
    pub fn streams(&self) -> usize {
        self.lanes.live()
    }

    /// How many operations are parked: they wait for something only the host will signal, or behind such an operation.
    pub fn parked(&self) -> usize {
        self.parked
    }
}

impl<D: Driver> fmt::Debug for DriverServer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverServer")
            .field("settings", &self.settings)
            .field("memory", &self.pools.usage())
            .field("streams", &self.lanes.live())
            .field("parked", &self.parked)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
