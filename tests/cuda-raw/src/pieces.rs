//! Memory that is mapped piece by piece, each behind the one before, at addresses that were reserved for all.

use crate::{Access, Address, Driver, MISSING, Placement};
use core::ffi::{c_int, c_ulonglong};

/// Reserved addresses, and how many pieces of memory are mapped from their begin on.
#[derive(Debug)]
pub struct Pieces {
    driver: &'static Driver,
    device: c_int,
    /// Of the first byte.
    pub address: Address,
    /// Bytes of each piece.
    pub size: usize,
    most: usize,
    count: usize,
    /// Of the last pieces, which are held besides being mapped.
    memory: Vec<c_ulonglong>,
}

impl Pieces {
    /// Addresses for so many pieces of a device's memory, each as small as it can be; nothing where the driver maps none. A context is
    /// current, as for the others.
    ///
    /// # Errors
    /// The call that failed and its status, as for the others.
    pub fn reserve(driver: &'static Driver, device: c_int, most: usize) -> Result<Option<Self>, String> {
        let placement = Placement::on_device(device);
        let (mut size, mut address) = (0, 0);
        // SAFETY: the place is for a size.
        match unsafe { driver.cuMemGetAllocationGranularity(&raw mut size, &raw const placement, 0) } {
            MISSING => return Ok(None),
            status => driver.check("cuMemGetAllocationGranularity", status)?,
        }
        // SAFETY: the place is for an address, and the size a multiple of the granularity.
        let status = unsafe { driver.cuMemAddressReserve(&raw mut address, most * size, 0, 0, 0) };
        driver.check("cuMemAddressReserve", status)?;
        Ok(Some(Self { driver, device, address, size, most, count: 0, memory: Vec::new() }))
    }

    /// Where the next piece begins.
    pub fn end(&self) -> Address {
        self.address + self.held() as Address
    }

    /// Bytes of the pieces that are counted.
    pub fn held(&self) -> usize {
        self.count * self.size
    }

    /// Maps a piece behind the others, which its device may use.
    ///
    /// # Errors
    /// As above.
    pub fn add(&mut self) -> Result<(), String> {
        self.map()?;
        self.give_access(self.end(), self.size, self.device)?;
        self.count += 1;
        Ok(())
    }

    /// Maps a piece behind the others, which nobody may use and which is not counted.
    ///
    /// # Errors
    /// As above.
    pub fn map(&mut self) -> Result<(), String> {
        let (driver, placement, mut memory) = (self.driver, Placement::on_device(self.device), 0);
        // SAFETY: the place is for a handle, and the size is the granularity.
        let status = unsafe { driver.cuMemCreate(&raw mut memory, self.size, &raw const placement, 0) };
        driver.check("cuMemCreate", status)?;
        self.memory.push(memory);
        // SAFETY: nothing lies there; the driver refuses addresses that are not reserved.
        driver.check("cuMemMap", unsafe { driver.cuMemMap(self.end(), self.size, 0, memory, 0) })
    }

    /// Takes away what lies behind those that are counted.
    ///
    /// # Errors
    /// As above.
    pub fn unmap(&mut self) -> Result<(), String> {
        // SAFETY: nobody may use what is mapped there.
        self.driver.check("cuMemUnmap", unsafe { self.driver.cuMemUnmap(self.end(), self.size) })?;
        self.memory.pop().map_or(Ok(()), |memory| self.release(memory))
    }

    /// Another device may use all that are counted, too.
    ///
    /// # Errors
    /// As above.
    pub fn allow(&self, device: c_int) -> Result<(), String> {
        self.give_access(self.address, self.held(), device)
    }

    /// Holds the pieces no longer: each stays as long as it is mapped.
    ///
    /// # Errors
    /// As above.
    pub fn let_go(&mut self) -> Result<(), String> {
        core::mem::take(&mut self.memory).into_iter().try_for_each(|memory| self.release(memory))
    }

    /// Gives it back: the pieces, all of which are counted, and the addresses.
    ///
    /// # Errors
    /// As above; the rest stays.
    ///
    /// # Safety
    /// Nobody uses them any more.
    pub unsafe fn give_back(mut self) -> Result<(), String> {
        let driver = self.driver;
        // SAFETY: the caller's promise.
        driver.check("cuMemUnmap", unsafe { driver.cuMemUnmap(self.address, self.held()) })?;
        self.let_go()?;
        // SAFETY: nothing is mapped there any more.
        let status = unsafe { driver.cuMemAddressFree(self.address, self.most * self.size) };
        driver.check("cuMemAddressFree", status)
    }

    fn give_access(&self, address: Address, size: usize, device: c_int) -> Result<(), String> {
        let access = Access::read_write(device);
        // SAFETY: one description of what is mapped there.
        let status = unsafe { self.driver.cuMemSetAccess(address, size, &raw const access, 1) };
        self.driver.check("cuMemSetAccess", status)
    }

    fn release(&self, memory: c_ulonglong) -> Result<(), String> {
        // SAFETY: it was made once, and what is mapped needs no handle.
        self.driver.check("cuMemRelease", unsafe { self.driver.cuMemRelease(memory) })
    }
}
