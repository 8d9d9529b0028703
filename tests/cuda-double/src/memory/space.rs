//! The one address space of the process: every device's memory, and the program's as far as devices see it.
//!
//! Addresses of devices are never given twice and are no addresses of the program, so that a stale or a confused one
//! never happens to fit.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::RwLock;

use super::region::{Backing, Kind, Region};
use crate::codes::{Code, Fault};
use crate::sync::{read, write};

/// Bytes that mapped memory and reserved addresses come in. Equivalent to: `cuMemGetAllocationGranularity`.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// Bytes between two regions that belong to neither: what runs over hits nothing.
const GAP: u64 = 4096;

/// Bytes that addresses of device memory are a multiple of.
const ALIGNMENT: u64 = 512;

const FIRST: u64 = 0x2_0000_0000;

/// Every region that is, and those that were.
pub(crate) struct AddressSpace {
    regions: RwLock<BTreeMap<u64, Arc<Region>>>,
    reserved: RwLock<BTreeMap<u64, u64>>,
    next: AtomicU64,
}

impl AddressSpace {
    pub(crate) fn new() -> Self {
        Self { regions: RwLock::default(), reserved: RwLock::default(), next: AtomicU64::new(FIRST) }
    }

    fn addresses(&self, size: u64, alignment: u64) -> u64 {
        let step = size.next_multiple_of(alignment) + GAP.max(alignment);
        let raw = self.next.fetch_add(step + alignment, Ordering::Relaxed);
        raw.next_multiple_of(alignment)
    }

    /// New memory at new addresses.
    pub(crate) fn allocate(&self, device: u32, size: u64, kind: Kind) -> Arc<Region> {
        let base = self.addresses(size, ALIGNMENT);
        self.show(base, size, kind, Arc::new(Backing::new(device, size)), 0)
    }

    /// Makes a backing's bytes visible at an address.
    pub(crate) fn show(&self, base: u64, size: u64, kind: Kind, backing: Arc<Backing>, offset: u64) -> Arc<Region> {
        let region = Arc::new(Region::new(base, size, kind, backing, offset));
        write(&self.regions).insert(base, region.clone());
        region
    }

    /// Addresses without memory. Equivalent to: `cuMemAddressReserve`.
    pub(crate) fn reserve(&self, size: u64, alignment: u64) -> u64 {
        let base = self.addresses(size, alignment.max(GRANULARITY));
        write(&self.reserved).insert(base, size);
        base
    }

    /// Gives reserved addresses back. Equivalent to: `cuMemAddressFree`.
    pub(crate) fn unreserve(&self, base: u64, size: u64) -> Result<(), String> {
        if self.overlapping(base, size).is_some() {
            return Err(format!("0x{base:x} is freed while something is mapped there"));
        }
        let mut reserved = write(&self.reserved);
        match reserved.get(&base) {
            Some(known) if *known == size => {
                reserved.remove(&base);
                Ok(())
            }
            Some(known) => Err(format!("{size} bytes at 0x{base:x} are freed, and {known} were reserved")),
            None => Err(format!("0x{base:x} was not reserved")),
        }
    }

    /// Whether reserved addresses cover a range.
    pub(crate) fn is_reserved(&self, base: u64, size: u64) -> bool {
        self.reservation(base).is_some_and(|(start, length)| base + size <= start + length)
    }

    /// Where the addresses begin that were reserved together with one, and how many they are.
    pub(crate) fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let reserved = read(&self.reserved);
        let (start, length) = reserved.range(..=address).next_back()?;
        (address < start + length).then_some((*start, *length))
    }

    /// A region in use that shares addresses with a range.
    pub(crate) fn overlapping(&self, base: u64, size: u64) -> Option<Arc<Region>> {
        let regions = read(&self.regions);
        let before = regions.range(..base + size).rev().take_while(|(_, region)| region.end() > base);
        before.map(|(_, region)| region).find(|region| !region.is_freed()).cloned()
    }

    /// The region that begins at an address, in use or not.
    pub(crate) fn at(&self, base: u64) -> Option<Arc<Region>> {
        read(&self.regions).get(&base).cloned()
    }

    /// The region in use that an address lies in.
    pub(crate) fn containing(&self, address: u64) -> Option<Arc<Region>> {
        self.find(address, 1).ok()
    }

    /// Forgets a region of the program's memory: what comes there next is another's.
    pub(crate) fn forget(&self, base: u64) {
        write(&self.regions).remove(&base);
    }

    /// The region in use that holds `size` bytes from an address on, or what is wrong with them.
    pub(crate) fn find(&self, address: u64, size: u64) -> Result<Arc<Region>, Fault> {
        let regions = read(&self.regions);
        let Some((_, region)) = regions.range(..=address).next_back() else {
            return Err(illegal(format!("{size} bytes at 0x{address:x} are in no allocation")));
        };
        let into = address - region.base;
        if address >= region.end() {
            let past = address - region.end();
            return Err(illegal(format!(
                "{size} bytes at 0x{address:x} are in no allocation; one of {} bytes ends {past} bytes before",
                region.size
            )));
        }
        if region.is_freed() {
            return Err(illegal(format!(
                "use after free: {size} bytes at 0x{address:x}, {into} bytes into a freed allocation of {} bytes",
                region.size
            )));
        }
        // Memory mapped side by side is as one.
        if size > region.end() - address && !self.continues(&regions, region, address + size) {
            return Err(illegal(format!(
                "out of bounds: {size} bytes at 0x{address:x}, {into} bytes into an allocation of {} bytes",
                region.size
            )));
        }
        Ok(region.clone())
    }

    fn continues(&self, regions: &BTreeMap<u64, Arc<Region>>, region: &Region, end: u64) -> bool {
        let mut at = region.end();
        while region.kind == Kind::Mapped && at < end {
            match regions.get(&at) {
                Some(next) if next.kind == Kind::Mapped && !next.is_freed() => at = next.end(),
                _ => return false,
            }
        }
        at >= end
    }
}

fn illegal(why: String) -> Fault {
    Fault::new(Code::ILLEGAL_ADDRESS, why)
}

#[cfg(test)]
mod tests {
    use super::{AddressSpace, GRANULARITY, Kind};

    #[test]
    fn addresses_are_never_given_twice_and_what_was_freed_is_known() {
        let space = AddressSpace::new();
        let first = space.allocate(0, 100, Kind::Device);
        assert_eq!(first.base % 512, 0);
        assert!(space.find(first.base + 96, 4).is_ok());
        assert!(space.find(first.base + 97, 4).unwrap_err().why.contains("97 bytes into an allocation of 100"));
        first.free();
        assert!(space.find(first.base, 1).unwrap_err().why.contains("use after free"));
        assert_ne!(space.allocate(0, 100, Kind::Device).base, first.base);
    }

    #[test]
    fn a_little_beyond_an_allocation_is_nobodys() {
        let space = AddressSpace::new();
        let first = space.allocate(0, 512, Kind::Device);
        let _second = space.allocate(0, 512, Kind::Device);
        assert!(space.find(first.end() + 8, 4).unwrap_err().why.contains("ends 8 bytes before"));
    }

    #[test]
    fn reserved_addresses_go_back_as_they_came() {
        let space = AddressSpace::new();
        let base = space.reserve(2 * GRANULARITY, 0);
        assert!(space.is_reserved(base + GRANULARITY, GRANULARITY));
        assert!(!space.is_reserved(base + GRANULARITY, 2 * GRANULARITY));
        assert!(space.unreserve(base, GRANULARITY).unwrap_err().contains("were reserved"));
        space.unreserve(base, 2 * GRANULARITY).unwrap();
        assert!(space.unreserve(base, 2 * GRANULARITY).is_err());
    }
}
