//! Descriptor sets: where they come from, and what they hold.

use core::ffi::c_void;

use alloc::vec::Vec;
use ash::vk::{self, Handle};

use super::{array, enter, hand_on, pointer};
use crate::record::Bound;
use crate::state::{DeviceState, locked};

pub(super) fn find(name: &str) -> vk::PFN_vkVoidFunction {
    match name {
        "vkAllocateDescriptorSets" => pointer!(PFN_vkAllocateDescriptorSets, allocate_descriptor_sets),
        "vkFreeDescriptorSets" => pointer!(PFN_vkFreeDescriptorSets, free_descriptor_sets),
        "vkResetDescriptorPool" => pointer!(PFN_vkResetDescriptorPool, reset_descriptor_pool),
        "vkUpdateDescriptorSets" => pointer!(PFN_vkUpdateDescriptorSets, update_descriptor_sets),
        "vkUpdateDescriptorSetWithTemplate" => {
            pointer!(PFN_vkUpdateDescriptorSetWithTemplate, update_descriptor_set_with_template)
        }
        other => handed_on(other),
    }
}

hand_on! {
    "vkGetDescriptorSetLayoutSupport" PFN_vkGetDescriptorSetLayoutSupport fp_v1_1 get_descriptor_set_layout_support(
        info: *const vk::DescriptorSetLayoutCreateInfo<'_>, out: *mut vk::DescriptorSetLayoutSupport<'_>);
}

/// The sets of a pool are gone.
pub(super) fn end_sets(device: &DeviceState, pool: u64) {
    let gone = locked(&device.state.objects).destroy_children(device.owner(), vk::ObjectType::DESCRIPTOR_SET, pool);
    let mut sets = locked(&device.sets);
    gone.iter().for_each(|set| drop(sets.remove(set)));
}

/// The buffers that writes bind.
///
/// # Safety
/// The writes are as Vulkan has them.
pub(super) unsafe fn written(
    device: &DeviceState,
    writes: &[vk::WriteDescriptorSet<'_>],
    call: &'static str,
) -> Vec<Bound> {
    let mut bound = Vec::new();
    for write in writes {
        // SAFETY: as the caller promises; a write of something else than buffers has none here.
        let infos = unsafe { array(write.p_buffer_info, write.descriptor_count) };
        for (element, info) in infos.iter().enumerate() {
            bound.extend(bind(device, write.dst_binding + element as u32, info, call));
        }
    }
    bound
}

/// The buffers that a template binds.
///
/// # Safety
/// The data is what the template was made for.
pub(super) unsafe fn templated(
    device: &DeviceState,
    template: vk::DescriptorUpdateTemplate,
    data: *const c_void,
    call: &'static str,
) -> Vec<Bound> {
    let entries = locked(&device.templates).get(&template.as_raw()).cloned().unwrap_or_default();
    let mut bound = Vec::new();
    for entry in &entries {
        for element in 0..entry.descriptor_count as usize {
            let at = entry.offset + element * entry.stride;
            // SAFETY: as the caller promises.
            let info = unsafe { data.cast::<u8>().add(at).cast::<vk::DescriptorBufferInfo>().read_unaligned() };
            bound.extend(bind(device, entry.dst_binding + element as u32, &info, call));
        }
    }
    bound
}

fn bind(device: &DeviceState, binding: u32, info: &vk::DescriptorBufferInfo, call: &'static str) -> Option<Bound> {
    if info.buffer.is_null() {
        return None;
    }
    let buffer = device.name(info.buffer, call);
    Some(Bound { binding, buffer, offset: info.offset, size: info.range })
}

unsafe extern "system" fn allocate_descriptor_sets(
    device: vk::Device,
    info: *const vk::DescriptorSetAllocateInfo<'_>,
    out: *mut vk::DescriptorSet,
) -> vk::Result {
    const CALL: &str = "vkAllocateDescriptorSets";
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        let count = (*info).descriptor_set_count;
        let device = match enter(device, CALL) {
            Ok(device) => device,
            Err(code) => {
                (0..count as usize).for_each(|index| out.add(index).write(vk::DescriptorSet::null()));
                return code;
            }
        };
        let pool = (*info).descriptor_pool;
        let _alone = device.exclusive(pool, CALL);
        let code = (device.raw.fp_v1_0().allocate_descriptor_sets)(device.handle(), info, out);
        if code == vk::Result::SUCCESS {
            for &set in array(out.cast_const(), count) {
                device.created(set, pool.as_raw(), CALL);
            }
        }
        code
    }
}

unsafe extern "system" fn free_descriptor_sets(
    device: vk::Device,
    pool: vk::DescriptorPool,
    count: u32,
    sets: *const vk::DescriptorSet,
) -> vk::Result {
    const CALL: &str = "vkFreeDescriptorSets";
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        let device = match enter(device, CALL) {
            Ok(device) => device,
            Err(code) => return code,
        };
        let _alone = device.exclusive(pool, CALL);
        for &set in array(sets, count).iter().filter(|set| !set.is_null()) {
            if !device.destroyed(set, CALL) {
                return vk::Result::SUCCESS;
            }
            locked(&device.sets).remove(&set.as_raw());
        }
        (device.raw.fp_v1_0().free_descriptor_sets)(device.handle(), pool, count, sets)
    }
}

unsafe extern "system" fn reset_descriptor_pool(
    device: vk::Device,
    pool: vk::DescriptorPool,
    flags: vk::DescriptorPoolResetFlags,
) -> vk::Result {
    const CALL: &str = "vkResetDescriptorPool";
    let device = match enter(device, CALL) {
        Ok(device) => device,
        Err(code) => return code,
    };
    let _alone = device.exclusive(pool, CALL);
    end_sets(&device, pool.as_raw());
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe { (device.raw.fp_v1_0().reset_descriptor_pool)(device.handle(), pool, flags) }
}

unsafe extern "system" fn update_descriptor_sets(
    device: vk::Device,
    write_count: u32,
    writes: *const vk::WriteDescriptorSet<'_>,
    copy_count: u32,
    copies: *const vk::CopyDescriptorSet<'_>,
) {
    const CALL: &str = "vkUpdateDescriptorSets";
    let Ok(device) = enter(device, CALL) else { return };
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        for write in array(writes, write_count) {
            let _alone = device.exclusive(write.dst_set, CALL);
            let bound = written(&device, core::slice::from_ref(write), CALL);
            let mut sets = locked(&device.sets);
            let set = sets.entry(write.dst_set.as_raw()).or_default();
            set.extend(bound.into_iter().map(|bound| (bound.binding, bound)));
        }
        for copy in array(copies, copy_count) {
            let mut sets = locked(&device.sets);
            let from = sets.get(&copy.src_set.as_raw()).cloned().unwrap_or_default();
            let to = sets.entry(copy.dst_set.as_raw()).or_default();
            for element in 0..copy.descriptor_count {
                if let Some(bound) = from.get(&(copy.src_binding + element)) {
                    let binding = copy.dst_binding + element;
                    to.insert(binding, Bound { binding, ..*bound });
                }
            }
        }
        (device.raw.fp_v1_0().update_descriptor_sets)(device.handle(), write_count, writes, copy_count, copies);
    }
}

unsafe extern "system" fn update_descriptor_set_with_template(
    device: vk::Device,
    set: vk::DescriptorSet,
    template: vk::DescriptorUpdateTemplate,
    data: *const c_void,
) {
    const CALL: &str = "vkUpdateDescriptorSetWithTemplate";
    let Ok(device) = enter(device, CALL) else { return };
    let _alone = device.exclusive(set, CALL);
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        let bound = templated(&device, template, data, CALL);
        let mut sets = locked(&device.sets);
        sets.entry(set.as_raw()).or_default().extend(bound.into_iter().map(|bound| (bound.binding, bound)));
        (device.raw.fp_v1_1().update_descriptor_set_with_template)(device.handle(), set, template, data);
    }
}
