//! What a process has of the driver: its devices, its address space and everything with a handle.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, RwLock};

use crate::capture::Capture;
use crate::clock::{Clock, Stamp};
use crate::codes::{Code, Outcome};
use crate::context::Context;
use crate::device::Device;
use crate::event::Event;
use crate::faults::Calls;
use crate::graph::{Executable, Graph, Node};
use crate::handles::Handles;
use crate::loaded::{Kernel, Loaded};
use crate::memory::{AddressSpace, Backing};
use crate::pool::Pool;
use crate::stream::Stream;
use crate::sync::{lock, read, write};

/// Devices a process has when nobody says otherwise: one for each test of a big file.
const DEVICES: u32 = 256;

/// Devices a process can be given.
pub(crate) const MOST_DEVICES: u32 = 1024;

/// The driver.
pub(crate) struct Driver {
    is_ready: AtomicBool,
    devices: RwLock<Vec<Arc<Device>>>,
    pub(crate) space: AddressSpace,
    /// What threads of the program know to be over. One for all of them: what they tell each other, nobody sees.
    host_clock: Mutex<Clock>,
    lines: AtomicU32,
    /// Calls of threads without a context.
    pub(crate) calls: Calls,
    pub(crate) contexts: Handles<Context>,
    pub(crate) streams: Handles<Stream>,
    pub(crate) events: Handles<Event>,
    pub(crate) modules: Handles<Loaded>,
    pub(crate) kernels: Handles<Kernel>,
    pub(crate) pools: Handles<Pool>,
    pub(crate) backings: Handles<Backing>,
    pub(crate) graphs: Handles<Graph>,
    pub(crate) nodes: Handles<Node>,
    pub(crate) executables: Handles<Executable>,
    /// Captures that have not ended.
    pub(crate) captures: Mutex<Vec<Arc<Capture>>>,
}

/// The driver of this process.
pub(crate) fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| Driver {
        is_ready: AtomicBool::new(false),
        devices: RwLock::new((0..DEVICES).map(|ordinal| Arc::new(Device::new(ordinal))).collect()),
        space: AddressSpace::new(),
        host_clock: Mutex::default(),
        // Line 0 is the program itself.
        lines: AtomicU32::new(1),
        calls: Calls::default(),
        contexts: Handles::new(),
        streams: Handles::new(),
        events: Handles::new(),
        modules: Handles::new(),
        kernels: Handles::new(),
        pools: Handles::new(),
        backings: Handles::new(),
        graphs: Handles::new(),
        nodes: Handles::new(),
        executables: Handles::new(),
        captures: Mutex::default(),
    })
}

impl Driver {
    pub(crate) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    pub(crate) fn device_count(&self) -> u32 {
        read(&self.devices).len() as u32
    }

    /// Gives the process more devices, or fewer.
    pub(crate) fn set_device_count(&self, count: u32) {
        let mut devices = write(&self.devices);
        let kept = devices.len().min(count as usize);
        devices.truncate(kept);
        devices.extend((kept as u32..count).map(|ordinal| Arc::new(Device::new(ordinal))));
    }

    pub(crate) fn device(&self, ordinal: i32) -> Outcome<Arc<Device>> {
        let found = usize::try_from(ordinal).ok().and_then(|at| read(&self.devices).get(at).cloned());
        found.ok_or(Code::INVALID_DEVICE)
    }

    /// The first device that no test has taken.
    pub(crate) fn claim_device(&self) -> Option<Arc<Device>> {
        read(&self.devices).iter().find(|device| device.claim()).cloned()
    }

    /// A new line of work for clocks.
    pub(crate) fn new_line(&self) -> u32 {
        self.lines.fetch_add(1, Ordering::Relaxed)
    }

    /// A thread of the program waited for something: it knows what that knew.
    pub(crate) fn host_learns(&self, clock: &Clock) {
        lock(&self.host_clock).join(clock);
    }

    /// Adds what the program knows.
    pub(crate) fn host_tells(&self, clock: &mut Clock) {
        clock.join(&lock(&self.host_clock));
    }

    /// A moment of the program itself, which everything accepted later comes after.
    pub(crate) fn host_tick(&self) -> (Stamp, Clock) {
        let mut clock = lock(&self.host_clock);
        let stamp = clock.tick(0);
        (stamp, clock.clone())
    }

    /// The pool of a handle: one that was made, or the one a device has from the beginning.
    pub(crate) fn pool(&self, handle: usize) -> Outcome<Arc<Pool>> {
        self.pools.get(handle).or_else(|code| {
            let mut defaults =
                read(&self.devices).iter().map(|device| device.default_pool()).collect::<Vec<_>>().into_iter();
            defaults.find(|pool| pool.handle == handle).ok_or(code)
        })
    }
}
