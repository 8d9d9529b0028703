//! Memory that a test has, page-locked so that a device reaches it where it is.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::ops::Range;
use core::ptr;
use std::sync::{Mutex, PoisonError};
use trunnion_backend_cuda::CudaImport;
use trunnion_backend_cuda::cudarc::driver::sys;
use trunnion_conformance::Outside;
use trunnion_conformance::outside::Owner;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::handle::Handle;

/// Every context may use it, and kernels may: `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const FLAGS: u32 = 3;

/// Memory that is page-locked, by its address and by the device that it was locked for.
static LOCKED: Mutex<BTreeMap<(usize, i32), Weak<Locked>>> = Mutex::new(BTreeMap::new());

/// `Client::import` of a range of memory that a test has.
#[allow(unsafe_code, reason = "an address is taken on trust")]
pub(super) fn import(client: &Client, memory: &Outside, range: Range<usize>, owner: Owner) -> Result<Handle> {
    assert!(range.start <= range.end && range.end <= memory.size(), "the test has no such range");
    let locked = Locked::of(memory, ordinal(client))?;
    let address = locked.address + range.start as u64;
    // SAFETY: the range is inside the memory, which stays page-locked as long as it is held, and is initialized; the test orders its own use
    // against the device's.
    client.import(unsafe { CudaImport::new(address, range.len() as u64, (owner, locked)) })
}

/// The device under a client, as the driver numbers it.
fn ordinal(client: &Client) -> i32 {
    let last = client.info().adapter.rsplit(' ').next().and_then(|word| word.parse().ok());
    // A real driver's devices are not numbered by name; the first one is under test.
    last.filter(|_| client.info().driver.starts_with("double")).unwrap_or(0)
}

/// Page-locked memory, and the context that it is locked in.
struct Locked {
    memory: Outside,
    address: u64,
    device: i32,
    context: sys::CUcontext,
}

// SAFETY: the context is retained, and made current on whichever thread uses it.
#[allow(unsafe_code, reason = "a handle of the driver's is used on any thread")]
unsafe impl Send for Locked {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "a handle of the driver's is used on any thread")]
unsafe impl Sync for Locked {}

impl Locked {
    /// The memory, page-locked: once for a device, however often it is lent.
    fn of(memory: &Outside, device: i32) -> Result<Arc<Self>> {
        let place = (memory.pointer().expose_provenance(), device);
        let mut all = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&place).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let locked = Arc::new(Self::new(memory, device)?);
        all.insert(place, Arc::downgrade(&locked));
        Ok(locked)
    }

    #[allow(unsafe_code, reason = "functions of the driver are called")]
    fn new(memory: &Outside, device: i32) -> Result<Self> {
        let (mut context, mut address) = (ptr::null_mut(), 0);
        // SAFETY: the places are for what is asked, the device is one of the driver's, and the memory has as many bytes and is let go of
        // only when it is locked no more.
        unsafe {
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&raw mut context, device))?;
            let locked = in_context(context, || {
                let pointer = memory.pointer().cast();
                check("cuMemHostRegister", sys::cuMemHostRegister_v2(pointer, memory.size(), FLAGS))?;
                let asked = sys::cuMemHostGetDevicePointer_v2(&raw mut address, pointer, 0);
                check("cuMemHostGetDevicePointer", asked)
            });
            if let Err(error) = locked {
                sys::cuDevicePrimaryCtxRelease_v2(device);
                return Err(error);
            }
        }
        Ok(Self { memory: memory.clone(), address, device, context })
    }
}

impl Drop for Locked {
    #[allow(unsafe_code, reason = "functions of the driver are called")]
    fn drop(&mut self) {
        // SAFETY: it was locked and retained once, and nobody uses it any more.
        unsafe {
            let pointer = self.memory.pointer().cast();
            in_context(self.context, || check("cuMemHostUnregister", sys::cuMemHostUnregister(pointer))).ok();
            sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

/// Does something with a context in the place of the thread's own.
#[allow(unsafe_code, reason = "functions of the driver are called")]
fn in_context(context: sys::CUcontext, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut before = ptr::null_mut();
    // SAFETY: the context is retained, and the place is for a handle.
    unsafe {
        check("cuCtxPushCurrent", sys::cuCtxPushCurrent_v2(context))?;
        let outcome = act();
        check("cuCtxPopCurrent", sys::cuCtxPopCurrent_v2(&raw mut before)).and(outcome)
    }
}

fn check(call: &str, result: sys::CUresult) -> Result<()> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(Error::Driver { call: call.into(), code: code as i64, message: format!("{code:?}") }),
    }
}
