//! Memory of somebody else, to be used by a device in place.

use crate::device::Device;
use crate::failure::status;
use crate::storage::CudaPage;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::any::Any;
use core::fmt;
use cudarc::driver::sys;
use std::sync::Mutex;
use trunnion_backend_core::driver::Imported;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::{Foreign, ForeignMemory};

/// Memory of the same device, or page-locked memory of the host, that a CUDA device uses in place: given to
/// [`Client::import`](trunnion_runtime_core::client::Client::import).
///
/// What is to happen when the device needs it no more is what its owner does when it is dropped.
///
/// Equivalent to: a `CUdeviceptr` with a size.
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
    /// The memory is of the device that it is imported into, or that device's kernels may touch it; it was made in the device's primary
    /// context, or by functions that belong to no context. It has so many bytes. It stays, and nobody uses it in a way that conflicts with
    /// what is issued on the imported memory, until `owner` is dropped.
    pub unsafe fn new<O: Send + 'static>(address: sys::CUdeviceptr, size: u64, owner: O) -> Self {
        Self { address, size, _owner: Mutex::new(Box::new(owner)) }
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
/// [`Error::ServiceMismatch`] unless it is a [`CudaImport`]; [`Error::Misaligned`], [`Error::OutOfRange`]; [`Error::Driver`] for memory that
/// is not this device's.
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
        check_owner(device, address)?;
        check_extent(device, address, size)?;
    }
    Ok(Imported { page: CudaPage::lent(device, address, size, foreign), offset: 0 })
}

fn refuse(message: String) -> Error {
    Error::Driver { call: "import".to_string(), code: 0, message }
}

/// The driver knows the memory as this device's, or as page-locked memory of the host, which every device reaches; where it can say so.
fn check_owner(device: &Device, address: sys::CUdeviceptr) -> Result<()> {
    let Some(ask) = device.functions().cuPointerGetAttribute else { return Ok(()) };
    let (kind, mut found) = (sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0u32);
    // SAFETY: the place is for a number, which is what this attribute is.
    let known = unsafe { ask((&raw mut found).cast(), kind, address) } == status::SUCCESS;
    if known && found == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32 {
        return Ok(());
    }
    let ordinal = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    let mut owner: sys::CUdevice = -1;
    // SAFETY: the place is for a number, which is what this attribute is.
    match unsafe { ask((&raw mut owner).cast(), ordinal, address) } {
        status::SUCCESS if owner == device.raw => Ok(()),
        status::SUCCESS => Err(refuse(format!("memory of device {owner}, this one is {}", device.raw))),
        status::INVALID_VALUE => Err(refuse(format!("{address:#x} is no memory that the driver knows"))),
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
