//! What is refused, and with which code.

use crate::assumption::{Answer, assumptions, gave};
use crate::device::{Device, LEGACY};

assumptions! {
    no_bytes_are_1,
    more_memory_than_there_is_is_2,
    text_that_is_no_ptx_is_218,
    ptx_of_a_later_version_is_222,
    ptx_for_later_hardware_is_218_or_209,
    a_kernel_that_is_not_in_a_module_is_500,
    a_block_of_too_many_threads_is_1,
    a_block_of_no_threads_is_1,
    shared_memory_that_was_not_asked_for_is_1,
    work_goes_on_after_what_was_refused,
}

fn allocation(device: &Device, bytes: usize) -> u32 {
    let mut address = 0;
    // SAFETY: the place is for an address.
    unsafe { device.driver.cuMemAlloc_v2(&raw mut address, bytes) }
}

fn no_bytes_are_1(device: &Device) -> Answer {
    gave("cuMemAlloc", allocation(device, 0), 1)
}

fn more_memory_than_there_is_is_2(device: &Device) -> Answer {
    gave("cuMemAlloc", allocation(device, 1 << 50), 2)
}

fn text_that_is_no_ptx_is_218(device: &Device) -> Answer {
    let text = c".version 7.0\n.target sm_75\n.address_size 64\nnothing of the kind\n";
    gave("cuModuleLoadData", device.try_load(text).err().unwrap_or(0), 218)
}

fn ptx_of_a_later_version_is_222(device: &Device) -> Answer {
    let text = c".version 99.0\n.target sm_75\n.address_size 64\n.visible .entry f() { ret; }\n";
    gave("cuModuleLoadData", device.try_load(text).err().unwrap_or(0), 222)
}

fn ptx_for_later_hardware_is_218_or_209(device: &Device) -> Answer {
    let text = c".version 7.0\n.target sm_999\n.address_size 64\n.visible .entry f() { ret; }\n";
    match device.try_load(text) {
        Err(218 | 209) => Ok(()),
        Err(code) => Err(format!("cuModuleLoadData gave {code}")),
        Ok(_) => Err("cuModuleLoadData took it".to_string()),
    }
}

fn a_kernel_that_is_not_in_a_module_is_500(device: &Device) -> Answer {
    gave("cuModuleGetFunction", device.find(c"nobody").err().unwrap_or(0), 500)
}

fn a_block_of_too_many_threads_is_1(device: &Device) -> Answer {
    let memory = device.memory(1)?;
    gave("cuLaunchKernel", device.launch(c"store", 1025, 0, LEGACY, memory), 1)
}

fn a_block_of_no_threads_is_1(device: &Device) -> Answer {
    let memory = device.memory(1)?;
    gave("cuLaunchKernel", device.launch(c"store", 0, 0, LEGACY, memory), 1)
}

fn shared_memory_that_was_not_asked_for_is_1(device: &Device) -> Answer {
    let memory = device.memory(1)?;
    gave("cuLaunchKernel", device.launch(c"store", 1, 64 << 10, LEGACY, memory), 1)
}

fn work_goes_on_after_what_was_refused(device: &Device) -> Answer {
    let memory = device.memory(1)?;
    gave("cuMemAlloc", allocation(device, 0), 1)?;
    gave("cuLaunchKernel", device.launch(c"store", 1025, 0, LEGACY, memory), 1)?;
    device.must("cuLaunchKernel", device.launch(c"store", 1, 0, LEGACY, memory))?;
    gave("the stream", device.end_of(LEGACY), 0)?;
    gave("the word", device.word(memory)?, 7)
}
