//! What an access in place is given: where a range lies in device memory.

use crate::device::Device;
use crate::storage::{Block, CudaPage};
use alloc::sync::Arc;
use core::fmt;
use cudarc::driver::sys;
use trunnion_backend_core::driver::Place;
use trunnion_runtime_core::access::Access;

/// The backend's resource in a [`Grant`](trunnion_runtime_core::server::Grant): a range of device memory. It keeps the memory and the
/// device's primary context. What is done with it MUST stay in the range, be of the kind that was granted, and end before the access is
/// closed.
///
/// Equivalent to: a `CUdeviceptr` with a size and the `CUcontext` it is of.
pub struct CudaResource {
    device: Arc<Device>,
    // Only kept.
    _block: Arc<Block>,
    address: sys::CUdeviceptr,
    size: u64,
    writes: bool,
}

impl CudaResource {
    /// Where a place lies; `None` when it leaves its page.
    pub(crate) fn new(device: &Arc<Device>, place: Place<'_, CudaPage>, access: Access) -> Option<Self> {
        place.offset.checked_add(place.size).filter(|end| *end <= place.page.size())?;
        Some(Self {
            device: device.clone(),
            _block: place.page.block().clone(),
            address: place.page.address() + place.offset,
            size: place.size,
            writes: access.writes(),
        })
    }

    /// The address of the range's first byte.
    pub fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    /// Bytes in the range.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the access granted writes.
    pub fn is_writable(&self) -> bool {
        self.writes
    }

    /// The device, as the driver numbers it.
    pub fn device(&self) -> sys::CUdevice {
        self.device.raw
    }

    /// The device's primary context.
    pub fn context(&self) -> sys::CUcontext {
        self.device.context
    }
}

impl fmt::Debug for CudaResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaResource")
            .field("device", &self.device.raw)
            .field("address", &format_args!("{:#x}", self.address))
            .field("size", &self.size)
            .field("writes", &self.writes)
            .finish_non_exhaustive()
    }
}
