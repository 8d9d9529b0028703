//! What memory is by its address, and what one device is to another's memory.

use crate::assumption::{Answer, assumptions, gave, is};
use crate::device::{Device, LEGACY};
use core::ffi::c_void;
use core::ptr;
use trunnion_cuda_raw::{Access, Address, Copy2D, Handle, Pieces};

assumptions! {
    how_memory_was_made_is_told_by_its_address;
    2 devices:
    memory_of_another_device_is_used_where_it_is,
}

/// The first device, which uses memory of the second.
const HERE: i32 = 0;
const THERE: i32 = 1;

/// What a pointer is asked. Equivalent to: `CU_POINTER_ATTRIBUTE_CONTEXT`, `…_MEMPOOL_HANDLE`, `…_MAPPING_SIZE`, `…_MAPPING_BASE_ADDR`.
const CONTEXT: u32 = 1;
const POOL: u32 = 17;
const MAPPING_SIZE: u32 = 18;
const MAPPING_BASE: u32 = 19;

/// What the driver says of an address.
fn told(device: &Device, wanted: u32, address: Address) -> Result<u64, String> {
    let mut found = 0_u64;
    // SAFETY: the place is for eight bytes, as what is asked for is.
    let code = unsafe { device.driver.cuPointerGetAttribute((&raw mut found).cast(), wanted, address) };
    gave(&format!("cuPointerGetAttribute of {wanted}"), code, 0).map(|()| found)
}

/// Whether memory is mapped to an address.
fn is_mapped(device: &Device, address: Address) -> Result<bool, String> {
    let (mut memory, place) = (0, ptr::without_provenance_mut::<c_void>(address as usize));
    // SAFETY: the place is for a handle, which is given back.
    unsafe {
        if device.driver.cuMemRetainAllocationHandle(&raw mut memory, place) != 0 {
            return Ok(false);
        }
        device.must("cuMemRelease", device.driver.cuMemRelease(memory)).map(|()| true)
    }
}

/// Two pieces of a device's memory side by side, which that device alone may use; nothing where none are mapped.
fn pieces(device: &Device, ordinal: i32) -> Result<Option<(Address, usize)>, String> {
    let Some(mut pieces) = Pieces::reserve(device.driver, ordinal, 2)? else { return Ok(None) };
    pieces.add()?;
    pieces.add()?;
    Ok(Some((pieces.address, pieces.size)))
}

fn how_memory_was_made_is_told_by_its_address(device: &Device) -> Answer {
    let (driver, mut context, mut pooled) = (device.driver, ptr::null_mut(), 0);
    let allocated = device.memory(64)?;
    // SAFETY: the places are for a handle and an address.
    unsafe {
        device.must("cuCtxGetCurrent", driver.cuCtxGetCurrent(&raw mut context))?;
        device.must("cuMemAllocAsync", driver.cuMemAllocAsync(&raw mut pooled, 256, LEGACY))?;
    }
    is("what is allocated is not mapped", !is_mapped(device, allocated)?)?;
    is("what is allocated is of its context", told(device, CONTEXT, allocated)? == context.expose_provenance() as u64)?;
    is("what is of a pool is not mapped", !is_mapped(device, pooled)?)?;
    is("what is of a pool is of no context", told(device, CONTEXT, pooled)? == 0)?;
    is("what is of a pool says so", told(device, POOL, pooled)? != 0)?;
    let Some((address, size)) = pieces(device, HERE)? else { return Ok(()) };
    let within = address + size as u64 + 64;
    is("what is mapped is mapped", is_mapped(device, within)?)?;
    let mapping = (told(device, MAPPING_BASE, within)?, told(device, MAPPING_SIZE, within)?);
    is("a mapping is what was mapped at once", mapping == (address + size as u64, size as u64))
}

/// Memory that the second device has allocated, each word 1, and the context it is of.
fn theirs(device: &Device) -> Result<(Address, Handle), String> {
    let (driver, mut context, mut address) = (device.driver, ptr::null_mut(), 0);
    // SAFETY: the places are for handles and an address, and the memory has as many words.
    unsafe {
        device.must("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(&raw mut context, THERE))?;
        device.must("cuCtxPushCurrent", driver.cuCtxPushCurrent_v2(context))?;
        device.must("cuMemAlloc", driver.cuMemAlloc_v2(&raw mut address, 256))?;
        device.must("cuMemsetD32", driver.cuMemsetD32_v2(address, 1, 64))?;
        device.must("cuCtxSynchronize", driver.cuCtxSynchronize())?;
        device.must("cuCtxPopCurrent", driver.cuCtxPopCurrent_v2(&raw mut context))?;
    }
    Ok((address, context))
}

fn memory_of_another_device_is_used_where_it_is(device: &Device) -> Answer {
    const ALREADY_ENABLED: u32 = 704;
    let (driver, mut can) = (device.driver, 0);
    // SAFETY: the place is for a number.
    device.must("cuDeviceCanAccessPeer", unsafe { driver.cuDeviceCanAccessPeer(&raw mut can, HERE, THERE) })?;
    if can == 0 {
        // What a device does not reach is not used.
        return Ok(());
    }
    let (allocated, context) = theirs(device)?;
    // SAFETY: the context is in use.
    unsafe {
        gave("cuCtxEnablePeerAccess", driver.cuCtxEnablePeerAccess(context, 0), 0)?;
        gave("cuCtxEnablePeerAccess again", driver.cuCtxEnablePeerAccess(context, 0), ALREADY_ENABLED)?;
    }
    uses(device, allocated, device.memory(64)?)?;
    let Some((mapped, size)) = pieces(device, THERE)? else { return Ok(()) };
    let access = Access::read_write(HERE);
    // SAFETY: one description of all that is mapped there.
    gave("cuMemSetAccess", unsafe { driver.cuMemSetAccess(mapped, 2 * size, &raw const access, 1) }, 0)?;
    // Across the seam.
    uses(device, mapped + size as u64 - 128, device.memory(64)?)
}

/// Fills, adds to, and copies from 64 words of another device, to as many of this one.
fn uses(device: &Device, theirs: Address, ours: Address) -> Answer {
    let driver = device.driver;
    let rows = Copy2D::within_device((theirs, 64), (ours, 64), 64, 2);
    // SAFETY: both have 256 bytes.
    unsafe {
        gave("cuMemsetD32Async", driver.cuMemsetD32Async(theirs, 4, 64, LEGACY), 0)?;
        gave("cuLaunchKernel", device.launch(c"add_one", 1, 0, LEGACY, theirs), 0)?;
        gave("cuMemcpy2DAsync", driver.cuMemcpy2DAsync_v2(&raw const rows, LEGACY), 0)?;
    }
    gave("the stream", device.end_of(LEGACY), 0)?;
    gave("the first word", device.word(ours)?, 5)?;
    gave("the second word", device.word(ours + 4)?, 4)?;
    gave("a word of the second row", device.word(ours + 64)?, 4)?;
    gave("a word beyond", device.word(ours + 128)?, 0)
}
