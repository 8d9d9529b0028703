//! What comes after what, told and untold.

use crate::assumption::{Answer, assumptions, gave, is};
use crate::device::{Device, LEGACY};
use core::ffi::c_void;
use core::ptr;

assumptions! {
    a_stream_with_work_to_do_says_600,
    an_event_that_was_never_recorded_is_over,
    a_stream_waits_for_an_event_of_another,
    bytes_of_pageable_memory_are_taken_before_the_call_returns,
    memory_in_use_is_freed_after_its_work,
    the_stream_without_a_name_waits_for_blocking_streams_alone,
    a_stream_that_is_destroyed_does_its_work,
    page_locked_memory_has_one_address_for_host_and_device,
}

fn a_stream_with_work_to_do_says_600(device: &Device) -> Answer {
    let (memory, stream) = (device.memory(1)?, device.stream(false)?);
    device.busy(stream, memory)?;
    // SAFETY: the stream was made above.
    gave("cuStreamQuery", unsafe { device.driver.cuStreamQuery(stream) }, 600)?;
    gave("the stream", device.end_of(stream), 0)?;
    // SAFETY: as above.
    gave("cuStreamQuery", unsafe { device.driver.cuStreamQuery(stream) }, 0)
}

fn an_event_that_was_never_recorded_is_over(device: &Device) -> Answer {
    let (event, stream) = (device.event()?, device.stream(false)?);
    // SAFETY: both were made above.
    unsafe {
        gave("cuEventQuery", device.driver.cuEventQuery(event), 0)?;
        gave("cuStreamWaitEvent", device.driver.cuStreamWaitEvent(stream, event, 0), 0)?;
    }
    gave("the stream", device.end_of(stream), 0)
}

fn a_stream_waits_for_an_event_of_another(device: &Device) -> Answer {
    let memory = device.memory(1)?;
    let (first, second, event) = (device.stream(false)?, device.stream(false)?, device.event()?);
    let turns = device.busy(first, memory)?;
    // SAFETY: all were made above.
    unsafe {
        device.must("cuEventRecord", device.driver.cuEventRecord(event, first))?;
        device.must("cuStreamWaitEvent", device.driver.cuStreamWaitEvent(second, event, 0))?;
    }
    device.must("cuLaunchKernel", device.launch(c"add_one", 1, 0, second, memory))?;
    gave("the second stream", device.end_of(second), 0)?;
    gave("the word that both changed", device.word(memory)?, turns + 1)
}

fn bytes_of_pageable_memory_are_taken_before_the_call_returns(device: &Device) -> Answer {
    const WORDS: usize = 1 << 18;
    let (memory, other, stream) = (device.memory(WORDS)?, device.memory(1)?, device.stream(false)?);
    device.busy(stream, other)?;
    let mut bytes = vec![5u32; WORDS];
    let source = bytes.as_ptr().cast::<c_void>();
    // SAFETY: the memory has as many bytes, and the source is there until the stream has ended.
    let code = unsafe { device.driver.cuMemcpyHtoDAsync_v2(memory, source, WORDS * 4, stream) };
    device.must("cuMemcpyHtoDAsync", code)?;
    bytes.fill(6);
    gave("the stream", device.end_of(stream), 0)?;
    gave("the first word", device.word(memory)?, 5)?;
    gave("the last word", device.word(memory + (WORDS as u64 - 1) * 4)?, 5)?;
    is("the source was changed", bytes[0] == 6)
}

fn memory_in_use_is_freed_after_its_work(device: &Device) -> Answer {
    let (memory, stream) = (device.memory(1)?, device.stream(false)?);
    device.busy(stream, memory)?;
    // SAFETY: the memory and the stream were made above.
    unsafe {
        gave("cuMemFree", device.driver.cuMemFree_v2(memory), 0)?;
        gave("cuStreamQuery after it", device.driver.cuStreamQuery(stream), 0)
    }
}

fn the_stream_without_a_name_waits_for_blocking_streams_alone(device: &Device) -> Answer {
    let (memory, other) = (device.memory(1)?, device.memory(1)?);
    let (blocking, free) = (device.stream(true)?, device.stream(false)?);
    let turns = device.busy(blocking, memory)?;
    device.must("cuLaunchKernel", device.launch(c"add_one", 1, 0, LEGACY, memory))?;
    gave("the stream without a name", device.end_of(LEGACY), 0)?;
    gave("the word that both changed", device.word(memory)?, turns + 1)?;
    device.busy(free, other)?;
    device.must("cuLaunchKernel", device.launch(c"add_one", 1, 0, LEGACY, memory))?;
    gave("the stream without a name", device.end_of(LEGACY), 0)?;
    // SAFETY: the stream was made above.
    gave("cuStreamQuery of the other", unsafe { device.driver.cuStreamQuery(free) }, 600)?;
    gave("the other stream", device.end_of(free), 0)
}

fn a_stream_that_is_destroyed_does_its_work(device: &Device) -> Answer {
    let (memory, stream) = (device.memory(1)?, device.stream(false)?);
    let turns = device.busy(stream, memory)?;
    // SAFETY: the stream was made above, and is not used any more.
    unsafe {
        gave("cuStreamDestroy", device.driver.cuStreamDestroy_v2(stream), 0)?;
        gave("cuCtxSynchronize", device.driver.cuCtxSynchronize(), 0)?;
    }
    gave("the word", device.word(memory)?, turns)
}

fn page_locked_memory_has_one_address_for_host_and_device(device: &Device) -> Answer {
    let (mut host, mut address) = (ptr::null_mut(), 0);
    // SAFETY: the places are for pointers, and the memory is given back once.
    unsafe {
        device.must("cuMemHostAlloc", device.driver.cuMemHostAlloc(&raw mut host, 4096, 0))?;
        let code = device.driver.cuMemHostGetDevicePointer_v2(&raw mut address, host, 0);
        device.must("cuMemHostGetDevicePointer", code)?;
        is("the addresses are the same", host.expose_provenance() as u64 == address)?;
        gave("cuMemFreeHost", device.driver.cuMemFreeHost(host), 0)
    }
}
