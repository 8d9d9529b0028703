//! Memory that a test has, page-locked so that devices reach it where it is.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use core::ops::Range;
use core::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use trunnion_backend_cuda::CudaImport;
use trunnion_conformance::Outside;
use trunnion_conformance::outside::Owner;
use trunnion_cuda_raw::{Driver, Handle as Raw};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::handle::Handle;

/// Every context may use it, and kernels may: `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const FLAGS: u32 = 3;

/// `Client::import` of a range of memory that a test has.
#[allow(unsafe_code, reason = "an address is taken on trust")]
pub(super) fn import(client: &Client, memory: &Outside, range: Range<usize>, owner: Owner) -> Result<Handle> {
    assert!(range.start <= range.end && range.end <= memory.size(), "the test has no such range");
    let locked = Locked::new(memory, ordinal(client))?;
    let address = locked.address + range.start as u64;
    // SAFETY: the range is inside the memory, which stays page-locked as long as it is held, and is initialized; the test orders its own use
    // against the device's.
    client.import(unsafe { CudaImport::new(address, range.len() as u64, (owner, locked)) })
}

/// The device under a client, as the driver numbers it: it has the same place on the bus.
fn ordinal(client: &Client) -> i32 {
    let bus = |device: &trunnion_runtime_core::properties::DeviceInfo| {
        device.details.iter().find(|(name, _)| name == "bus").map(|(_, place)| place.clone())
    };
    let mine = bus(client.info());
    let all = Client::enumerate_all_devices();
    let found = all.iter().find(|info| info.device.backend == trunnion_backend_cuda::NAME && bus(info) == mine);
    found.map_or(0, |info| info.device.index.cast_signed())
}

/// Memory that is page-locked, by its address: a page can be locked once, however often it is lent.
static ALL: Mutex<BTreeMap<usize, Lock>> = Mutex::new(BTreeMap::new());

fn all() -> MutexGuard<'static, BTreeMap<usize, Lock>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How memory is page-locked, and how often it is lent.
struct Lock {
    lent: usize,
    /// As devices see it.
    address: u64,
    context: Raw,
    device: i32,
}

// SAFETY: the context is retained, and made current on whichever thread uses it.
#[allow(unsafe_code, reason = "a handle of the driver's is used on any thread")]
unsafe impl Send for Lock {}

/// Memory for as long as it has to stay page-locked.
struct Locked {
    memory: Outside,
    address: u64,
}

impl Locked {
    fn new(memory: &Outside, device: i32) -> Result<Self> {
        let mut all = all();
        let lock = match all.entry(memory.pointer().expose_provenance()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Lock::new(memory, device)?),
        };
        lock.lent += 1;
        Ok(Self { memory: memory.clone(), address: lock.address })
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let mut all = all();
        if let Entry::Occupied(mut lock) = all.entry(self.memory.pointer().expose_provenance()) {
            lock.get_mut().lent -= 1;
            if lock.get().lent == 0 {
                lock.remove().undo(&self.memory);
            }
        }
    }
}

#[allow(unsafe_code, reason = "functions of the driver are called")]
impl Lock {
    fn new(memory: &Outside, device: i32) -> Result<Self> {
        let driver = driver()?;
        let (mut context, mut address) = (ptr::null_mut(), 0);
        // SAFETY: the places are for what is asked, the device is one of the driver's, and the memory has as many bytes and stays until it is
        // locked no more.
        unsafe {
            check("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(&raw mut context, device))?;
            let locked = within(driver, context, || {
                let pointer = memory.pointer().cast();
                check("cuMemHostRegister", driver.cuMemHostRegister_v2(pointer, memory.size(), FLAGS))?;
                let asked = driver.cuMemHostGetDevicePointer_v2(&raw mut address, pointer, 0);
                check("cuMemHostGetDevicePointer", asked)
            });
            if let Err(error) = locked {
                driver.cuDevicePrimaryCtxRelease_v2(device);
                return Err(error);
            }
        }
        Ok(Self { lent: 0, address, context, device })
    }

    fn undo(self, memory: &Outside) {
        let Ok(driver) = driver() else { return };
        // SAFETY: it was locked and retained once, and nobody uses it any more.
        unsafe {
            let pointer = memory.pointer().cast();
            within(driver, self.context, || check("cuMemHostUnregister", driver.cuMemHostUnregister(pointer))).ok();
            driver.cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

/// The driver that the backend uses too.
fn driver() -> Result<&'static Driver> {
    Driver::of_process().map_err(|message| Error::Driver { call: "dlopen".into(), code: 0, message })
}

/// Does something with a context in the place of the thread's own.
#[allow(unsafe_code, reason = "functions of the driver are called")]
fn within(driver: &Driver, context: Raw, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut before = ptr::null_mut();
    // SAFETY: the context is retained, and the place is for a handle.
    unsafe {
        check("cuCtxPushCurrent", driver.cuCtxPushCurrent_v2(context))?;
        let outcome = act();
        check("cuCtxPopCurrent", driver.cuCtxPopCurrent_v2(&raw mut before)).and(outcome)
    }
}

fn check(call: &str, status: u32) -> Result<()> {
    match status {
        0 => Ok(()),
        code => {
            let message = Driver::of_process().map_or(String::new(), |driver| driver.name(code));
            Err(Error::Driver { call: call.into(), code: code.into(), message })
        }
    }
}
