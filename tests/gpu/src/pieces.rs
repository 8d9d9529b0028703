//! Memory that is mapped piece by piece, each behind the one before, at addresses that were reserved for all: as pages of the backend grow.

use crate::assumption::{Answer, gave};
use crate::device::Device;
use trunnion_cuda_raw::{Access, Address, MISSING, Placement};

/// Reserved addresses, and how many pieces of memory are mapped from their begin on.
pub(crate) struct Pieces<'a> {
    device: &'a Device,
    ordinal: i32,
    /// Of the first byte.
    pub(crate) address: Address,
    /// Bytes of each piece.
    pub(crate) size: usize,
    count: usize,
}

impl<'a> Pieces<'a> {
    /// Addresses for so many pieces of a device's memory, each as small as it can be; nothing where a driver maps none, which is then not used.
    pub(crate) fn reserve(device: &'a Device, ordinal: i32, most: usize) -> Result<Option<Self>, String> {
        let (driver, placement) = (device.driver, Placement::on_device(ordinal));
        let (mut size, mut address) = (0, 0);
        // SAFETY: the places are for what is asked, and sizes are multiples of the granularity.
        unsafe {
            match driver.cuMemGetAllocationGranularity(&raw mut size, &raw const placement, 0) {
                MISSING => return Ok(None),
                code => gave("cuMemGetAllocationGranularity", code, 0)?,
            }
            device.must("cuMemAddressReserve", driver.cuMemAddressReserve(&raw mut address, most * size, 0, 0, 0))?;
        }
        Ok(Some(Self { device, ordinal, address, size, count: 0 }))
    }

    /// Where the next piece begins.
    pub(crate) fn end(&self) -> Address {
        self.address + (self.count * self.size) as Address
    }

    /// Maps a piece behind the others, which its device may use.
    pub(crate) fn add(&mut self) -> Answer {
        let (device, access) = (self.device, Access::read_write(self.ordinal));
        self.map()?;
        // SAFETY: one description of what was mapped.
        let code = unsafe { device.driver.cuMemSetAccess(self.end(), self.size, &raw const access, 1) };
        device.must("cuMemSetAccess", code)?;
        self.count += 1;
        Ok(())
    }

    /// Maps a piece behind the others, which nobody may use and which is not counted.
    pub(crate) fn map(&self) -> Answer {
        let (device, driver, placement) = (self.device, self.device.driver, Placement::on_device(self.ordinal));
        let mut memory = 0;
        // SAFETY: the place is for a handle; the addresses are reserved, and nothing lies there. What is mapped needs no handle.
        unsafe {
            device.must("cuMemCreate", driver.cuMemCreate(&raw mut memory, self.size, &raw const placement, 0))?;
            device.must("cuMemMap", driver.cuMemMap(self.end(), self.size, 0, memory, 0))?;
            device.must("cuMemRelease", driver.cuMemRelease(memory))
        }
    }

    /// Takes away what lies behind those that are counted.
    pub(crate) fn unmap(&self) -> Answer {
        // SAFETY: nobody uses what is mapped there.
        self.device.must("cuMemUnmap", unsafe { self.device.driver.cuMemUnmap(self.end(), self.size) })
    }
}
