//! What a physical device says of itself, changed as the plan has it.

use core::ffi::{c_char, c_void};

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use ash::vk;

use super::{each_in_chain, give, pointer};
use crate::memory::MemoryView;
use crate::plan::{Change, Plan};
use crate::registry::PHYSICALS;
use crate::state::{InstanceState, State};

pub(super) fn find(name: &str) -> vk::PFN_vkVoidFunction {
    match name {
        "vkGetPhysicalDeviceProperties" => pointer!(PFN_vkGetPhysicalDeviceProperties, properties),
        "vkGetPhysicalDeviceProperties2" | "vkGetPhysicalDeviceProperties2KHR" => {
            pointer!(PFN_vkGetPhysicalDeviceProperties2, properties2)
        }
        "vkGetPhysicalDeviceFeatures" => pointer!(PFN_vkGetPhysicalDeviceFeatures, features),
        "vkGetPhysicalDeviceFeatures2" | "vkGetPhysicalDeviceFeatures2KHR" => {
            pointer!(PFN_vkGetPhysicalDeviceFeatures2, features2)
        }
        "vkGetPhysicalDeviceMemoryProperties" => pointer!(PFN_vkGetPhysicalDeviceMemoryProperties, memory_properties),
        "vkGetPhysicalDeviceMemoryProperties2" | "vkGetPhysicalDeviceMemoryProperties2KHR" => {
            pointer!(PFN_vkGetPhysicalDeviceMemoryProperties2, memory_properties2)
        }
        "vkGetPhysicalDeviceQueueFamilyProperties" => {
            pointer!(PFN_vkGetPhysicalDeviceQueueFamilyProperties, queue_families)
        }
        "vkGetPhysicalDeviceQueueFamilyProperties2" | "vkGetPhysicalDeviceQueueFamilyProperties2KHR" => {
            pointer!(PFN_vkGetPhysicalDeviceQueueFamilyProperties2, queue_families2)
        }
        "vkEnumerateDeviceExtensionProperties" => pointer!(PFN_vkEnumerateDeviceExtensionProperties, extensions),
        _ => None,
    }
}

/// The instance of a physical device, and the call counted. `None` where the call does nothing.
fn enter(device: vk::PhysicalDevice, call: &'static str) -> Option<Arc<InstanceState>> {
    let instance = PHYSICALS.find(device, call)?;
    instance.state.enter(call).is_ok().then_some(instance)
}

fn apply<T>(changes: &[Change<T>], to: &mut T) {
    changes.iter().for_each(|change| change(to));
}

/// The extensions that are not hidden.
pub(super) fn offered(state: &State, mut all: Vec<vk::ExtensionProperties>) -> Vec<vk::ExtensionProperties> {
    all.retain(|one| !one.extension_name_as_c_str().is_ok_and(|name| state.plan.hides(&name.to_string_lossy())));
    all
}

unsafe extern "system" fn extensions(
    device: vk::PhysicalDevice,
    layer: *const c_char,
    count: *mut u32,
    out: *mut vk::ExtensionProperties,
) -> vk::Result {
    const CALL: &str = "vkEnumerateDeviceExtensionProperties";
    let Some(of) = PHYSICALS.find(device, CALL) else { return vk::Result::ERROR_UNKNOWN };
    if let Err(code) = of.state.enter(CALL) {
        return code;
    }
    // SAFETY: a physical device that lives; the caller's arguments are those of the function.
    unsafe {
        if !layer.is_null() {
            return (of.raw.fp_v1_0().enumerate_device_extension_properties)(device, layer, count, out);
        }
        match of.raw.enumerate_device_extension_properties(device) {
            Ok(all) => give(&offered(&of.state, all), count, out),
            Err(code) => code,
        }
    }
}

unsafe extern "system" fn properties(device: vk::PhysicalDevice, out: *mut vk::PhysicalDeviceProperties) {
    let Some(of) = enter(device, "vkGetPhysicalDeviceProperties") else { return };
    // SAFETY: a physical device that lives; the caller's arguments are those of the function.
    unsafe {
        (of.raw.fp_v1_0().get_physical_device_properties)(device, out);
        apply(&of.state.plan.properties, &mut *out);
    }
}

unsafe extern "system" fn properties2(device: vk::PhysicalDevice, out: *mut vk::PhysicalDeviceProperties2<'_>) {
    let Some(of) = enter(device, "vkGetPhysicalDeviceProperties2") else { return };
    let plan = &of.state.plan;
    // SAFETY: as above; each structure in the chain is what its type says.
    unsafe {
        (of.raw.fp_v1_1().get_physical_device_properties2)(device, out);
        apply(&plan.properties, &mut (*out).properties);
        if plan.properties11.is_empty() {
            return;
        }
        let said = said_properties11(&of, device);
        each_in_chain((*out).p_next, |kind, at| match kind {
            vk::StructureType::PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES => apply(&plan.properties11, &mut *at.cast()),
            vk::StructureType::PHYSICAL_DEVICE_ID_PROPERTIES => {
                let own = &mut *at.cast::<vk::PhysicalDeviceIDProperties<'_>>();
                own.device_uuid = said.device_uuid;
                own.driver_uuid = said.driver_uuid;
            }
            vk::StructureType::PHYSICAL_DEVICE_SUBGROUP_PROPERTIES => {
                let own = &mut *at.cast::<vk::PhysicalDeviceSubgroupProperties<'_>>();
                own.subgroup_size = said.subgroup_size;
                own.supported_stages = said.subgroup_supported_stages;
                own.supported_operations = said.subgroup_supported_operations;
            }
            vk::StructureType::PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES => {
                let own = &mut *at.cast::<vk::PhysicalDeviceMaintenance3Properties<'_>>();
                own.max_memory_allocation_size = said.max_memory_allocation_size;
                own.max_per_set_descriptors = said.max_per_set_descriptors;
            }
            _ => {}
        });
    }
}

/// The properties of Vulkan 1.1, as they are said.
fn said_properties11(of: &InstanceState, device: vk::PhysicalDevice) -> vk::PhysicalDeviceVulkan11Properties<'static> {
    let mut said = vk::PhysicalDeviceVulkan11Properties::default();
    let mut asked = vk::PhysicalDeviceProperties2::default().push_next(&mut said);
    // SAFETY: a physical device that lives.
    unsafe { of.raw.get_physical_device_properties2(device, &mut asked) };
    said.p_next = core::ptr::null_mut();
    apply(&of.state.plan.properties11, &mut said);
    said
}

/// The limits that are said, and the greatest allocation where the plan says one.
pub(super) fn said_limits(of: &InstanceState, device: vk::PhysicalDevice) -> (vk::PhysicalDeviceLimits, u64) {
    // SAFETY: a physical device that lives.
    let mut properties = unsafe { of.raw.get_physical_device_properties(device) };
    apply(&of.state.plan.properties, &mut properties);
    let max_allocation = if of.state.plan.properties11.is_empty() {
        u64::MAX
    } else {
        said_properties11(of, device).max_memory_allocation_size
    };
    (properties.limits, max_allocation)
}

unsafe extern "system" fn features(device: vk::PhysicalDevice, out: *mut vk::PhysicalDeviceFeatures) {
    let Some(of) = enter(device, "vkGetPhysicalDeviceFeatures") else { return };
    // SAFETY: a physical device that lives; the caller's arguments are those of the function.
    unsafe {
        (of.raw.fp_v1_0().get_physical_device_features)(device, out);
        apply(&of.state.plan.features, &mut *out);
    }
}

unsafe extern "system" fn features2(device: vk::PhysicalDevice, out: *mut vk::PhysicalDeviceFeatures2<'_>) {
    let Some(of) = enter(device, "vkGetPhysicalDeviceFeatures2") else { return };
    // SAFETY: as above; each structure in the chain is what its type says.
    unsafe {
        (of.raw.fp_v1_1().get_physical_device_features2)(device, out);
        apply(&of.state.plan.features, &mut (*out).features);
        each_in_chain((*out).p_next, |kind, at| change_features(&of.state.plan, kind, at));
    }
}

/// Changes a structure of features that stands for a part of those of a version.
macro_rules! part {
    ($plan:expr, $at:expr, $part:ident of $changes:ident $whole:ident: $($field:ident)*) => {{
        let part = &mut *$at.cast::<vk::$part<'_>>();
        let mut whole = vk::$whole { $($field: part.$field,)* ..Default::default() };
        apply(&$plan.$changes, &mut whole);
        $(part.$field = whole.$field;)*
    }};
}

/// Changes a structure of features in place.
///
/// # Safety
/// It is what its type says.
unsafe fn change_features(plan: &Plan, kind: vk::StructureType, at: *mut c_void) {
    use vk::StructureType as Kind;
    // SAFETY: as the caller promises.
    unsafe {
        match kind {
            Kind::PHYSICAL_DEVICE_FEATURES_2 => {
                apply(&plan.features, &mut (*at.cast::<vk::PhysicalDeviceFeatures2<'_>>()).features);
            }
            Kind::PHYSICAL_DEVICE_VULKAN_1_1_FEATURES => apply(&plan.features11, &mut *at.cast()),
            Kind::PHYSICAL_DEVICE_VULKAN_1_2_FEATURES => apply(&plan.features12, &mut *at.cast()),
            Kind::PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES => {
                part!(plan, at, PhysicalDevice16BitStorageFeatures of features11 PhysicalDeviceVulkan11Features:
                    storage_buffer16_bit_access uniform_and_storage_buffer16_bit_access storage_push_constant16);
            }
            Kind::PHYSICAL_DEVICE_VARIABLE_POINTERS_FEATURES => {
                part!(plan, at, PhysicalDeviceVariablePointersFeatures of features11 PhysicalDeviceVulkan11Features:
                    variable_pointers variable_pointers_storage_buffer);
            }
            Kind::PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES => {
                part!(plan, at, PhysicalDeviceTimelineSemaphoreFeatures of features12 PhysicalDeviceVulkan12Features:
                    timeline_semaphore);
            }
            Kind::PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES => {
                part!(plan, at, PhysicalDevice8BitStorageFeatures of features12 PhysicalDeviceVulkan12Features:
                    storage_buffer8_bit_access uniform_and_storage_buffer8_bit_access storage_push_constant8);
            }
            Kind::PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES => {
                part!(plan, at, PhysicalDeviceShaderFloat16Int8Features of features12 PhysicalDeviceVulkan12Features:
                    shader_float16 shader_int8);
            }
            Kind::PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES => {
                part!(plan, at, PhysicalDeviceBufferDeviceAddressFeatures of features12 PhysicalDeviceVulkan12Features:
                    buffer_device_address);
            }
            Kind::PHYSICAL_DEVICE_HOST_QUERY_RESET_FEATURES => {
                part!(plan, at, PhysicalDeviceHostQueryResetFeatures of features12 PhysicalDeviceVulkan12Features:
                    host_query_reset);
            }
            Kind::PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES => {
                part!(plan, at, PhysicalDeviceVulkanMemoryModelFeatures of features12 PhysicalDeviceVulkan12Features:
                    vulkan_memory_model vulkan_memory_model_device_scope);
            }
            _ => {}
        }
    }
}

/// How many bytes a structure has that [`change_features`] changes.
fn size_of_features(kind: vk::StructureType) -> Option<usize> {
    use vk::StructureType as Kind;
    Some(match kind {
        Kind::PHYSICAL_DEVICE_FEATURES_2 => size_of::<vk::PhysicalDeviceFeatures2<'_>>(),
        Kind::PHYSICAL_DEVICE_VULKAN_1_1_FEATURES => size_of::<vk::PhysicalDeviceVulkan11Features<'_>>(),
        Kind::PHYSICAL_DEVICE_VULKAN_1_2_FEATURES => size_of::<vk::PhysicalDeviceVulkan12Features<'_>>(),
        Kind::PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES => size_of::<vk::PhysicalDevice16BitStorageFeatures<'_>>(),
        Kind::PHYSICAL_DEVICE_VARIABLE_POINTERS_FEATURES => size_of::<vk::PhysicalDeviceVariablePointersFeatures<'_>>(),
        Kind::PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES => {
            size_of::<vk::PhysicalDeviceTimelineSemaphoreFeatures<'_>>()
        }
        Kind::PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES => size_of::<vk::PhysicalDevice8BitStorageFeatures<'_>>(),
        Kind::PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES => {
            size_of::<vk::PhysicalDeviceShaderFloat16Int8Features<'_>>()
        }
        Kind::PHYSICAL_DEVICE_BUFFER_DEVICE_ADDRESS_FEATURES => {
            size_of::<vk::PhysicalDeviceBufferDeviceAddressFeatures<'_>>()
        }
        Kind::PHYSICAL_DEVICE_HOST_QUERY_RESET_FEATURES => size_of::<vk::PhysicalDeviceHostQueryResetFeatures<'_>>(),
        Kind::PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES => {
            size_of::<vk::PhysicalDeviceVulkanMemoryModelFeatures<'_>>()
        }
        _ => return None,
    })
}

/// Whether a device is asked for with a feature that the plan hides: what the plan would change in what is asked for.
///
/// # Safety
/// The structures are as Vulkan has them.
pub(super) unsafe fn asks_for_hidden_features(plan: &Plan, info: &vk::DeviceCreateInfo<'_>) -> bool {
    let mut hidden = false;
    // SAFETY: as the caller promises; a copy has as many bytes as the structure, and is aligned for it.
    unsafe {
        if let Some(asked) = info.p_enabled_features.as_ref() {
            let asked = vk::PhysicalDeviceFeatures2::default().features(*asked);
            hidden |= would_change(plan, vk::StructureType::PHYSICAL_DEVICE_FEATURES_2, (&raw const asked).cast());
        }
        each_in_chain(info.p_next, |kind, at| hidden |= would_change(plan, kind, at));
    }
    hidden
}

/// # Safety
/// As for [`change_features`].
unsafe fn would_change(plan: &Plan, kind: vk::StructureType, at: *const c_void) -> bool {
    let Some(size) = size_of_features(kind) else { return false };
    let mut copy = vec![0_u64; size.div_ceil(size_of::<u64>())];
    // SAFETY: the copy has the bytes of the structure, and is aligned for it.
    unsafe {
        copy.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(at.cast(), size);
        change_features(plan, kind, copy.as_mut_ptr().cast());
        core::slice::from_raw_parts(copy.as_ptr().cast::<u8>(), size)
            != core::slice::from_raw_parts(at.cast::<u8>(), size)
    }
}

unsafe extern "system" fn memory_properties(device: vk::PhysicalDevice, out: *mut vk::PhysicalDeviceMemoryProperties) {
    let Some(of) = enter(device, "vkGetPhysicalDeviceMemoryProperties") else { return };
    // SAFETY: a physical device that lives; the caller's arguments are those of the function.
    unsafe {
        (of.raw.fp_v1_0().get_physical_device_memory_properties)(device, out);
        *out = MemoryView::new(&of.state.plan, &*out).said;
    }
}

unsafe extern "system" fn memory_properties2(
    device: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    let Some(of) = enter(device, "vkGetPhysicalDeviceMemoryProperties2") else { return };
    // SAFETY: a physical device that lives; the caller's arguments are those of the function.
    unsafe {
        (of.raw.fp_v1_1().get_physical_device_memory_properties2)(device, out);
        (*out).memory_properties = MemoryView::new(&of.state.plan, &(*out).memory_properties).said;
    }
}

fn change_family(plan: &Plan, family: &mut vk::QueueFamilyProperties) {
    if let Some(queues) = plan.queues {
        family.queue_count = queues;
    }
    apply(&plan.families, family);
}

unsafe extern "system" fn queue_families(
    device: vk::PhysicalDevice,
    count: *mut u32,
    out: *mut vk::QueueFamilyProperties,
) {
    let Some(of) = enter(device, "vkGetPhysicalDeviceQueueFamilyProperties") else { return };
    // SAFETY: a physical device that lives; the caller's arguments are those of the function.
    unsafe {
        (of.raw.fp_v1_0().get_physical_device_queue_family_properties)(device, count, out);
        if !out.is_null() {
            let given = core::slice::from_raw_parts_mut(out, *count as usize);
            given.iter_mut().for_each(|family| change_family(&of.state.plan, family));
        }
    }
}

unsafe extern "system" fn queue_families2(
    device: vk::PhysicalDevice,
    count: *mut u32,
    out: *mut vk::QueueFamilyProperties2<'_>,
) {
    let Some(of) = enter(device, "vkGetPhysicalDeviceQueueFamilyProperties2") else { return };
    // SAFETY: a physical device that lives; the caller's arguments are those of the function.
    unsafe {
        (of.raw.fp_v1_1().get_physical_device_queue_family_properties2)(device, count, out);
        if !out.is_null() {
            let given = core::slice::from_raw_parts_mut(out, *count as usize);
            given.iter_mut().for_each(|family| change_family(&of.state.plan, &mut family.queue_family_properties));
        }
    }
}
