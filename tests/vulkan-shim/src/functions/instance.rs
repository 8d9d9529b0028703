//! Instances and devices: their creation with what is hidden, and their end.

use core::ffi::{CStr, c_char};
use std::sync::Mutex;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk::{self, Handle};

use super::{Answer, array, give, names, physical, pointer};
use crate::memory::MemoryView;
use crate::registry::{COMMANDS, DEVICES, INSTANCES, PHYSICALS, QUEUES};
use crate::slots;
use crate::state::{DeviceState, InstanceState, State, locked};

pub(super) fn find(name: &str) -> vk::PFN_vkVoidFunction {
    match name {
        "vkDestroyInstance" => pointer!(PFN_vkDestroyInstance, destroy_instance),
        "vkEnumeratePhysicalDevices" => pointer!(PFN_vkEnumeratePhysicalDevices, enumerate_physical_devices),
        "vkCreateDevice" => pointer!(PFN_vkCreateDevice, create_device),
        "vkDestroyDevice" => pointer!(PFN_vkDestroyDevice, destroy_device),
        "vkGetDeviceProcAddr" => pointer!(PFN_vkGetDeviceProcAddr, super::get_device_proc_addr),
        "vkCreateDebugUtilsMessengerEXT" => pointer!(PFN_vkCreateDebugUtilsMessengerEXT, create_messenger),
        "vkDestroyDebugUtilsMessengerEXT" => pointer!(PFN_vkDestroyDebugUtilsMessengerEXT, destroy_messenger),
        _ => None,
    }
}

/// `vkEnumerateInstanceVersion`.
pub(crate) unsafe fn version(state: &State, out: *mut u32) -> vk::Result {
    if let Err(code) = state.enter("vkEnumerateInstanceVersion") {
        return code;
    }
    let Ok(loader) = slots::loader() else { return vk::Result::ERROR_OUT_OF_HOST_MEMORY };
    // SAFETY: the loader's own function; `out` is the caller's.
    unsafe {
        *out = match loader.try_enumerate_instance_version() {
            Ok(version) => state.plan.instance_version.or(version).unwrap_or(vk::API_VERSION_1_0),
            Err(code) => return code,
        };
    }
    vk::Result::SUCCESS
}

/// `vkEnumerateInstanceExtensionProperties`.
pub(crate) unsafe fn extensions(
    state: &State,
    layer: *const c_char,
    count: *mut u32,
    out: *mut vk::ExtensionProperties,
) -> vk::Result {
    if let Err(code) = state.enter("vkEnumerateInstanceExtensionProperties") {
        return code;
    }
    let Ok(loader) = slots::loader() else { return vk::Result::ERROR_OUT_OF_HOST_MEMORY };
    // SAFETY: the caller's arguments are those of the function.
    unsafe {
        let layer = (!layer.is_null()).then(|| CStr::from_ptr(layer));
        match loader.enumerate_instance_extension_properties(layer) {
            Ok(all) => give(&physical::offered(state, all), count, out),
            Err(code) => code,
        }
    }
}

/// `vkEnumerateInstanceLayerProperties`.
pub(crate) unsafe fn layers(state: &State, count: *mut u32, out: *mut vk::LayerProperties) -> vk::Result {
    if let Err(code) = state.enter("vkEnumerateInstanceLayerProperties") {
        return code;
    }
    let Ok(loader) = slots::loader() else { return vk::Result::ERROR_OUT_OF_HOST_MEMORY };
    // SAFETY: the caller's arguments are those of the function.
    unsafe {
        match loader.enumerate_instance_layer_properties() {
            Ok(mut all) => {
                all.retain(|layer| {
                    !layer.layer_name_as_c_str().is_ok_and(|n| state.plan.hides_layer(&n.to_string_lossy()))
                });
                give(&all, count, out)
            }
            Err(code) => code,
        }
    }
}

/// `vkCreateInstance`.
pub(crate) unsafe fn create(
    state: &Arc<State>,
    info: *const vk::InstanceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Instance,
) -> vk::Result {
    if let Err(code) = state.enter("vkCreateInstance") {
        return code;
    }
    let Ok(loader) = slots::loader() else { return vk::Result::ERROR_INITIALIZATION_FAILED };
    // SAFETY: the caller's arguments are those of the function; the instance is new.
    unsafe {
        let layers = names((*info).pp_enabled_layer_names, (*info).enabled_layer_count);
        if layers.iter().any(|name| state.plan.hides_layer(name)) {
            return vk::Result::ERROR_LAYER_NOT_PRESENT;
        }
        let extensions = names((*info).pp_enabled_extension_names, (*info).enabled_extension_count);
        if extensions.iter().any(|name| state.plan.hides(name)) {
            return vk::Result::ERROR_EXTENSION_NOT_PRESENT;
        }
        let code = (loader.fp_v1_0().create_instance)(info, allocator, out);
        if code == vk::Result::SUCCESS {
            let raw = ash::Instance::load(loader.static_fn(), *out);
            let debug_utils = ash::ext::debug_utils::Instance::new(loader, &raw);
            let state = Arc::clone(state);
            locked(&state.objects).create(0, *out, 0, "vkCreateInstance");
            INSTANCES.put(*out, Arc::new(InstanceState { state, raw, debug_utils, physicals: Mutex::default() }));
        }
        code
    }
}

unsafe extern "system" fn destroy_instance(instance: vk::Instance, allocator: *const vk::AllocationCallbacks<'_>) {
    if instance.is_null() {
        return;
    }
    let Some(of) = INSTANCES.find(instance, "vkDestroyInstance") else { return };
    if of.state.enter("vkDestroyInstance").is_err() {
        return;
    }
    let left = {
        let mut objects = locked(&of.state.objects);
        let devices = objects.children(0, vk::ObjectType::DEVICE, instance.as_raw()).len();
        let messengers = objects.children(0, vk::ObjectType::DEBUG_UTILS_MESSENGER_EXT, instance.as_raw()).len();
        if devices == 0 {
            objects.destroy(0, instance);
        }
        (devices, messengers)
    };
    if left != (0, 0) {
        of.state.complain(format!("vkDestroyInstance with {} devices and {} messengers alive", left.0, left.1));
    }
    if left.0 > 0 {
        // The loader would not survive it.
        return;
    }
    for &physical in locked(&of.physicals).iter() {
        PHYSICALS.end(vk::PhysicalDevice::from_raw(physical));
    }
    INSTANCES.end(instance);
    // SAFETY: an instance that lives and has no devices.
    unsafe { (of.raw.fp_v1_0().destroy_instance)(instance, allocator) };
}

unsafe extern "system" fn enumerate_physical_devices(
    instance: vk::Instance,
    count: *mut u32,
    out: *mut vk::PhysicalDevice,
) -> vk::Result {
    let Some(of) = INSTANCES.find(instance, "vkEnumeratePhysicalDevices") else { return vk::Result::ERROR_UNKNOWN };
    if let Err(code) = of.state.enter("vkEnumeratePhysicalDevices") {
        return code;
    }
    // SAFETY: an instance that lives, and its physical devices; the caller's arguments are those of the function.
    unsafe {
        let mut all = match of.raw.enumerate_physical_devices() {
            Ok(all) => all,
            Err(code) => return code,
        };
        if let Some(admit) = &of.state.plan.admit {
            all.retain(|&device| admit(&of.raw.get_physical_device_properties(device)));
        }
        for &device in &all {
            if locked(&of.physicals).insert(device.as_raw()) {
                PHYSICALS.put(device, Arc::clone(&of));
            }
        }
        give(&all, count, out)
    }
}

unsafe extern "system" fn create_device(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Device,
) -> vk::Result {
    let Some(of) = PHYSICALS.find(physical, "vkCreateDevice") else { return vk::Result::ERROR_UNKNOWN };
    let state = &of.state;
    if let Err(code) = state.enter("vkCreateDevice") {
        return code;
    }
    // SAFETY: the caller's arguments are those of the function; the device and its queues are new.
    unsafe {
        let extensions = names((*info).pp_enabled_extension_names, (*info).enabled_extension_count);
        if extensions.iter().any(|name| state.plan.hides(name)) {
            return vk::Result::ERROR_EXTENSION_NOT_PRESENT;
        }
        if physical::asks_for_hidden_features(&state.plan, &*info) {
            return vk::Result::ERROR_FEATURE_NOT_PRESENT;
        }
        let families = of.raw.get_physical_device_queue_family_properties(physical);
        let there = |family: u32| families.get(family as usize).map_or(0, |family| family.queue_count);
        let asked = array((*info).p_queue_create_infos, (*info).queue_create_info_count);
        let mut queues: Vec<vk::DeviceQueueCreateInfo<'_>> = asked.to_vec();
        if let Some(said) = state.plan.queues {
            for queue in &mut queues {
                if queue.queue_count > said {
                    state.complain(format!("vkCreateDevice asks for {} queues of {said}", queue.queue_count));
                }
                queue.queue_count = queue.queue_count.min(there(queue.queue_family_index));
            }
        }
        let mut changed = *info;
        changed.p_queue_create_infos = queues.as_ptr();
        let code = (of.raw.fp_v1_0().create_device)(physical, &changed, allocator, out);
        if code != vk::Result::SUCCESS {
            return code;
        }
        let raw = ash::Device::load(of.raw.fp_v1_0(), *out);
        let mut real_queues: BTreeMap<u32, Vec<Arc<Mutex<vk::Queue>>>> = BTreeMap::new();
        for queue in &queues {
            let family = queue.queue_family_index;
            let of_family =
                (0..queue.queue_count).map(|index| Arc::new(Mutex::new(raw.get_device_queue(family, index))));
            real_queues.entry(family).or_default().extend(of_family);
        }
        let memory = MemoryView::new(&state.plan, &of.raw.get_physical_device_memory_properties(physical));
        let (limits, max_allocation) = physical::said_limits(&of, physical);
        let device = DeviceState::new(Arc::clone(state), &of, raw, limits, max_allocation, memory, real_queues);
        locked(&state.objects).create(0, *out, of.raw.handle().as_raw(), "vkCreateDevice");
        DEVICES.put(*out, Arc::new(device));
        code
    }
}

unsafe extern "system" fn destroy_device(device: vk::Device, allocator: *const vk::AllocationCallbacks<'_>) {
    if device.is_null() {
        return;
    }
    let Some(of) = DEVICES.find(device, "vkDestroyDevice") else { return };
    if of.enter("vkDestroyDevice").is_err() {
        return;
    }
    let _alone = of.exclusive(device, "vkDestroyDevice");
    let unfinished = if of.is_lost() { Vec::new() } else { of.unfinished() };
    for moment in unfinished {
        of.state.complain(format!("vkDestroyDevice before {moment} is reached"));
    }
    let at_rest = of.settle().is_ok();
    let left = {
        let mut objects = locked(&of.state.objects);
        objects.destroy(0, device);
        for commands in objects.all_of(device.as_raw(), vk::ObjectType::COMMAND_BUFFER) {
            COMMANDS.end(vk::CommandBuffer::from_raw(commands));
        }
        objects.abandon(device.as_raw())
    };
    if !left.is_empty() {
        let left: Vec<_> = left.iter().map(ToString::to_string).collect();
        of.state.complain(format!("vkDestroyDevice with {} objects alive: {}", left.len(), left.join(", ")));
    }
    for (_, (handle, _)) in core::mem::take(&mut *locked(&of.queues)) {
        QUEUES.end(handle);
    }
    DEVICES.end(device);
    if at_rest {
        // SAFETY: a device that lives, at rest.
        unsafe { (of.raw.fp_v1_0().destroy_device)(device, allocator) };
    }
}

unsafe extern "system" fn create_messenger(
    instance: vk::Instance,
    info: *const vk::DebugUtilsMessengerCreateInfoEXT<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::DebugUtilsMessengerEXT,
) -> vk::Result {
    const CALL: &str = "vkCreateDebugUtilsMessengerEXT";
    let Some(of) = INSTANCES.find(instance, CALL) else { return vk::Result::ERROR_UNKNOWN };
    if let Err(code) = of.state.enter(CALL) {
        return Answer::refused(code);
    }
    // SAFETY: the caller's arguments are those of the function.
    unsafe {
        let code = (of.debug_utils.fp().create_debug_utils_messenger_ext)(instance, info, allocator, out);
        if code == vk::Result::SUCCESS {
            locked(&of.state.objects).create(0, *out, instance.as_raw(), CALL);
        }
        code
    }
}

unsafe extern "system" fn destroy_messenger(
    instance: vk::Instance,
    messenger: vk::DebugUtilsMessengerEXT,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    const CALL: &str = "vkDestroyDebugUtilsMessengerEXT";
    let Some(of) = INSTANCES.find(instance, CALL) else { return };
    if of.state.enter(CALL).is_err() || messenger.is_null() {
        return;
    }
    if locked(&of.state.objects).destroy(0, messenger).is_none() {
        return of.state.complain(format!("{CALL} of a messenger that there is not"));
    }
    // SAFETY: a messenger of this instance that lives.
    unsafe { (of.debug_utils.fp().destroy_debug_utils_messenger_ext)(instance, messenger, allocator) };
}
