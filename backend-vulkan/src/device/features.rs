//! What kernels can make use of beyond the core of the API: asked of a physical device, and enabled when a logical one is made of it.

use crate::instance::Instance;
use ash::vk;

/// The features of a device that kernels or this crate make use of: those it has, all of which are enabled.
#[derive(Clone, Copy)]
pub(crate) struct Enabled {
    pub(crate) core: vk::PhysicalDeviceFeatures,
    pub(crate) of_1_1: vk::PhysicalDeviceVulkan11Features<'static>,
    pub(crate) of_1_2: vk::PhysicalDeviceVulkan12Features<'static>,
    pub(crate) of_1_3: vk::PhysicalDeviceVulkan13Features<'static>,
    pub(crate) atomic_float: vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT<'static>,
}

impl Enabled {
    /// Asks a device of this instance, as far as `api` and, where it has that extension, `VK_EXT_shader_atomic_float` go.
    pub(crate) fn ask(instance: &Instance, physical: vk::PhysicalDevice, api: u32, has_atomic_float: bool) -> Self {
        let mut of_1_1 = vk::PhysicalDeviceVulkan11Features::default();
        let mut of_1_2 = vk::PhysicalDeviceVulkan12Features::default();
        let mut of_1_3 = vk::PhysicalDeviceVulkan13Features::default();
        let mut atomic_float = vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT::default();
        let mut all = vk::PhysicalDeviceFeatures2::default().push_next(&mut of_1_1).push_next(&mut of_1_2);
        if api >= vk::API_VERSION_1_3 {
            all = all.push_next(&mut of_1_3);
        }
        if has_atomic_float {
            all = all.push_next(&mut atomic_float);
        }
        // SAFETY: the device is of this instance, and the chain holds structures it knows, each once.
        unsafe { instance.raw.get_physical_device_features2(physical, &mut all) };
        let core = all.features;
        Self {
            core: vk::PhysicalDeviceFeatures {
                robust_buffer_access: core.robust_buffer_access,
                shader_float64: core.shader_float64,
                shader_int64: core.shader_int64,
                shader_int16: core.shader_int16,
                ..Default::default()
            },
            of_1_1: vk::PhysicalDeviceVulkan11Features {
                storage_buffer16_bit_access: of_1_1.storage_buffer16_bit_access,
                uniform_and_storage_buffer16_bit_access: of_1_1.uniform_and_storage_buffer16_bit_access,
                variable_pointers_storage_buffer: of_1_1.variable_pointers_storage_buffer,
                variable_pointers: of_1_1.variable_pointers,
                ..Default::default()
            },
            of_1_2: vk::PhysicalDeviceVulkan12Features {
                timeline_semaphore: of_1_2.timeline_semaphore,
                shader_float16: of_1_2.shader_float16,
                shader_int8: of_1_2.shader_int8,
                storage_buffer8_bit_access: of_1_2.storage_buffer8_bit_access,
                uniform_and_storage_buffer8_bit_access: of_1_2.uniform_and_storage_buffer8_bit_access,
                shader_buffer_int64_atomics: of_1_2.shader_buffer_int64_atomics,
                shader_shared_int64_atomics: of_1_2.shader_shared_int64_atomics,
                shader_subgroup_extended_types: of_1_2.shader_subgroup_extended_types,
                scalar_block_layout: of_1_2.scalar_block_layout,
                uniform_buffer_standard_layout: of_1_2.uniform_buffer_standard_layout,
                vulkan_memory_model: of_1_2.vulkan_memory_model,
                vulkan_memory_model_device_scope: of_1_2.vulkan_memory_model_device_scope,
                host_query_reset: of_1_2.host_query_reset,
                ..Default::default()
            },
            of_1_3: vk::PhysicalDeviceVulkan13Features {
                subgroup_size_control: of_1_3.subgroup_size_control,
                compute_full_subgroups: of_1_3.compute_full_subgroups,
                shader_integer_dot_product: of_1_3.shader_integer_dot_product,
                shader_zero_initialize_workgroup_memory: of_1_3.shader_zero_initialize_workgroup_memory,
                maintenance4: of_1_3.maintenance4,
                ..Default::default()
            },
            atomic_float: vk::PhysicalDeviceShaderAtomicFloatFeaturesEXT {
                shader_buffer_float32_atomics: atomic_float.shader_buffer_float32_atomics,
                shader_buffer_float32_atomic_add: atomic_float.shader_buffer_float32_atomic_add,
                shader_shared_float32_atomics: atomic_float.shader_shared_float32_atomics,
                shader_shared_float32_atomic_add: atomic_float.shader_shared_float32_atomic_add,
                ..Default::default()
            },
        }
    }
}
