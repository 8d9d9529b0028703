//! Memory and addresses apart: reserving, making, mapping, and saying who may touch what.

use alloc::sync::Arc;

use super::pointers::{In, Out};
use super::pool::{DEVICE, Grant, Location};
use super::{exports, require};
use crate::codes::{Code, Outcome};
use crate::context::{self as contexts, Context};
use crate::driver::driver;
use crate::handles;
use crate::memory::{Backing, GRANULARITY, Kind, Protection, Region};
use crate::report::ReportKind;

/// What memory is made with. Equivalent to: `CUmemAllocationProp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Properties {
    kind: u32,
    handles: u32,
    location: Location,
    metadata: usize,
    flags: u64,
}

impl Properties {
    /// The device whose memory it is to be.
    fn device(&self) -> Outcome<Arc<crate::device::Device>> {
        require(self.kind == 1 && self.location.kind == DEVICE)?;
        // Memory that other processes open is not played.
        if self.handles != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        driver().device(self.location.id)
    }
}

fn is_multiple(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(GRANULARITY)
}

/// Every mapped region of a range, which they must cover.
fn mapped(context: &Context, base: u64, size: u64) -> Outcome<Vec<Arc<Region>>> {
    let (mut found, mut at) = (Vec::new(), base);
    while at < base + size {
        match driver().space.containing(at) {
            Some(region) if region.kind == Kind::Mapped => {
                at = region.end();
                found.push(region);
            }
            _ => {
                context.device.report(ReportKind::BadCall, format!("nothing is mapped at 0x{at:x}"));
                return Err(Code::INVALID_VALUE);
            }
        }
    }
    Ok(found)
}

/// The regions of a range that ends in the midst of none: what is mapped together is unmapped and opened together.
fn whole(regions: Vec<Arc<Region>>, base: u64, size: u64) -> Outcome<Vec<Arc<Region>>> {
    let begins = regions.first().is_some_and(|first| first.base == base);
    require(begins && regions.last().is_some_and(|last| last.end() == base + size))?;
    Ok(regions)
}

exports! {
    fn cuMemGetAllocationGranularity(out: Out<usize>, properties: In<Properties>, _option: u32) {
        properties.get()?.device()?;
        out.set(GRANULARITY as usize)
    }

    fn cuMemAddressReserve(out: Out<u64>, size: usize, alignment: usize, hint: u64, flags: u64) {
        contexts::current()?;
        // A hint where to reserve may be ignored, and is.
        let _ = hint;
        require(flags == 0 && is_multiple(size as u64) && (alignment == 0 || alignment.is_power_of_two()))?;
        out.set(driver().space.reserve(size as u64, alignment as u64))
    }

    fn cuMemAddressFree(address: u64, size: usize) {
        let context = contexts::current()?;
        driver().space.unreserve(address, size as u64).map_err(|why| {
            context.device.report(ReportKind::BadFree, why);
            Code::INVALID_VALUE
        })
    }

    fn cuMemCreate(out: Out<usize>, size: usize, properties: In<Properties>, flags: u64) {
        let device = properties.get()?.device()?;
        require(flags == 0 && is_multiple(size as u64) && !out.is_null())?;
        device.take(size as u64)?;
        let (handle, backing) = (handles::fresh(), Arc::new(Backing::charged(device, size as u64)));
        driver().backings.keep(handle, backing);
        out.set(handle)
    }

    fn cuMemRelease(handle: usize) {
        driver().backings.remove(handle).map(drop).map_err(|_| Code::INVALID_VALUE)
    }

    fn cuMemMap(address: u64, size: usize, offset: usize, handle: usize, flags: u64) {
        let (context, size, offset) = (contexts::current()?, size as u64, offset as u64);
        let backing = driver().backings.get(handle).map_err(|_| Code::INVALID_VALUE)?;
        let refuse = |why: String| {
            context.device.report(ReportKind::BadCall, why);
            Err(Code::INVALID_VALUE)
        };
        if flags != 0 || !is_multiple(size) || !offset.is_multiple_of(GRANULARITY) || !address.is_multiple_of(GRANULARITY) {
            return refuse(format!("{size} bytes from {offset} at 0x{address:x}: all are multiples of {GRANULARITY}"));
        }
        if offset.checked_add(size).is_none_or(|end| end > backing.size) {
            return refuse(format!("{size} bytes from {offset} on of memory that has {}", backing.size));
        }
        if !driver().space.is_reserved(address, size) {
            return refuse(format!("{size} bytes at 0x{address:x} are not reserved"));
        }
        if let Some(other) = driver().space.overlapping(address, size) {
            return refuse(format!("{size} bytes at 0x{address:x}: {} are mapped at 0x{:x}", other.size, other.base));
        }
        driver().space.show(address, size, Kind::Mapped, backing, offset);
        Ok(())
    }

    fn cuMemUnmap(address: u64, size: usize) {
        let context = contexts::current()?;
        let regions = whole(mapped(&context, address, size as u64)?, address, size as u64)?;
        context.wait();
        for region in regions {
            region.free();
            driver().space.forget(region.base);
        }
        context.check()
    }

    fn cuMemSetAccess(address: u64, size: usize, grants: In<Grant>, count: usize) {
        let context = contexts::current()?;
        let regions = whole(mapped(&context, address, size as u64)?, address, size as u64)?;
        for grant in grants.list(count)? {
            require(grant.location.kind == DEVICE && matches!(grant.flags, 0 | 1 | 3))?;
            let device = driver().device(grant.location.id)?;
            let protection = Protection { reads: grant.flags != 0, writes: grant.flags == 3 };
            for region in &regions {
                let owner = region.backing.device;
                if device.ordinal != owner && !device.reaches(owner) {
                    return Err(Code::PEER_ACCESS_UNSUPPORTED);
                }
                region.protect(device.ordinal, protection);
            }
        }
        Ok(())
    }

    fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: u64) {
        contexts::current()?;
        let Location { kind, id: ordinal } = location.get()?;
        require(kind == DEVICE)?;
        let region = driver().space.containing(address).ok_or(Code::INVALID_VALUE)?;
        let device = driver().device(ordinal)?.ordinal;
        flags.set(match region.protection(device) {
            Some(Protection { writes: true, .. }) => 3,
            Some(Protection { reads: true, .. }) => 1,
            _ => 0,
        })
    }

    fn cuMemRetainAllocationHandle(out: Out<usize>, address: u64) {
        contexts::current()?;
        let region = driver().space.containing(address).filter(|region| region.kind == Kind::Mapped);
        let region = region.ok_or(Code::INVALID_VALUE)?;
        let handle = handles::fresh();
        driver().backings.keep(handle, region.backing.clone());
        out.set(handle)
    }
}
