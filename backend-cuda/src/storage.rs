//! Device memory: one allocation of the driver's a page, mapped where the device can, and memory of somebody else.

use crate::device::Device;
use crate::failure::refused;
use crate::properties::PAGE_ALIGNMENT;
use crate::retired::Memory;
use alloc::format;
use alloc::sync::Arc;
use core::fmt;
use core::ptr;
use cudarc::driver::sys;
use trunnion_backend_core::driver::DriverRefusal;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::foreign::Foreign;

/// Device memory at one address: of its own, or somebody else's.
pub(crate) struct Block {
    device: Arc<Device>,
    address: sys::CUdeviceptr,
    size: u64,
    /// What is given back at the end; `None` for memory of somebody else.
    memory: Option<(Memory, u64)>,
    /// Kept as long as it is used.
    _foreign: Option<Foreign>,
}

// SAFETY: an address, which means the same on any thread.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some((memory, size)) = self.memory.take() {
            self.device.retire(memory, size);
        }
    }
}

/// A piece of device memory. Equivalent to: a `CUdeviceptr` with the size of its allocation.
pub struct CudaPage {
    block: Arc<Block>,
    /// What is counted of the device's memory.
    counted: u64,
}

impl CudaPage {
    /// Allocates a page of `size` bytes. One of whole pages of the device is mapped where the device can.
    ///
    /// # Errors
    /// [`DriverRefusal`]; `out_of_memory` says whether giving something back would help.
    pub(crate) fn allocate(device: &Arc<Device>, size: u64) -> Result<Self, DriverRefusal> {
        device.count_page(size)?;
        match make(device, size) {
            Ok((address, memory)) => {
                let (device, memory) = (device.clone(), Some((memory, size)));
                Ok(Self { block: Arc::new(Block { device, address, size, memory, _foreign: None }), counted: size })
            }
            Err(refusal) => {
                device.uncount_page(size);
                Err(refusal)
            }
        }
    }

    /// A page over memory of somebody else, which counts for nothing.
    pub(crate) fn lent(device: &Arc<Device>, address: sys::CUdeviceptr, size: u64, foreign: &Foreign) -> Self {
        let block = Block { device: device.clone(), address, size, memory: None, _foreign: Some(foreign.clone()) };
        Self { block: Arc::new(block), counted: 0 }
    }

    /// The address of its first byte.
    pub fn address(&self) -> sys::CUdeviceptr {
        self.block.address
    }

    /// Bytes in it.
    pub fn size(&self) -> u64 {
        self.block.size
    }

    /// The memory behind it.
    pub(crate) fn block(&self) -> &Arc<Block> {
        &self.block
    }
}

impl Drop for CudaPage {
    fn drop(&mut self) {
        self.block.device.uncount_page(self.counted);
    }
}

impl fmt::Debug for CudaPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaPage")
            .field("address", &format_args!("{:#x}", self.address()))
            .field("size", &self.size())
            .finish()
    }
}

/// Memory of `size` bytes. Where it has run short, it is asked for again when what is kept was given back.
fn make(device: &Arc<Device>, size: u64) -> Result<(sys::CUdeviceptr, Memory), DriverRefusal> {
    let length = usize::try_from(size.max(1)).map_err(|_| DriverRefusal {
        message: format!("{size} bytes are more than this process can address"),
        out_of_memory: false,
    })?;
    let once = || {
        let _current = device.enter()?;
        match device.granularity {
            Some(granularity) if size > 0 && size.is_multiple_of(granularity) => map(device, length),
            _ => allocate(device, length),
        }
    };
    let (address, memory) = device.with_memory(size, once).map_err(|error| refused(size, &error))?;
    if !address.is_multiple_of(PAGE_ALIGNMENT) {
        device.retire(memory, size);
        let message = format!("{size} bytes: the driver gave {address:#x}, no multiple of {PAGE_ALIGNMENT}");
        return Err(DriverRefusal { message, out_of_memory: false });
    }
    Ok((address, memory))
}

fn allocate(device: &Device, size: usize) -> Result<(sys::CUdeviceptr, Memory)> {
    let mut address = 0;
    // SAFETY: the place is for an address, and the context is current.
    device.check("cuMemAlloc_v2", unsafe { (device.functions().cuMemAlloc_v2)(&raw mut address, size) })?;
    Ok((address, Memory::Allocated(address)))
}

/// Makes memory of whole pages of the device, and gives it an address.
fn map(device: &Device, size: usize) -> Result<(sys::CUdeviceptr, Memory)> {
    let functions = device.functions();
    let (Some(reserve), Some(create), Some(map), Some(allow)) =
        (functions.cuMemAddressReserve, functions.cuMemCreate, functions.cuMemMap, functions.cuMemSetAccess)
    else {
        return allocate(device, size);
    };
    let mut address = 0;
    // SAFETY: the place is for an address, the size a multiple of the granularity, and the context current. So for the others.
    device.check("cuMemAddressReserve", unsafe { reserve(&raw mut address, size, 0, 0, 0) })?;
    let (mut made, mut is_mapped) = (None, false);
    let steps = (|| {
        let (location, mut handle) = (device.location(), 0);
        let properties = device.properties_of_memory();
        // SAFETY: as above; the properties are of this device.
        device.check("cuMemCreate", unsafe { create(&raw mut handle, size, &raw const properties, 0) })?;
        made = Some(handle);
        // SAFETY: as above; the addresses were just reserved, and nothing is mapped there.
        device.check("cuMemMap", unsafe { map(address, size, 0, handle, 0) })?;
        is_mapped = true;
        let access =
            sys::CUmemAccessDesc { location, flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: as above; one description.
        device.check("cuMemSetAccess", unsafe { allow(address, size, &raw const access, 1) })
    })();
    let memory = Memory::Mapped { address, size, memory: made, is_mapped };
    match steps {
        Ok(()) => Ok((address, memory)),
        Err(error) => {
            device.retire(memory, 0);
            Err(error)
        }
    }
}

impl Device {
    /// What memory that is mapped is a multiple of, where the driver says so and has what it takes.
    pub(crate) fn granularity_of_pages(&self) -> Option<u64> {
        let functions = self.functions();
        let has_all = functions.cuMemAddressReserve.is_some()
            && functions.cuMemAddressFree.is_some()
            && functions.cuMemCreate.is_some()
            && functions.cuMemRelease.is_some()
            && functions.cuMemMap.is_some()
            && functions.cuMemUnmap.is_some()
            && functions.cuMemSetAccess.is_some();
        let ask = functions.cuMemGetAllocationGranularity.filter(|_| has_all)?;
        let _current = self.enter().ok()?;
        let (properties, mut bytes) = (self.properties_of_memory(), 0);
        let least = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: the place is for a size, and the properties are of this device.
        let code = unsafe { ask(&raw mut bytes, &raw const properties, least) };
        self.check("cuMemGetAllocationGranularity", code).ok()?;
        (bytes as u64).is_power_of_two().then_some(bytes as u64)
    }

    fn location(&self) -> sys::CUmemLocation {
        sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.raw }
    }

    fn properties_of_memory(&self) -> sys::CUmemAllocationProp {
        sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: self.location(),
            win32HandleMetaData: ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        }
    }
}
