//! Memory of somebody else, to be used by a device in place.

use crate::device::Device;
use crate::failure::status;
use crate::peer::PeerMemory;
use crate::resource::CudaResource;
use crate::storage::CudaPage;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use cudarc::driver::sys;
use std::sync::Mutex;
use trunnion_backend_core::driver::Imported;
use trunnion_runtime_core::client::Resource;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::{Foreign, ForeignMemory};

/// Memory that a CUDA device uses in place: of its own, of another device that it reaches, or page-locked memory of the host. Given to
/// [`Client::import`](trunnion_runtime_core::client::Client::import).
///
/// Another device's memory is opened to the importing device when it is imported, and stays so: all that the same context made, all of a
/// pool, or the whole mappings. Devices that reach each other are on each other's list in
/// [`DeviceInfo::details`](trunnion_runtime_core::properties::DeviceInfo::details), as `peers`.
///
/// What is to happen when the device needs it no more is what its owner does when it is dropped.
///
/// Equivalent to: a `CUdeviceptr` with a size; of another device's, with `cuCtxEnablePeerAccess`, `cuMemSetAccess` or `cuMemPoolSetAccess`.
pub struct CudaImport {
    address: sys::CUdeviceptr,
    size: u64,
    /// Only dropped.
    _owner: Mutex<Box<dyn Any + Send>>,
}

impl CudaImport {
    /// `size` bytes of device memory from `address` on, a multiple of the device's `binding_alignment`.
    ///
    /// # Safety
    /// The memory is of the device that it is imported into, in that device's primary context or of no context; of another device; or that
    /// device's kernels may touch it. It has so many bytes. It stays, and nobody uses it in a way that conflicts with
    /// what is issued on the imported memory, until `owner` is dropped.
    pub unsafe fn new<O: Send + 'static>(address: sys::CUdeviceptr, size: u64, owner: O) -> Self {
        Self { address, size, _owner: Mutex::new(Box::new(owner)) }
    }

    /// The memory behind a buffer of a CUDA device, for another one: what
    /// [`Client::export`](trunnion_runtime_core::client::Client::export) gives, which keeps it where it is.
    ///
    /// Nothing orders the devices' work on it but what is told to: a moment of the one is waited for by the other with
    /// [`export_event`](trunnion_runtime_core::client::Client::export_event) and
    /// [`import_event`](trunnion_runtime_core::client::Client::import_event).
    ///
    /// # Safety
    /// Nothing that is issued on the buffer conflicts with what is issued on the imported memory, unless one comes after the other.
    pub unsafe fn of(resource: Resource<CudaResource>) -> Self {
        let (address, size) = (resource.address(), resource.size());
        // SAFETY: the memory is a device's, and stays while the resource is held; the rest is the caller's promise.
        unsafe { Self::new(address, size, resource) }
    }
}

impl ForeignMemory for CudaImport {
    fn size(&self) -> u64 {
        self.size
    }
}

impl fmt::Debug for CudaImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaImport")
            .field("address", &format_args!("{:#x}", self.address))
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

/// A page over the memory, which holds it.
///
/// # Errors
/// [`Error::ServiceMismatch`] unless it is a [`CudaImport`]; [`Error::Misaligned`], [`Error::OutOfRange`]; [`Error::Driver`] for memory of a
/// device that this one does not reach, and of none.
pub(crate) fn import(device: &Arc<Device>, foreign: &Foreign) -> Result<Imported<CudaPage>> {
    let memory: &CudaImport = foreign.get()?;
    let CudaImport { address, size, .. } = *memory;
    let alignment = device.properties.limits.binding_alignment;
    if !address.is_multiple_of(alignment) {
        return Err(Error::Misaligned { what: "address of imported memory".into(), value: address, alignment });
    }
    if address.checked_add(size).is_none() {
        return Err(Error::SizeOverflow { what: "imported memory".into() });
    }
    if size > 0 {
        let _current = device.enter()?;
        let other = other_owner(device, address)?;
        check_extent(device, address, size)?;
        if let Some(owner) = other {
            PeerMemory { device, owner, address, size }.open()?;
        }
    }
    Ok(Imported { page: CudaPage::lent(device, address, size, foreign), offset: 0 })
}

/// The device that has the memory, where that is another one; none for page-locked memory of the host, which every device reaches, and where the
/// driver cannot say.
fn other_owner(device: &Device, address: sys::CUdeviceptr) -> Result<Option<sys::CUdevice>> {
    let Some(ask) = device.functions().cuPointerGetAttribute else { return Ok(None) };
    let (kind, mut found) = (sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0u32);
    // SAFETY: the place is for a number, which is what this attribute is.
    let known = unsafe { ask((&raw mut found).cast(), kind, address) } == status::SUCCESS;
    if known && found == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32 {
        return Ok(None);
    }
    let ordinal = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    let mut owner: sys::CUdevice = -1;
    // SAFETY: the place is for a number, which is what this attribute is.
    match unsafe { ask((&raw mut owner).cast(), ordinal, address) } {
        status::SUCCESS => Ok(Some(owner).filter(|owner| *owner != device.raw)),
        status::INVALID_VALUE => {
            let message = format!("{address:#x} is no memory that the driver knows");
            Err(Error::Driver { call: "import".to_string(), code: 0, message })
        }
        code => Err(device.failed("cuPointerGetAttribute", code)),
    }
}

/// The memory does not leave its allocation, or the addresses that were reserved for it together; where the driver can say so. Memory may be
/// mapped to addresses piece by piece, so that `cuMemGetAddressRange`, which knows pieces and nothing of the host's, would end too early.
fn check_extent(device: &Device, address: sys::CUdeviceptr, size: u64) -> Result<()> {
    use sys::CUpointer_attribute::{CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    let Some(ask) = device.functions().cuPointerGetAttribute else { return Ok(()) };
    let (mut base, mut length): (sys::CUdeviceptr, usize) = (0, 0);
    let places = [
        (CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (&raw mut base).cast()),
        (CU_POINTER_ATTRIBUTE_RANGE_SIZE, (&raw mut length).cast()),
    ];
    for (kind, place) in places {
        // SAFETY: the places are for an address and a size, which is what these attributes are.
        let code = unsafe { ask(place, kind, address) };
        if code != status::SUCCESS {
            let error = device.failed("cuPointerGetAttribute", code);
            return if error.is_device_lost() { Err(error) } else { Ok(()) };
        }
    }
    let start = address.saturating_sub(base);
    let (range, size) = (start..start.saturating_add(size), length as u64);
    match range.end <= size {
        true => Ok(()),
        false => Err(Error::OutOfRange { what: "imported memory".into(), range, size }),
    }
}
