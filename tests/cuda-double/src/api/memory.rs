//! Allocating and freeing, of devices and of the program, and what memory is where.

use alloc::sync::Arc;

use super::pointers::{Host, Out};
use super::pool::Location;
use super::{exports, require};
use crate::capture;
use crate::codes::{Code, Outcome};
use crate::context::{self as contexts, Context};
use crate::driver::driver;
use crate::host;
use crate::memory::{Backing, Kind, Region};
use crate::report::ReportKind;
use crate::work::give_back;

/// Memory of the program that devices see at the address it has there.
fn host_memory(context: &Context, bytes: usize, kind: Kind) -> Outcome<usize> {
    require(bytes > 0)?;
    let address = host::allocate(bytes).ok_or(Code::OUT_OF_MEMORY)?;
    show(context, address, bytes, kind);
    Ok(address)
}

fn show(context: &Context, address: usize, bytes: usize, kind: Kind) {
    let backing = Arc::new(Backing::of_host(context.device.ordinal, address, bytes as u64));
    driver().space.show(address as u64, bytes as u64, kind, backing, 0);
}

/// The region that begins here, to be freed; a report and [`Code::INVALID_VALUE`] if there is none.
pub(super) fn freeable(context: &Context, address: u64) -> Outcome<Arc<Region>> {
    let refuse = |why: String| {
        context.device.report(ReportKind::BadFree, why);
        Err(Code::INVALID_VALUE)
    };
    match driver().space.at(address) {
        Some(region) if region.is_freed() => {
            refuse(format!("0x{address:x}, an allocation of {} bytes, is freed twice", region.size))
        }
        Some(region) => Ok(region),
        None => refuse(format!("0x{address:x} is freed, where no allocation begins")),
    }
}

/// Takes memory of the program out of what devices see, and frees it unless it was only shown.
fn release_host(region: &Region) {
    region.free();
    driver().space.forget(region.base);
    if region.kind != (Kind::Host { registered: true }) {
        host::free(region.base as usize, region.size as usize);
    }
}

/// Waits for everything that may still use a region: the caller's work, and that of the memory's device.
fn settle(context: &Arc<Context>, region: &Region) {
    context.wait();
    if region.backing.device != context.device.ordinal
        && let Ok(device) = driver().device(region.backing.device as i32)
    {
        let primary = crate::sync::lock(&device.primary).context.clone();
        if let Some(other) = primary {
            other.wait();
        }
    }
}

/// What a pointer is asked. Equivalent to: `CUpointer_attribute`.
fn attribute(out: Host, attribute: u32, address: u64, answers: impl FnOnce(u32, &Region) -> Option<Answer>) -> Outcome {
    let region = driver().space.containing(address).ok_or(Code::INVALID_VALUE)?;
    match answers(attribute, &region).ok_or(Code::NOT_SUPPORTED)? {
        Answer::Word(word) => host::write(out.address(), &word.to_le_bytes()),
        Answer::Long(long) => host::write(out.address(), &long.to_le_bytes()),
        Answer::Flag(flag) => host::write(out.address(), &[u8::from(flag)]),
    }
    Ok(())
}

/// Where the addresses of an allocation begin, and how many they are; those reserved together, where memory is mapped to them.
fn range(region: &Region) -> (u64, u64) {
    let reserved = driver().space.reservation(region.base).filter(|_| region.kind == Kind::Mapped);
    reserved.unwrap_or((region.base, region.size))
}

enum Answer {
    Word(u32),
    Long(u64),
    Flag(bool),
}

fn answers(attribute: u32, region: &Region, address: u64) -> Option<Answer> {
    let is_host = matches!(region.kind, Kind::Host { .. });
    let is_managed = region.kind == Kind::Managed;
    Some(match attribute {
        1 => Answer::Long(region.context as u64),
        2 => Answer::Word(if is_host { 1 } else { 2 }),
        3 => Answer::Long(address),
        4 if is_host || is_managed => Answer::Long(address),
        4 => return None,
        7 => Answer::Long(region.base),
        8 => Answer::Flag(is_managed),
        9 => Answer::Word(region.backing.device),
        11 => Answer::Long(range(region).0),
        12 => Answer::Long(range(region).1),
        13 => Answer::Flag(true),
        17 => Answer::Long(match region.kind {
            Kind::Pooled { pool } => pool as u64,
            _ => 0,
        }),
        // Of what is not mapped the manual does not say which mapping it is of.
        18 if region.kind == Kind::Mapped => Answer::Long(region.size),
        19 if region.kind == Kind::Mapped => Answer::Long(region.base),
        _ => return None,
    })
}

exports! {
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let (all, used) = contexts::current()?.device.memory();
        free.set(all.saturating_sub(used) as usize)?;
        total.set(all as usize)
    }

    fn cuMemAlloc_v2(out: Out<u64>, bytes: usize) {
        let context = contexts::current()?;
        capture::forbid_meanwhile(&context)?;
        require(bytes > 0 && !out.is_null())?;
        context.device.take(bytes as u64)?;
        out.set(driver().space.allocate(context.device.ordinal, bytes as u64, Kind::Device).base)
    }

    fn cuMemAllocPitch_v2(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) {
        let context = contexts::current()?;
        capture::forbid_meanwhile(&context)?;
        require(matches!(element, 4 | 8 | 16) && width > 0 && height > 0 && !out.is_null())?;
        let row = width.next_multiple_of(512);
        let bytes = row.checked_mul(height).ok_or(Code::OUT_OF_MEMORY)? as u64;
        context.device.take(bytes)?;
        pitch.set(row)?;
        out.set(driver().space.allocate(context.device.ordinal, bytes, Kind::Device).base)
    }

    fn cuMemFree_v2(address: u64) {
        let context = contexts::current()?;
        if address == 0 {
            return Ok(());
        }
        capture::forbid_meanwhile(&context)?;
        let region = freeable(&context, address)?;
        require(!matches!(region.kind, Kind::Mapped | Kind::Variable | Kind::Host { .. }))?;
        settle(&context, &region);
        if region.kind == Kind::Managed {
            release_host(&region);
        } else {
            give_back(&context, &region);
        }
        context.check()
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) {
        contexts::current()?;
        // Of memory that is mapped it is one piece. Of the host's the manual says nothing, so nobody should ask.
        let region = driver().space.containing(address).filter(|region| !matches!(region.kind, Kind::Host { .. }));
        let region = region.ok_or(Code::NOT_FOUND)?;
        base.set_if_wanted(region.base);
        size.set_if_wanted(region.size as usize);
        Ok(())
    }

    fn cuMemHostAlloc(out: Out<usize>, bytes: usize, flags: u32) {
        let context = contexts::current()?;
        capture::forbid_meanwhile(&context)?;
        require(flags & !7 == 0 && !out.is_null())?;
        out.set(host_memory(&context, bytes, Kind::Host { registered: false })?)
    }

    fn cuMemAllocHost_v2(out: Out<usize>, bytes: usize) {
        let context = contexts::current()?;
        capture::forbid_meanwhile(&context)?;
        require(!out.is_null())?;
        out.set(host_memory(&context, bytes, Kind::Host { registered: false })?)
    }

    fn cuMemAllocManaged(out: Out<u64>, bytes: usize, flags: u32) {
        let context = contexts::current()?;
        capture::forbid_meanwhile(&context)?;
        require(matches!(flags, 1 | 2 | 4) && !out.is_null())?;
        out.set(host_memory(&context, bytes, Kind::Managed)? as u64)
    }

    fn cuMemFreeHost(pointer: Host) {
        let context = contexts::current()?;
        capture::forbid_meanwhile(&context)?;
        let region = freeable(&context, pointer.address() as u64)?;
        require(region.kind == Kind::Host { registered: false })?;
        settle(&context, &region);
        release_host(&region);
        context.check()
    }

    fn cuMemHostRegister_v2(pointer: Host, bytes: usize, _flags: u32) {
        let context = contexts::current()?;
        capture::forbid_meanwhile(&context)?;
        require(bytes > 0 && !pointer.is_null())?;
        let address = pointer.address();
        if driver().space.overlapping(address as u64, bytes as u64).is_some() {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        show(&context, address, bytes, Kind::Host { registered: true });
        Ok(())
    }

    fn cuMemHostUnregister(pointer: Host) {
        let context = contexts::current()?;
        capture::forbid_meanwhile(&context)?;
        let region = driver().space.at(pointer.address() as u64).ok_or(Code::HOST_MEMORY_NOT_REGISTERED)?;
        if region.kind != (Kind::Host { registered: true }) {
            return Err(Code::HOST_MEMORY_NOT_REGISTERED);
        }
        settle(&context, &region);
        release_host(&region);
        context.check()
    }

    fn cuMemHostGetDevicePointer_v2(out: Out<u64>, pointer: Host, flags: u32) {
        contexts::current()?;
        require(flags == 0)?;
        let address = pointer.address() as u64;
        let region = driver().space.containing(address).ok_or(Code::INVALID_VALUE)?;
        require(matches!(region.kind, Kind::Host { .. }))?;
        out.set(address)
    }

    fn cuMemHostGetFlags(flags: Out<u32>, pointer: Host) {
        contexts::current()?;
        driver().space.containing(pointer.address() as u64).ok_or(Code::INVALID_VALUE)?;
        flags.set(2)
    }

    fn cuPointerGetAttribute(out: Host, wanted: u32, address: u64) {
        contexts::current()?;
        require(!out.is_null())?;
        attribute(out, wanted, address, |wanted, region| answers(wanted, region, address))
    }

    fn cuMemAdvise(address: u64, bytes: usize, _advice: u32, _device: i32) {
        contexts::current()?;
        driver().space.find(address, bytes as u64).map(drop).map_err(|_| Code::INVALID_VALUE)
    }

    fn cuMemAdvise_v2(address: u64, bytes: usize, _advice: u32, _location: Location) {
        contexts::current()?;
        driver().space.find(address, bytes as u64).map(drop).map_err(|_| Code::INVALID_VALUE)
    }

    fn cuMemPrefetchAsync(address: u64, bytes: usize, device: i32, stream: usize) {
        super::stream_of(stream)?;
        require(device == -1 || driver().device(device).is_ok())?;
        driver().space.find(address, bytes as u64).map(drop).map_err(|_| Code::INVALID_VALUE)
    }

    fn cuMemPrefetchAsync_v2(address: u64, bytes: usize, _location: Location, _flags: u32, stream: usize) {
        super::stream_of(stream)?;
        driver().space.find(address, bytes as u64).map(drop).map_err(|_| Code::INVALID_VALUE)
    }
}
