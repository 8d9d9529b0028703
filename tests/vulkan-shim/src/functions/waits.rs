//! How the host sees what the device has done: semaphores and fences, late where the plan says so.

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::thread;
use std::time::Instant;

use ash::vk::{self, Handle};

use super::{array, enter, hand_on, pointer};
use crate::state::{DeviceState, locked};

/// How long a wait stays with the driver before it looks whether the device was lost meanwhile.
const SLICE: Duration = Duration::from_millis(5);

/// How often a wait looks whether progress that is shown late is due.
const STEP: Duration = Duration::from_micros(100);

pub(super) fn find(name: &str) -> vk::PFN_vkVoidFunction {
    match name {
        "vkGetSemaphoreCounterValue" | "vkGetSemaphoreCounterValueKHR" => {
            pointer!(PFN_vkGetSemaphoreCounterValue, get_semaphore_counter_value)
        }
        "vkWaitSemaphores" | "vkWaitSemaphoresKHR" => pointer!(PFN_vkWaitSemaphores, wait_semaphores),
        "vkSignalSemaphore" | "vkSignalSemaphoreKHR" => pointer!(PFN_vkSignalSemaphore, signal_semaphore),
        "vkWaitForFences" => pointer!(PFN_vkWaitForFences, wait_for_fences),
        other => handed_on(other),
    }
}

hand_on! {
    "vkResetFences" PFN_vkResetFences fp_v1_0 reset_fences(count: u32, fences: *const vk::Fence) -> vk::Result;
    "vkGetFenceStatus" PFN_vkGetFenceStatus fp_v1_0 get_fence_status(fence: vk::Fence) -> vk::Result;
}

/// The value of a semaphore, as the host is shown it.
unsafe fn shown(device: &DeviceState, semaphore: vk::Semaphore) -> Result<u64, vk::Result> {
    // SAFETY: as the function's caller promises.
    let real = unsafe { device.raw.get_semaphore_counter_value(semaphore) }?;
    let mut timelines = locked(&device.timelines);
    let Some(timeline) = timelines.get_mut(&semaphore.as_raw()) else { return Ok(real) };
    if device.state.held.load(Ordering::Acquire) {
        return Ok(timeline.last_shown());
    }
    Ok(timeline.shown(real, Instant::now()))
}

unsafe extern "system" fn get_semaphore_counter_value(
    device: vk::Device,
    semaphore: vk::Semaphore,
    out: *mut u64,
) -> vk::Result {
    const CALL: &str = "vkGetSemaphoreCounterValue";
    let device = match enter(device, CALL) {
        Ok(device) => device,
        Err(code) => return code,
    };
    if device.name(semaphore, CALL).number == 0 {
        return vk::Result::ERROR_UNKNOWN;
    }
    // SAFETY: a device and a semaphore that live, and the caller's place.
    unsafe {
        match shown(&device, semaphore) {
            Ok(value) => {
                *out = value;
                vk::Result::SUCCESS
            }
            Err(code) => code,
        }
    }
}

/// Waits by `attempt`, which waits as long as it is told; a device that is lost meanwhile ends it.
fn wait(device: &DeviceState, timeout: u64, mut attempt: impl FnMut(Duration) -> vk::Result) -> vk::Result {
    let begun = Instant::now();
    let timeout = Duration::from_nanos(timeout);
    loop {
        if device.is_lost() {
            return vk::Result::ERROR_DEVICE_LOST;
        }
        let left = timeout.saturating_sub(begun.elapsed());
        let answer = attempt(left.min(SLICE));
        if answer != vk::Result::TIMEOUT || left.is_zero() {
            return answer;
        }
    }
}

unsafe extern "system" fn wait_semaphores(
    device: vk::Device,
    info: *const vk::SemaphoreWaitInfo<'_>,
    timeout: u64,
) -> vk::Result {
    const CALL: &str = "vkWaitSemaphores";
    let device = match enter(device, CALL) {
        Ok(device) => device,
        Err(code) => return code,
    };
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        let semaphores = array((*info).p_semaphores, (*info).semaphore_count);
        let values = array((*info).p_values, (*info).semaphore_count);
        if semaphores.iter().any(|semaphore| device.name(*semaphore, CALL).number == 0) {
            return vk::Result::ERROR_UNKNOWN;
        }
        let any = (*info).flags.contains(vk::SemaphoreWaitFlags::ANY);
        let wait_semaphores = device.raw.fp_v1_2().wait_semaphores;
        wait(&device, timeout, |time| {
            // What is not late is waited for by the driver itself.
            if !device.state.is_late() {
                let code = wait_semaphores(device.handle(), info, time.as_nanos() as u64);
                if code != vk::Result::SUCCESS {
                    return code;
                }
            }
            let mut reached = 0;
            for (&semaphore, &value) in semaphores.iter().zip(values) {
                match shown(&device, semaphore) {
                    Ok(now) => reached += usize::from(now >= value),
                    Err(code) => return code,
                }
            }
            if reached == semaphores.len() || any && reached > 0 {
                return vk::Result::SUCCESS;
            }
            thread::sleep(time.min(STEP));
            vk::Result::TIMEOUT
        })
    }
}

unsafe extern "system" fn signal_semaphore(device: vk::Device, info: *const vk::SemaphoreSignalInfo<'_>) -> vk::Result {
    const CALL: &str = "vkSignalSemaphore";
    let device = match enter(device, CALL) {
        Ok(device) => device,
        Err(code) => return code,
    };
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        if let Some(timeline) = locked(&device.timelines).get_mut(&(*info).semaphore.as_raw()) {
            timeline.signal((*info).value, Instant::now());
        }
        (device.raw.fp_v1_2().signal_semaphore)(device.handle(), info)
    }
}

unsafe extern "system" fn wait_for_fences(
    device: vk::Device,
    count: u32,
    fences: *const vk::Fence,
    all: vk::Bool32,
    timeout: u64,
) -> vk::Result {
    let device = match enter(device, "vkWaitForFences") {
        Ok(device) => device,
        Err(code) => return code,
    };
    let wait_for_fences = device.raw.fp_v1_0().wait_for_fences;
    wait(&device, timeout, |time| {
        // SAFETY: a device that lives; the caller's arguments are those of the function.
        unsafe { wait_for_fences(device.handle(), count, fences, all, time.as_nanos() as u64) }
    })
}
