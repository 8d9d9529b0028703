//! What kernels that die leave behind.

use crate::assumption::{Answer, assumptions, gave};
use crate::device::{Device, LEGACY};
use core::ptr;

assumptions! {
    an_access_out_of_bounds_is_700,
    a_misaligned_access_is_716,
    a_trap_is_719,
    after_it_every_call_of_the_context_gives_the_same_code,
    after_it_devices_can_still_be_counted,
    a_context_that_was_reset_works_again,
    a_context_that_was_let_go_of_works_when_it_is_retained_anew,
}

const OUT_OF_BOUNDS: u32 = 700;

/// Leaves the context good for nothing.
fn die(device: &Device) -> Answer {
    device.must("cuLaunchKernel", device.launch(c"store", 1, 0, LEGACY, 4))?;
    gave("the stream", device.end_of(LEGACY), OUT_OF_BOUNDS)
}

fn an_access_out_of_bounds_is_700(device: &Device) -> Answer {
    die(device)
}

fn a_misaligned_access_is_716(device: &Device) -> Answer {
    let address = device.memory(4)?;
    device.must("cuLaunchKernel", device.launch(c"store", 1, 0, LEGACY, address + 2))?;
    gave("the stream", device.end_of(LEGACY), 716)
}

fn a_trap_is_719(device: &Device) -> Answer {
    device.must("cuLaunchKernel", device.launch(c"dies", 1, 0, LEGACY, 0))?;
    gave("the stream", device.end_of(LEGACY), 719)
}

fn after_it_every_call_of_the_context_gives_the_same_code(device: &Device) -> Answer {
    let (memory, stream, event) = (device.memory(4)?, device.stream(false)?, device.event()?);
    die(device)?;
    let (driver, mut address) = (device.driver, 0);
    // SAFETY: what is named was made above, and the places are for what is asked.
    unsafe {
        gave("cuMemAlloc", driver.cuMemAlloc_v2(&raw mut address, 16), OUT_OF_BOUNDS)?;
        gave("cuMemFree", driver.cuMemFree_v2(memory), OUT_OF_BOUNDS)?;
        gave("cuMemsetD32Async", driver.cuMemsetD32Async(memory, 1, 4, stream), OUT_OF_BOUNDS)?;
        gave("cuStreamQuery", driver.cuStreamQuery(stream), OUT_OF_BOUNDS)?;
        gave("cuEventRecord", driver.cuEventRecord(event, stream), OUT_OF_BOUNDS)?;
        gave("cuEventQuery", driver.cuEventQuery(event), OUT_OF_BOUNDS)?;
        gave("cuCtxSynchronize", driver.cuCtxSynchronize(), OUT_OF_BOUNDS)?;
    }
    gave("cuLaunchKernel", device.launch(c"store", 1, 0, stream, memory), OUT_OF_BOUNDS)
}

fn after_it_devices_can_still_be_counted(device: &Device) -> Answer {
    die(device)?;
    let mut count = 0;
    // SAFETY: the place is for a number.
    gave("cuDeviceGetCount", unsafe { device.driver.cuDeviceGetCount(&raw mut count) }, 0)
}

/// What a context that was given back by this call is good for when it is retained anew.
fn works_again(device: &Device, call: &str, code: u32) -> Answer {
    gave(call, code, 0)?;
    let (driver, mut context) = (device.driver, ptr::null_mut());
    // SAFETY: the place is for a handle, and nothing of the old context is used any more.
    unsafe {
        gave("cuDevicePrimaryCtxRetain", driver.cuDevicePrimaryCtxRetain(&raw mut context, 0), 0)?;
        gave("cuCtxSetCurrent", driver.cuCtxSetCurrent(context), 0)?;
    }
    let address = device.memory(1)?;
    gave("the word of new memory", device.word(address)?, 0)
}

fn a_context_that_was_reset_works_again(device: &Device) -> Answer {
    die(device)?;
    // SAFETY: nothing of the context is used any more.
    works_again(device, "cuDevicePrimaryCtxReset", unsafe { device.driver.cuDevicePrimaryCtxReset_v2(0) })
}

fn a_context_that_was_let_go_of_works_when_it_is_retained_anew(device: &Device) -> Answer {
    die(device)?;
    // SAFETY: it was retained once.
    works_again(device, "cuDevicePrimaryCtxRelease", unsafe { device.driver.cuDevicePrimaryCtxRelease_v2(0) })
}
