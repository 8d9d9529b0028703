//! What memory of each kind can be used for.

use crate::assumption::{Answer, assumptions, gave, is};
use crate::device::{Device, LEGACY};
use core::ptr;
use trunnion_cuda_raw::{Address, Copy2D, Pieces};

assumptions! {
    what_is_allocated_begins_at_a_multiple_of_256,
    rows_within_a_device_are_copied_at_any_distance,
    a_kernel_reaches_page_locked_memory_at_the_hosts_address,
    memory_is_mapped_where_addresses_were_reserved,
    any_address_says_where_its_memory_begins_and_how_much_it_is,
}

/// The only device that is asked.
const DEVICE: i32 = 0;

fn what_is_allocated_begins_at_a_multiple_of_256(device: &Device) -> Answer {
    for words in [1, 3, 1000, 1 << 20] {
        is("the address is a multiple of 256", device.memory(words)?.is_multiple_of(256))?;
    }
    Ok(())
}

fn rows_within_a_device_are_copied_at_any_distance(device: &Device) -> Answer {
    let (from, to, driver) = (device.memory(64)?, device.memory(64)?, device.driver);
    let bytes: [u8; 256] = core::array::from_fn(|i| i as u8);
    // No distance is a multiple of anything, and neither is where a side begins.
    let (width, height, (source, source_pitch), (target, target_pitch)) = (5, 7, (3, 13), (6, 29));
    let copy = Copy2D::within_device((from + source, source_pitch), (to + target, target_pitch), width, height);
    let mut found = [0u8; 256];
    // SAFETY: both have 256 bytes on the device and here, and the rows are within them.
    unsafe {
        let code = driver.cuMemcpyHtoDAsync_v2(from, bytes.as_ptr().cast(), bytes.len(), LEGACY);
        device.must("cuMemcpyHtoDAsync", code)?;
        gave("cuMemcpy2DAsync", driver.cuMemcpy2DAsync_v2(&raw const copy, LEGACY), 0)?;
        device.must("cuMemcpyDtoH", driver.cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), to, found.len()))?;
    }
    let mut expected = [0; 256];
    for row in 0..height {
        let (start, end) = (source as usize + row * source_pitch, target as usize + row * target_pitch);
        expected[end..end + width].copy_from_slice(&bytes[start..start + width]);
    }
    is("each byte of the rows is where it belongs, and no other was written", found == expected)
}

fn a_kernel_reaches_page_locked_memory_at_the_hosts_address(device: &Device) -> Answer {
    let (driver, mut host) = (device.driver, ptr::null_mut());
    // SAFETY: the place is for a pointer.
    device.must("cuMemHostAlloc", unsafe { driver.cuMemHostAlloc(&raw mut host, 4096, 0) })?;
    let word = host.cast::<u32>();
    // SAFETY: the memory has room for many words, and nobody else has it.
    unsafe { word.write(0) };
    device.must("cuLaunchKernel", device.launch(c"store", 1, 0, LEGACY, host.expose_provenance() as u64))?;
    gave("the stream", device.end_of(LEGACY), 0)?;
    // SAFETY: as above; the kernel is done.
    gave("the word", unsafe { word.read_volatile() }, 7)?;
    // SAFETY: it is given back once.
    gave("cuMemFreeHost", unsafe { driver.cuMemFreeHost(host) }, 0)
}

fn memory_is_mapped_where_addresses_were_reserved(device: &Device) -> Answer {
    // What a driver does not have is not used.
    let Some(mut pieces) = Pieces::reserve(device.driver, DEVICE, 1)? else { return Ok(()) };
    let (address, size) = (pieces.address, pieces.size);
    is("what memory is a multiple of is a power of two", size.is_power_of_two())?;
    is("the address is a multiple of 256", address.is_multiple_of(256))?;
    pieces.add()?;
    // SAFETY: the memory has as many words.
    device.must("cuMemsetD32", unsafe { device.driver.cuMemsetD32_v2(address, 3, size / 4) })?;
    device.must("cuLaunchKernel", device.launch(c"add_one", 1, 0, LEGACY, address))?;
    gave("the stream", device.end_of(LEGACY), 0)?;
    gave("the first word", device.word(address)?, 4)?;
    gave("the last word", device.word(address + size as u64 - 4)?, 3)?;
    // SAFETY: the kernel is done.
    unsafe { pieces.give_back() }
}

/// Where memory begins, and how many bytes it has, as the driver says it of an address.
fn range(device: &Device, address: Address) -> Result<(Address, usize), String> {
    /// Equivalent to: `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR`, and `CU_POINTER_ATTRIBUTE_RANGE_SIZE`.
    const RANGE: [u32; 2] = [11, 12];
    let (mut start, mut size) = (0, 0);
    // SAFETY: the places are for an address and a size, which is what these attributes are.
    let codes = unsafe {
        let driver = device.driver;
        [
            driver.cuPointerGetAttribute((&raw mut start).cast(), RANGE[0], address),
            driver.cuPointerGetAttribute((&raw mut size).cast(), RANGE[1], address),
        ]
    };
    codes.into_iter().try_for_each(|code| gave("cuPointerGetAttribute", code, 0)).map(|()| (start, size))
}

fn any_address_says_where_its_memory_begins_and_how_much_it_is(device: &Device) -> Answer {
    const BYTES: usize = 40_000;
    let (driver, memory, mut host) = (device.driver, device.memory(BYTES / 4)?, ptr::null_mut());
    // SAFETY: the place is for a pointer.
    device.must("cuMemHostAlloc", unsafe { driver.cuMemHostAlloc(&raw mut host, BYTES, 0) })?;
    for (kind, start) in [("the device's", memory), ("page-locked", host.expose_provenance() as Address)] {
        for at in [0, 1, BYTES as Address - 1] {
            let found = range(device, start + at)?;
            if found != (start, BYTES) {
                return Err(format!("byte {at} of {BYTES} at {start:#x}, {kind}, is said to be of {found:x?}"));
            }
        }
    }
    // SAFETY: it is given back once.
    gave("cuMemFreeHost", unsafe { driver.cuMemFreeHost(host) }, 0)
}
