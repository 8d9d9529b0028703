//! Memory of another device: whether this one reaches it, and the access that its work needs for that.

use crate::device::Device;
use crate::failure::{is_loss, status};
use crate::functions::Functions;
use alloc::format;
use alloc::string::ToString;
use core::ptr;
use cudarc::driver::sys;
use trunnion_runtime_core::error::{Error, Result};

use sys::CUpointer_attribute_enum as Attribute;

/// Whether a device's kernels can use the other one's memory; no where the driver has no function to ask.
///
/// # Errors
/// The driver's status.
pub(crate) fn reaches(functions: &Functions, device: sys::CUdevice, other: sys::CUdevice) -> Result<bool, u32> {
    let Some(ask) = functions.cuDeviceCanAccessPeer else { return Ok(false) };
    let mut can = 0;
    // SAFETY: the place is for a number; the driver knows which devices there are.
    match unsafe { ask(&raw mut can, device, other) } {
        status::SUCCESS => Ok(can != 0),
        code => Err(code),
    }
}

/// Memory of another device.
pub(crate) struct PeerMemory<'a> {
    /// The device that is to use it.
    pub(crate) device: &'a Device,
    /// The device that has it.
    pub(crate) owner: sys::CUdevice,
    pub(crate) address: sys::CUdeviceptr,
    /// At least one byte.
    pub(crate) size: u64,
}

impl PeerMemory<'_> {
    /// Lets the device use it. The device's context is current.
    ///
    /// Access is to all that a context made, to all of a pool, or to whole mappings, whichever the memory is of. It stays when the memory is
    /// let go of: it may have been there before, and whoever else uses that device's memory may count on it by then.
    ///
    /// # Errors
    /// [`Error::Driver`]: with both devices where the one does not reach the other's memory, else what the driver answers.
    pub(crate) fn open(&self) -> Result<()> {
        let reaches = reaches(self.device.functions(), self.device.raw, self.owner);
        if !reaches.map_err(|code| self.device.failed("cuDeviceCanAccessPeer", code))? {
            return Err(self.apart(""));
        }
        if self.is_mapped()? {
            return self.open_mappings();
        }
        match self.ask(Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, self.address)? {
            // What comes of a pool, whose owner is no context.
            0 => self.open_pool(),
            context => self.open_context(context),
        }
    }

    /// Whether it is mapped to its addresses; else it was allocated there.
    fn is_mapped(&self) -> Result<bool> {
        let functions = self.device.functions();
        let (Some(retain), Some(release)) = (functions.cuMemRetainAllocationHandle, functions.cuMemRelease) else {
            return Ok(false);
        };
        let (mut memory, place) = (0, ptr::without_provenance_mut(self.address as usize));
        // SAFETY: the place is for a handle, and the driver knows which addresses are mapped.
        match unsafe { retain(&raw mut memory, place) } {
            status::SUCCESS => {
                // SAFETY: the handle was made for this call.
                self.device.note("cuMemRelease", unsafe { release(memory) });
                Ok(true)
            }
            code if is_loss(code) => Err(self.device.failed("cuMemRetainAllocationHandle", code)),
            _ => Ok(false),
        }
    }

    fn open_mappings(&self) -> Result<()> {
        const CALL: &str = "cuMemSetAccess";
        let allow = self.device.functions().cuMemSetAccess.ok_or_else(|| self.without(CALL))?;
        let last = self.address + (self.size - 1);
        let base = self.ask(Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, self.address)?;
        let last_base = self.ask(Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, last)?;
        let last_size = self.ask(Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE, last)?;
        let length = last_base.saturating_add(last_size).saturating_sub(base);
        let access = self.device.access();
        // SAFETY: one description; the driver knows what is mapped in the range.
        self.check(CALL, unsafe { allow(base, length as usize, &raw const access, 1) })
    }

    fn open_context(&self, context: u64) -> Result<()> {
        const CALL: &str = "cuCtxEnablePeerAccess";
        const ALREADY_ENABLED: u32 = 704;
        let enable = self.device.functions().cuCtxEnablePeerAccess.ok_or_else(|| self.without(CALL))?;
        // SAFETY: the context that the memory was made in, which has it still.
        match unsafe { enable(ptr::without_provenance_mut(context as usize), 0) } {
            ALREADY_ENABLED => Ok(()),
            code => self.check(CALL, code),
        }
    }

    fn open_pool(&self) -> Result<()> {
        const CALL: &str = "cuMemPoolSetAccess";
        let pool = match self.ask(Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, self.address)? {
            0 => return Err(self.apart(" (it is of no context, no mapping and no pool)")),
            pool => ptr::without_provenance_mut(pool as usize),
        };
        let allow = self.device.functions().cuMemPoolSetAccess.ok_or_else(|| self.without(CALL))?;
        let access = self.device.access();
        // SAFETY: one description; the pool that the memory is of.
        self.check(CALL, unsafe { allow(pool, &raw const access, 1) })
    }

    /// What the driver says of an address, which is an address, a size, or a handle.
    fn ask(&self, wanted: Attribute, address: sys::CUdeviceptr) -> Result<u64> {
        const CALL: &str = "cuPointerGetAttribute";
        let ask = self.device.functions().cuPointerGetAttribute.ok_or_else(|| self.without(CALL))?;
        let mut found = 0_u64;
        // SAFETY: the place is for eight bytes, and none of what is asked for has more.
        self.check(CALL, unsafe { ask((&raw mut found).cast(), wanted, address) })?;
        Ok(found)
    }

    /// What came of a call.
    fn check(&self, call: &str, code: u32) -> Result<()> {
        const PEER_ACCESS_UNSUPPORTED: u32 = 217;
        const TOO_MANY_PEERS: u32 = 711;
        match code {
            PEER_ACCESS_UNSUPPORTED | TOO_MANY_PEERS => {
                Err(self.apart(&format!(" ({call}: {})", self.device.functions().words(code))))
            }
            code => self.device.check(call, code),
        }
    }

    fn without(&self, function: &str) -> Error {
        self.apart(&format!(" (the driver has no {function})"))
    }

    /// The devices do not reach each other, as far as this memory goes.
    fn apart(&self, why: &str) -> Error {
        let (owner, this) = (self.owner, self.device.raw);
        let does_not = format!("memory of device {owner}, which device {this} does not reach{why}");
        Error::Driver {
            call: "import".to_string(),
            code: 0,
            message: format!("{does_not}: its bytes go through the host"),
        }
    }
}
