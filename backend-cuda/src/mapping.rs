//! Memory that is mapped: addresses that are reserved, and from their begin on the pieces of memory that lie there.
//!
//! More addresses are reserved than memory is mapped to, so that memory that is added comes right behind what there is. Addresses cost
//! nothing: a process has 2⁴⁷ of them, and a page reserves what it may grow to, which is an eighth of the device's memory at most.

use crate::device::Device;
use crate::failure::status;
use crate::properties::PAGE_ALIGNMENT;
use crate::retired::Memory;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use cudarc::driver::sys;
use trunnion_runtime_core::error::{Error, OutOfMemory, Result};

/// Reserved addresses with the memory that is mapped to them; or memory that was refused, at the addresses of the mapping it was to belong to.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: sys::CUdeviceptr,
    /// Bytes of addresses that are given back with it; none where they are another mapping's.
    reserved: usize,
    pieces: Vec<Piece>,
    /// Behind the pieces lies memory to which nobody was given access. It is a mapping too, and says here that it is gone.
    is_obstructed: Arc<AtomicBool>,
}

/// Memory that is mapped behind the piece before it.
#[derive(Debug)]
struct Piece {
    size: usize,
    memory: sys::CUmemGenericAllocationHandle,
}

impl Mapping {
    /// Reserves `size` bytes of addresses, a multiple of the device's granularity. The context is current, as for the others.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn reserve(device: &Device, size: usize) -> Result<Self> {
        const CALL: &str = "cuMemAddressReserve";
        let Some(reserve) = device.functions().cuMemAddressReserve else {
            return Err(device.failed(CALL, status::NOT_SUPPORTED));
        };
        let mut address = 0;
        // SAFETY: the place is for an address, the size a multiple of the granularity, and the context current. So for the others.
        device.check(CALL, unsafe { reserve(&raw mut address, size, 0, 0, 0) })?;
        Ok(Self { address, reserved: size, pieces: Vec::new(), is_obstructed: Arc::default() })
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> sys::CUdeviceptr {
        self.address
    }

    /// Whether no memory lies at its addresses.
    pub(crate) fn is_bare(&self) -> bool {
        self.pieces.is_empty() && !self.is_obstructed.load(Ordering::Acquire)
    }

    /// Makes memory and maps it behind what there is: `size` bytes, a multiple of the device's granularity.
    ///
    /// Memory to which the driver gives no access is handed over to be given back, since that may wait for what the device does.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] where the addresses end; [`Error::OutOfMemory`] too while what was refused before still lies there; what the
    /// driver answers. It is as it was, and may be tried again.
    pub(crate) fn extend(&mut self, device: &Device, size: usize) -> Result<()> {
        let functions = device.functions();
        let (Some(create), Some(map), Some(allow)) =
            (functions.cuMemCreate, functions.cuMemMap, functions.cuMemSetAccess)
        else {
            return Err(device.failed("cuMemMap", status::NOT_SUPPORTED));
        };
        let held: usize = self.pieces.iter().map(|piece| piece.size).sum();
        let end = held.saturating_add(size);
        if end > self.reserved {
            let (range, size) = (held as u64..end as u64, self.reserved as u64);
            return Err(Error::OutOfRange { what: "memory mapped behind a page".into(), range, size });
        }
        let address = self.address + held as u64;
        if self.is_obstructed.load(Ordering::Acquire) {
            let driver = format!("memory at {address:#x}, refused by cuMemSetAccess, is not given back yet");
            return Err(Error::OutOfMemory(Box::new(OutOfMemory { driver: Some(driver), ..OutOfMemory::default() })));
        }
        let (properties, mut memory) = (device.properties_of_memory(), 0);
        // SAFETY: as above; the properties are of this device.
        device.check("cuMemCreate", unsafe { create(&raw mut memory, size, &raw const properties, 0) })?;
        // SAFETY: as above; the addresses are reserved, and nothing is mapped there.
        if let Err(error) = device.check("cuMemMap", unsafe { map(address, size, 0, memory, 0) }) {
            device.retire(Memory::Made(memory), size as u64);
            return Err(error);
        }
        let (piece, access) = (Piece { size, memory }, device.access());
        // SAFETY: as above; one description.
        if let Err(error) = device.check("cuMemSetAccess", unsafe { allow(address, size, &raw const access, 1) }) {
            self.is_obstructed.store(true, Ordering::Relaxed);
            let is_obstructed = self.is_obstructed.clone();
            let refused = Self { address, reserved: 0, pieces: vec![piece], is_obstructed };
            device.retire(Memory::Mapped(refused), size as u64);
            return Err(error);
        }
        self.pieces.push(piece);
        Ok(())
    }

    /// Gives all of it back, which nobody uses any more; after what was refused behind it.
    pub(crate) fn give_back(self, device: &Device) {
        let functions = device.functions();
        let mut address = self.address;
        let mut is_mapped = false;
        for Piece { size, memory } in self.pieces {
            // SAFETY: nobody uses it any more, and the context is current. So for the others.
            let code = functions.cuMemUnmap.map_or(status::SUCCESS, |unmap| unsafe { unmap(address, size) });
            device.note("cuMemUnmap", code);
            if code == status::SUCCESS {
                release(device, memory);
            } else {
                // It is still mapped there.
                is_mapped = true;
            }
            address += size as u64;
        }
        if self.reserved == 0 {
            self.is_obstructed.store(is_mapped, Ordering::Release);
            return;
        }
        is_mapped |= self.is_obstructed.load(Ordering::Acquire);
        if let (Some(give_back), false) = (functions.cuMemAddressFree, is_mapped) {
            // SAFETY: as above.
            device.note("cuMemAddressFree", unsafe { give_back(self.address, self.reserved) });
        }
    }
}

/// Gives back memory that is mapped nowhere.
pub(crate) fn release(device: &Device, memory: sys::CUmemGenericAllocationHandle) {
    if let Some(release) = device.functions().cuMemRelease {
        // SAFETY: nobody uses it any more, and the context is current.
        device.note("cuMemRelease", unsafe { release(memory) });
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
        // Pages grow in steps of it.
        let is_step = (bytes as u64).is_power_of_two() && bytes as u64 >= PAGE_ALIGNMENT;
        is_step.then_some(bytes as u64)
    }

    /// That the device may read and write memory which is mapped, or of a pool.
    pub(crate) fn access(&self) -> sys::CUmemAccessDesc {
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        sys::CUmemAccessDesc { location: self.location(), flags }
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
