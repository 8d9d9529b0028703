//! What a capture forbids, and how it ends.

use crate::assumption::{Answer, assumptions, gave, is};
use crate::device::Device;
use core::ptr;
use trunnion_cuda_raw::Handle;

assumptions! {
    an_allocation_in_a_capture_is_900_and_the_capture_ends_with_901,
    waiting_for_a_stream_that_captures_is_900,
    memory_of_the_streams_own_may_be_allocated_in_a_capture,
    an_event_takes_another_stream_into_the_capture,
    a_capture_with_work_that_was_not_joined_ends_with_904,
}

/// A capture that forbids all that could disturb it, of every thread.
const GLOBAL: u32 = 0;

fn begin(device: &Device) -> Result<Handle, String> {
    let stream = device.stream(false)?;
    // SAFETY: the stream was made above.
    let code = unsafe { device.driver.cuStreamBeginCapture_v2(stream, GLOBAL) };
    device.must("cuStreamBeginCapture", code).map(|()| stream)
}

/// What ending a capture gives.
fn end(device: &Device, stream: Handle) -> u32 {
    let mut graph = ptr::null_mut();
    // SAFETY: the stream captures, and the place is for a handle.
    unsafe { device.driver.cuStreamEndCapture(stream, &raw mut graph) }
}

fn an_allocation_in_a_capture_is_900_and_the_capture_ends_with_901(device: &Device) -> Answer {
    let (stream, mut address) = (begin(device)?, 0);
    // SAFETY: the place is for an address.
    gave("cuMemAlloc", unsafe { device.driver.cuMemAlloc_v2(&raw mut address, 16) }, 900)?;
    gave("cuStreamEndCapture", end(device, stream), 901)
}

fn waiting_for_a_stream_that_captures_is_900(device: &Device) -> Answer {
    let stream = begin(device)?;
    gave("cuStreamSynchronize", device.end_of(stream), 900)?;
    gave("cuStreamEndCapture", end(device, stream), 901)
}

fn memory_of_the_streams_own_may_be_allocated_in_a_capture(device: &Device) -> Answer {
    let (stream, mut address) = (begin(device)?, 0);
    // SAFETY: the place is for an address, and the stream captures.
    gave("cuMemAllocAsync", unsafe { device.driver.cuMemAllocAsync(&raw mut address, 16, stream) }, 0)?;
    gave("cuStreamEndCapture", end(device, stream), 0)
}

/// A capture into which an event takes a second stream.
fn fork(device: &Device) -> Result<[Handle; 3], String> {
    let (other, event) = (device.stream(false)?, device.event()?);
    let stream = begin(device)?;
    // SAFETY: all were made above.
    unsafe {
        device.must("cuEventRecord", device.driver.cuEventRecord(event, stream))?;
        device.must("cuStreamWaitEvent", device.driver.cuStreamWaitEvent(other, event, 0))?;
    }
    Ok([stream, other, event])
}

fn an_event_takes_another_stream_into_the_capture(device: &Device) -> Answer {
    let memory = device.memory(1)?;
    let [stream, other, event] = fork(device)?;
    let mut status = 0;
    // SAFETY: all are the driver's, and the place is for a number.
    unsafe {
        gave("cuStreamIsCapturing", device.driver.cuStreamIsCapturing(other, &raw mut status), 0)?;
        is("the other stream captures", status == 1)?;
        device.must("cuMemsetD32Async", device.driver.cuMemsetD32Async(memory, 3, 1, other))?;
        gave("cuEventRecord", device.driver.cuEventRecord(event, other), 0)?;
        gave("cuStreamWaitEvent", device.driver.cuStreamWaitEvent(stream, event, 0), 0)?;
    }
    gave("cuStreamEndCapture", end(device, stream), 0)?;
    // It was recorded, not done.
    gave("the word", device.word(memory)?, 0)
}

fn a_capture_with_work_that_was_not_joined_ends_with_904(device: &Device) -> Answer {
    let memory = device.memory(1)?;
    let [stream, other, _] = fork(device)?;
    // SAFETY: the memory has a word, and the stream captures.
    let code = unsafe { device.driver.cuMemsetD32Async(memory, 3, 1, other) };
    device.must("cuMemsetD32Async", code)?;
    gave("cuStreamEndCapture", end(device, stream), 904)
}
