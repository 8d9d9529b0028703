//! Device memory: one allocation of the driver's a page, mapped where the device can, and memory of somebody else.

use crate::device::Device;
use crate::failure::refused;
use crate::mapping::Mapping;
use crate::properties::PAGE_ALIGNMENT;
use crate::retired::Memory;
use alloc::format;
use alloc::sync::Arc;
use core::fmt;
use cudarc::driver::sys;
use std::sync::{Mutex, PoisonError};
use trunnion_backend_core::driver::DriverRefusal;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::foreign::Foreign;

/// Device memory at one address: of its own, or somebody else's.
pub(crate) struct Block {
    device: Arc<Device>,
    address: sys::CUdeviceptr,
    /// What is given back at the end, and its bytes; `None` for memory of somebody else.
    memory: Mutex<Option<(Memory, u64)>>,
    /// Kept as long as it is used.
    _foreign: Option<Foreign>,
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some((memory, size)) = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            self.device.retire(memory, size);
        }
    }
}

/// A piece of device memory. Equivalent to: a `CUdeviceptr` with the size of its allocation.
pub struct CudaPage {
    block: Arc<Block>,
    size: u64,
    /// What is counted of the device's memory.
    counted: u64,
}

impl CudaPage {
    /// Allocates a page of `size` bytes that is to grow up to `reach` bytes. One of whole pages of the device is mapped where the device
    /// can; the others stay as they are.
    ///
    /// # Errors
    /// [`DriverRefusal`]; `out_of_memory` says whether giving something back would help.
    pub(crate) fn allocate(device: &Arc<Device>, size: u64, reach: u64) -> Result<Self, DriverRefusal> {
        device.count_page(size)?;
        match make(device, size, reach.max(size)) {
            Ok((address, memory)) => {
                let (device, memory) = (device.clone(), Mutex::new(Some((memory, size))));
                let block = Arc::new(Block { device, address, memory, _foreign: None });
                Ok(Self { block, size, counted: size })
            }
            Err(refusal) => {
                device.uncount_page(size);
                Err(refusal)
            }
        }
    }

    /// Makes it `size` bytes long, more than it has: what is mapped behind it comes at the addresses that were reserved with it.
    ///
    /// # Errors
    /// [`DriverRefusal`]: it is as it was.
    pub(crate) fn grow(&mut self, size: u64) -> Result<(), DriverRefusal> {
        let device = &self.block.device;
        let more = size.saturating_sub(self.size);
        let wanted = length(more)?;
        let mut memory = self.block.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((Memory::Mapped(mapping), held)) = memory.as_mut() else {
            let message = format!("{size} bytes for a page of {}, which is not mapped and stays as it is", self.size);
            return Err(DriverRefusal { message, out_of_memory: false });
        };
        device.count_page(more)?;
        let grown = device.with_memory(more, || {
            let _current = device.enter()?;
            mapping.extend(device, wanted)
        });
        if let Err(error) = grown {
            device.uncount_page(more);
            return Err(refused(more, &error));
        }
        *held += more;
        self.counted += more;
        self.size = size;
        Ok(())
    }

    /// A page over memory of somebody else, which counts for nothing.
    pub(crate) fn lent(device: &Arc<Device>, address: sys::CUdeviceptr, size: u64, foreign: &Foreign) -> Self {
        let (device, memory) = (device.clone(), Mutex::new(None));
        let block = Block { device, address, memory, _foreign: Some(foreign.clone()) };
        Self { block: Arc::new(block), size, counted: 0 }
    }

    /// The address of its first byte.
    pub fn address(&self) -> sys::CUdeviceptr {
        self.block.address
    }

    /// Bytes in it.
    pub fn size(&self) -> u64 {
        self.size
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

/// Bytes as the driver counts them, at least one.
fn length(size: u64) -> Result<usize, DriverRefusal> {
    usize::try_from(size.max(1)).map_err(|_| DriverRefusal {
        message: format!("{size} bytes are more than this process can address"),
        out_of_memory: false,
    })
}

/// Memory of `size` bytes, with room for `reach` where it is mapped. Where it has run short, it is asked for again when what is kept was
/// given back.
fn make(device: &Arc<Device>, size: u64, reach: u64) -> Result<(sys::CUdeviceptr, Memory), DriverRefusal> {
    let (length, reach) = (length(size)?, length(reach)?);
    let once = || {
        let _current = device.enter()?;
        match device.granularity {
            Some(granularity) if size > 0 && size.is_multiple_of(granularity) => map(device, length, reach),
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

/// Makes memory of whole pages of the device, and gives it an address with room for `reach` bytes. Where so many addresses are not to be had,
/// it stays as it is.
fn map(device: &Device, size: usize, reach: usize) -> Result<(sys::CUdeviceptr, Memory)> {
    let mut mapping = match Mapping::reserve(device, reach) {
        Err(error) if reach > size && !error.is_device_lost() => Mapping::reserve(device, size)?,
        reserved => reserved?,
    };
    let Err(error) = mapping.extend(device, size) else { return Ok((mapping.address(), Memory::Mapped(mapping))) };
    if mapping.is_bare() {
        // Addresses where nothing lies are given back without waiting for anybody, and nobody short of memory has any of them.
        mapping.give_back(device);
    } else {
        // Behind what was refused there.
        device.retire(Memory::Mapped(mapping), 0);
    }
    Err(error)
}
