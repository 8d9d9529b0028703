//! Queues: several where the driver has one, and what is submitted to them.

use std::time::Instant;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk::{self, Handle};

use super::{array, enter, in_chain, pointer};
use crate::record::{Moment, Submission};
use crate::registry::{COMMANDS, QUEUES};
use crate::state::{DeviceState, QueueState, locked};
use crate::timeline::Timeline;

pub(super) fn find(name: &str) -> vk::PFN_vkVoidFunction {
    match name {
        "vkGetDeviceQueue" => pointer!(PFN_vkGetDeviceQueue, get_device_queue),
        "vkGetDeviceQueue2" => pointer!(PFN_vkGetDeviceQueue2, get_device_queue2),
        "vkQueueSubmit" => pointer!(PFN_vkQueueSubmit, queue_submit),
        "vkQueueWaitIdle" => pointer!(PFN_vkQueueWaitIdle, queue_wait_idle),
        "vkDeviceWaitIdle" => pointer!(PFN_vkDeviceWaitIdle, device_wait_idle),
        "vkSetDebugUtilsObjectNameEXT" => pointer!(PFN_vkSetDebugUtilsObjectNameEXT, set_object_name),
        _ => None,
    }
}

/// The queue of a family and an index.
fn queue(device: &Arc<DeviceState>, family: u32, index: u32) -> vk::Queue {
    let mut queues = locked(&device.queues);
    if let Some((handle, _)) = queues.get(&(family, index)) {
        return *handle;
    }
    let real = device.real_queues.get(&family).and_then(|of_family| {
        let at = (index as usize).checked_rem(of_family.len())?;
        (device.state.plan.queues.is_some() || at == index as usize).then(|| Arc::clone(&of_family[at]))
    });
    let Some(real) = real else {
        device.state.complain(format!("vkGetDeviceQueue of queue {index} of family {family}, which there is not"));
        return vk::Queue::null();
    };
    let place = device.state.plan.queues.is_some().then(|| Box::new(0_u64));
    let handle = match &place {
        Some(place) => vk::Queue::from_raw((&raw const **place) as u64),
        None => *locked(&real),
    };
    let object = device.state.next_queue();
    let state = Arc::new(QueueState { device: Arc::clone(device), object, real, _place: place });
    QUEUES.put(handle, Arc::clone(&state));
    queues.insert((family, index), (handle, state));
    handle
}

unsafe extern "system" fn get_device_queue(device: vk::Device, family: u32, index: u32, out: *mut vk::Queue) {
    let Ok(device) = enter(device, "vkGetDeviceQueue") else { return };
    // SAFETY: the caller's place.
    unsafe { *out = queue(&device, family, index) };
}

unsafe extern "system" fn get_device_queue2(
    device: vk::Device,
    info: *const vk::DeviceQueueInfo2<'_>,
    out: *mut vk::Queue,
) {
    let Ok(device) = enter(device, "vkGetDeviceQueue2") else { return };
    // SAFETY: the caller's arguments are those of the function.
    unsafe { *out = queue(&device, (*info).queue_family_index, (*info).queue_index) };
}

unsafe extern "system" fn queue_submit(
    handle: vk::Queue,
    count: u32,
    infos: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    const CALL: &str = "vkQueueSubmit";
    let Some(queue) = QUEUES.find(handle, CALL) else { return vk::Result::ERROR_UNKNOWN };
    let device = &queue.device;
    let _alone = device.exclusive(handle, CALL);
    let call = device.state.next_submit();
    if let Err(code) = device.enter(CALL) {
        return code;
    }
    // SAFETY: a queue that lives, locked; the caller's arguments are those of the function.
    unsafe {
        let submissions: Vec<_> = array(infos, count).iter().map(|info| read(&queue, call, info)).collect();
        let real = locked(&queue.real);
        if device.will_be_lost() {
            // Whoever brings the device to rest may have waited for this queue, or waits for it.
            drop(real);
            let _ = device.is_lost();
            return vk::Result::ERROR_DEVICE_LOST;
        }
        // Locked until it is noted: nobody sees progress of what is not.
        let mut timelines = locked(&device.timelines);
        let code = (device.raw.fp_v1_0().queue_submit)(*real, count, infos, fence);
        if code == vk::Result::SUCCESS {
            array(infos, count).iter().for_each(|info| note(device, &mut timelines, info));
            locked(&device.state.submissions).extend(submissions);
        }
        code
    }
}

/// The semaphores of a submission that waits or signals, with their values.
unsafe fn moments(
    semaphores: *const vk::Semaphore,
    count: u32,
    values: Option<(*const u64, u32)>,
) -> Vec<(vk::Semaphore, u64)> {
    // SAFETY: as the function's caller promises.
    unsafe {
        let values = values.map_or(&[][..], |(values, count)| array(values, count));
        let value = |index: usize| values.get(index).copied().unwrap_or(0);
        array(semaphores, count).iter().enumerate().map(|(index, &semaphore)| (semaphore, value(index))).collect()
    }
}

/// What a submission waits for.
unsafe fn waits(info: &vk::SubmitInfo<'_>) -> Vec<(vk::Semaphore, u64)> {
    // SAFETY: as the function's caller promises.
    unsafe {
        let values = in_chain::<vk::TimelineSemaphoreSubmitInfo<'_>>(info.p_next);
        let values = values.map(|values| ((*values).p_wait_semaphore_values, (*values).wait_semaphore_value_count));
        moments(info.p_wait_semaphores, info.wait_semaphore_count, values)
    }
}

/// What a submission signals.
unsafe fn signals(info: &vk::SubmitInfo<'_>) -> Vec<(vk::Semaphore, u64)> {
    // SAFETY: as the function's caller promises.
    unsafe {
        let values = in_chain::<vk::TimelineSemaphoreSubmitInfo<'_>>(info.p_next);
        let values = values.map(|values| ((*values).p_signal_semaphore_values, (*values).signal_semaphore_value_count));
        moments(info.p_signal_semaphores, info.signal_semaphore_count, values)
    }
}

/// A submission, to be recorded.
unsafe fn read(queue: &QueueState, call: u32, info: &vk::SubmitInfo<'_>) -> Submission {
    const CALL: &str = "vkQueueSubmit";
    let device = &queue.device;
    let named = |(semaphore, value)| Moment { semaphore: device.name(semaphore, CALL), value };
    let mut commands = Vec::new();
    // SAFETY: as the function's caller promises.
    unsafe {
        for &buffer in array(info.p_command_buffers, info.command_buffer_count) {
            if let Some(of) = COMMANDS.find(buffer, CALL) {
                commands.extend_from_slice(&locked(&of.recording).commands);
            }
        }
        let waits = waits(info).into_iter().map(named).collect();
        let signals = signals(info).into_iter().map(named).collect();
        Submission { call, queue: queue.object, waits, commands, signals }
    }
}

/// Notes on the semaphores what was submitted, and when the host may see it.
unsafe fn note(device: &DeviceState, timelines: &mut BTreeMap<u64, Timeline>, info: &vk::SubmitInfo<'_>) {
    let now = Instant::now();
    // SAFETY: as the function's caller promises.
    let (waits, signals) = unsafe { (waits(info), signals(info)) };
    for (semaphore, value) in waits {
        if let Some(timeline) = timelines.get_mut(&semaphore.as_raw()) {
            timeline.wait(value);
        }
    }
    for (semaphore, value) in signals {
        if let Some(timeline) = timelines.get_mut(&semaphore.as_raw()) {
            let delay = device.state.plan.delay.as_ref().map(|delay| delay(timeline.object.number, value));
            timeline.signal(value, now + delay.unwrap_or_default());
        }
    }
}

unsafe extern "system" fn queue_wait_idle(handle: vk::Queue) -> vk::Result {
    const CALL: &str = "vkQueueWaitIdle";
    let Some(queue) = QUEUES.find(handle, CALL) else { return vk::Result::ERROR_UNKNOWN };
    let _alone = queue.device.exclusive(handle, CALL);
    if let Err(code) = queue.device.enter(CALL) {
        return code;
    }
    let real = locked(&queue.real);
    // SAFETY: a queue that lives, locked.
    unsafe { (queue.device.raw.fp_v1_0().queue_wait_idle)(*real) }
}

unsafe extern "system" fn device_wait_idle(device: vk::Device) -> vk::Result {
    const CALL: &str = "vkDeviceWaitIdle";
    let device = match enter(device, CALL) {
        Ok(device) => device,
        Err(code) => return code,
    };
    let handles: Vec<_> = locked(&device.queues).values().map(|(handle, _)| *handle).collect();
    let _alone: Vec<_> = handles.into_iter().map(|queue| device.exclusive(queue, CALL)).collect();
    let _real: Vec<_> = device.real_queues.values().flatten().map(|queue| locked(queue)).collect();
    // SAFETY: a device that lives, whose queues are locked.
    unsafe { (device.raw.fp_v1_0().device_wait_idle)(device.handle()) }
}

unsafe extern "system" fn set_object_name(
    device: vk::Device,
    info: *const vk::DebugUtilsObjectNameInfoEXT<'_>,
) -> vk::Result {
    let device = match enter(device, "vkSetDebugUtilsObjectNameEXT") {
        Ok(device) => device,
        Err(code) => return code,
    };
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        if device.state.plan.queues.is_some() && (*info).object_type == vk::ObjectType::QUEUE {
            // The driver does not know a queue that the plan made up.
            return vk::Result::SUCCESS;
        }
        (device.debug_utils.fp().set_debug_utils_object_name_ext)(device.handle(), info)
    }
}
