//! Allocations in the order of a stream, and the pools they come from.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::memory::freeable;
use super::pointers::{Host, In, Out};
use super::{exports, require, stream_of};
use crate::capture;
use crate::codes::{Code, Outcome};
use crate::driver::driver;
use crate::graph::GraphMemory;
use crate::host;
use crate::memory::Kind;
use crate::pool::Pool;
use crate::stream::Stream;
use crate::work::Work;

/// What a pool is made with. Equivalent to: `CUmemPoolProps`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Properties {
    kind: u32,
    handles: u32,
    location: Location,
    security: usize,
    /// Most bytes, and what is not used.
    reserved: [u64; 8],
}

/// Who may touch memory. Equivalent to: `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Grant {
    pub(super) location: Location,
    pub(super) flags: u32,
}

/// Where memory is, or who touches it. Equivalent to: `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Location {
    pub(super) kind: i32,
    pub(super) id: i32,
}

/// The number of a location that is a device. Equivalent to: `CU_MEM_LOCATION_TYPE_DEVICE`.
pub(super) const DEVICE: i32 = 1;

fn allocate(out: Out<u64>, bytes: usize, pool: &Arc<Pool>, stream: &Arc<Stream>) -> Outcome {
    require(bytes > 0 && !out.is_null())?;
    let bytes = bytes as u64;
    if let Some(capturing) = capture::of(stream) {
        // Memory of the graph: its address is known now, and it lives when the graph runs.
        let context = stream.context.clone();
        context.device.take(bytes)?;
        let region = driver().space.allocate(context.device.ordinal, bytes, Kind::Graph);
        region.free();
        capturing.capture.graph.hold(Arc::new(GraphMemory { context, region: region.clone() }));
        capture::issue(stream, Work::Allocate(region.clone()))?;
        return out.set(region.base);
    }
    let device = driver().device(pool.device as i32)?;
    pool.take(&device, bytes)?;
    let region = driver().space.allocate(pool.device, bytes, Kind::Pooled { pool: pool.handle });
    let shown = region.clone();
    stream.accept(&[], move |_, stamp| {
        shown.set_birth(stamp);
        Work::Nothing
    });
    out.set(region.base)
}

/// Sizes of a pool, by the numbers of `CUmemPool_attribute`.
fn size(pool: &Pool, attribute: u32) -> Outcome<u64> {
    let sizes = pool.sizes();
    Ok(match attribute {
        4 => pool.threshold.load(Ordering::Relaxed),
        5 => sizes.reserved,
        6 => sizes.reserved_high,
        7 => sizes.used,
        8 => sizes.used_high,
        _ => return Err(Code::INVALID_VALUE),
    })
}

exports! {
    fn cuMemAllocAsync(out: Out<u64>, bytes: usize, stream: usize) {
        let stream = stream_of(stream)?;
        let pool = stream.context.device.current_pool();
        allocate(out, bytes, &pool, &stream)
    }

    fn cuMemAllocFromPoolAsync(out: Out<u64>, bytes: usize, pool: usize, stream: usize) {
        let stream = stream_of(stream)?;
        let pool = driver().pool(pool)?;
        allocate(out, bytes, &pool, &stream)
    }

    fn cuMemFreeAsync(address: u64, stream: usize) {
        let stream = stream_of(stream)?;
        // Memory of a graph is not there while the graph is recorded.
        let recorded = driver().space.at(address).filter(|region| region.kind == Kind::Graph && capture::is_capturing(&stream));
        let region = match recorded {
            Some(region) => region,
            None => freeable(&stream.context, address)?,
        };
        require(matches!(region.kind, Kind::Pooled { .. } | Kind::Device | Kind::Graph))?;
        capture::issue(&stream, Work::Free(region))
    }

    fn cuMemPoolCreate(out: Out<usize>, properties: In<Properties>) {
        let Properties { kind, location, reserved, .. } = properties.get()?;
        require(kind == 1 && location.kind == DEVICE && reserved[1..].iter().all(|word| *word == 0))?;
        let device = driver().device(location.id)?;
        let pool = Arc::new(Pool::new(device.ordinal));
        driver().pools.keep(pool.handle, pool.clone());
        out.set(pool.handle)
    }

    fn cuMemPoolDestroy(handle: usize) {
        let pool = driver().pools.remove(handle)?;
        let device = driver().device(pool.device as i32)?;
        if device.current_pool().handle == handle {
            device.set_pool(device.default_pool());
        }
        pool.trim(&device, 0);
        Ok(())
    }

    fn cuMemPoolTrimTo(pool: usize, keep: usize) {
        let pool = driver().pool(pool)?;
        pool.trim(&*driver().device(pool.device as i32)?, keep as u64);
        Ok(())
    }

    fn cuMemPoolGetAttribute(pool: usize, attribute: u32, out: Host) {
        let pool = driver().pool(pool)?;
        require(!out.is_null())?;
        match attribute {
            // What may be used again without waiting.
            1..=3 => host::write(out.address(), &1u32.to_le_bytes()),
            _ => host::write(out.address(), &size(&pool, attribute)?.to_le_bytes()),
        }
        Ok(())
    }

    fn cuMemPoolSetAttribute(pool: usize, attribute: u32, value: Host) {
        let pool = driver().pool(pool)?;
        match attribute {
            1..=3 => require(!value.is_null()),
            4 => {
                let bytes = value.bytes(8)?;
                let word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
                pool.threshold.store(word, Ordering::Relaxed);
                Ok(())
            }
            6 | 8 => {
                require(value.bytes(8)?.iter().all(|byte| *byte == 0))?;
                pool.reset_high(attribute == 6);
                Ok(())
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemPoolSetAccess(pool: usize, grants: In<Grant>, count: usize) {
        let pool = driver().pool(pool)?;
        for grant in grants.list(count)? {
            require(grant.location.kind == DEVICE && matches!(grant.flags, 0 | 3))?;
            let device = driver().device(grant.location.id)?;
            pool.open_to(device.ordinal, grant.flags == 3);
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(flags: Out<u32>, pool: usize, location: In<Location>) {
        let pool = driver().pool(pool)?;
        let Location { kind, id: ordinal } = location.get()?;
        require(kind == DEVICE)?;
        flags.set(if pool.is_open_to(driver().device(ordinal)?.ordinal) { 3 } else { 0 })
    }

    fn cuDeviceGetDefaultMemPool(out: Out<usize>, device: i32) {
        out.set(driver().device(device)?.default_pool().handle)
    }

    fn cuDeviceGetMemPool(out: Out<usize>, device: i32) {
        out.set(driver().device(device)?.current_pool().handle)
    }

    fn cuDeviceSetMemPool(device: i32, pool: usize) {
        let (device, pool) = (driver().device(device)?, driver().pool(pool)?);
        require(pool.device == device.ordinal)?;
        device.set_pool(pool);
        Ok(())
    }
}
