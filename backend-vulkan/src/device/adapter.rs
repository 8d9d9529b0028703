//! Physical devices: everything one says about itself, asked once, and the reasons for which it cannot be used.

use super::features::Enabled;
use crate::instance::{Instance, NEEDED, unavailable, version};
use alloc::borrow::ToOwned;
use alloc::ffi::CString;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::{amd, arm, ext, khr, nv, vk};
use core::ffi::{CStr, FromBytesUntilNulError};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::properties::DeviceKind;

/// A physical device that can be used.
#[derive(Clone)]
pub(crate) struct Adapter {
    pub(crate) physical: vk::PhysicalDevice,
    /// The version of the API that device, loader and this crate have in common.
    pub(crate) api: u32,
    pub(crate) kind: DeviceKind,
    pub(crate) name: String,
    pub(crate) driver: String,
    pub(crate) core: vk::PhysicalDeviceProperties,
    pub(crate) uuid: [u8; vk::UUID_SIZE],
    pub(crate) max_allocation: u64,
    pub(crate) max_buffer: u64,
    pub(crate) max_push_descriptors: u32,
    pub(crate) host_pointer_alignment: u64,
    pub(crate) subgroup: (u32, u32),
    /// What subgroups of kernels can do together.
    pub(crate) subgroup_operations: vk::SubgroupFeatureFlags,
    /// Units that run workgroups at the same time, where an extension of the vendor says.
    pub(crate) units: Option<u32>,
    pub(crate) memory: vk::PhysicalDeviceMemoryProperties,
    pub(crate) features: Enabled,
    pub(crate) family: Family,
    extensions: Vec<CString>,
}

/// The queues that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) index: u32,
    pub(crate) queues: u32,
}

/// The usable devices of an instance, best first: discrete, integrated, virtual, other, processor; within a kind in the loader's order,
/// which is the user's to change. The order stays the same as long as the instance does.
///
/// # Errors
/// [`Error::BackendUnavailable`](trunnion_runtime_core::error::Error::BackendUnavailable) where there is none, with the reason of each.
pub(crate) fn adapters(instance: &Arc<Instance>) -> Result<Vec<Adapter>> {
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for physical in instance.physical_devices()? {
        match Adapter::survey(instance, physical) {
            Ok(adapter) => found.push(adapter),
            Err(why) => {
                log::info!("vulkan: {why}");
                refused.push(why);
            }
        }
    }
    found.sort_by_key(|adapter| rank(adapter.kind));
    if found.is_empty() {
        return Err(unavailable(match refused.is_empty() {
            true => "no driver has a device (Debian: mesa-vulkan-drivers)".to_string(),
            false => format!("no device can be used: {}", refused.join("; ")),
        }));
    }
    Ok(found)
}

fn rank(kind: DeviceKind) -> u8 {
    match kind {
        DeviceKind::DiscreteGpu => 0,
        DeviceKind::IntegratedGpu => 1,
        DeviceKind::VirtualGpu => 2,
        DeviceKind::Cpu => 4,
        _ => 3,
    }
}

impl Adapter {
    /// Asks a device for everything.
    ///
    /// # Errors
    /// Why it cannot be used, with its name.
    fn survey(instance: &Instance, physical: vk::PhysicalDevice) -> Result<Self, String> {
        // SAFETY: the device is of this instance. So for the calls below.
        let core = unsafe { instance.raw.get_physical_device_properties(physical) };
        let name = text(core.device_name_as_c_str());
        let refuse = |why: String| format!("{name}: {why}");
        if core.api_version < NEEDED {
            let (has, needed) = (version(core.api_version), version(NEEDED));
            return Err(refuse(format!("has Vulkan {has}, {needed} is needed")));
        }
        let api = core.api_version.min(instance.api);
        // SAFETY: as above.
        let extensions = unsafe { instance.raw.enumerate_device_extension_properties(physical) }
            .map_err(|result| refuse(format!("vkEnumerateDeviceExtensionProperties: {result}")))?;
        let extensions: Vec<CString> =
            extensions.iter().filter_map(|known| Some(known.extension_name_as_c_str().ok()?.to_owned())).collect();
        // SAFETY: as above.
        let families = unsafe { instance.raw.get_physical_device_queue_family_properties(physical) };
        let family = Family::choose(&families).ok_or_else(|| refuse("has no queue that computes".to_string()))?;
        let atomic_float = extensions.iter().any(|known| known.as_c_str() == ext::shader_atomic_float::NAME);
        let features = Enabled::ask(instance, physical, api, atomic_float);
        if features.of_1_2.timeline_semaphore == vk::FALSE {
            return Err(refuse("has no timeline semaphores".to_string()));
        }
        // SAFETY: as above.
        let memory = unsafe { instance.raw.get_physical_device_memory_properties(physical) };
        let kind = match core.device_type {
            vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::DiscreteGpu,
            vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::IntegratedGpu,
            vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::VirtualGpu,
            vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
            _ => DeviceKind::Other,
        };
        let mut adapter = Self {
            physical,
            api,
            kind,
            name,
            driver: String::new(),
            core,
            uuid: [0; vk::UUID_SIZE],
            max_allocation: 0,
            max_buffer: u64::MAX,
            max_push_descriptors: 0,
            host_pointer_alignment: 0,
            subgroup: (1, 1),
            subgroup_operations: vk::SubgroupFeatureFlags::empty(),
            units: None,
            memory,
            features,
            family,
            extensions,
        };
        adapter.ask_properties(instance);
        Ok(adapter)
    }

    /// Whether the device has an extension.
    pub(crate) fn has(&self, extension: &CStr) -> bool {
        self.extensions.iter().any(|known| known.as_c_str() == extension)
    }

    /// Fills in what the properties beyond version 1.0 say. A structure is only chained where the device knows it.
    fn ask_properties(&mut self, instance: &Instance) {
        let newer = self.api >= vk::API_VERSION_1_3;
        let (has_size_control, has_buffer_size) =
            (newer || self.has(ext::subgroup_size_control::NAME), newer || self.has(khr::maintenance4::NAME));
        let (has_push, has_host) = (self.has(khr::push_descriptor::NAME), self.has(ext::external_memory_host::NAME));
        let (has_sm, has_amd, has_arm) = (
            self.has(nv::shader_sm_builtins::NAME),
            self.has(amd::shader_core_properties::NAME),
            self.has(arm::shader_core_builtins::NAME),
        );
        let mut of_1_1 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut of_1_2 = vk::PhysicalDeviceVulkan12Properties::default();
        let mut sizes = vk::PhysicalDeviceSubgroupSizeControlProperties::default();
        let mut buffers = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut push = vk::PhysicalDevicePushDescriptorPropertiesKHR::default();
        let mut host = vk::PhysicalDeviceExternalMemoryHostPropertiesEXT::default();
        let mut sm = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
        let mut amd = vk::PhysicalDeviceShaderCorePropertiesAMD::default();
        let mut arm = vk::PhysicalDeviceShaderCoreBuiltinsPropertiesARM::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut of_1_1).push_next(&mut of_1_2);
        if has_size_control {
            all = all.push_next(&mut sizes);
        }
        if has_buffer_size {
            all = all.push_next(&mut buffers);
        }
        if has_push {
            all = all.push_next(&mut push);
        }
        if has_host {
            all = all.push_next(&mut host);
        }
        if has_sm {
            all = all.push_next(&mut sm);
        }
        if has_amd {
            all = all.push_next(&mut amd);
        }
        if has_arm {
            all = all.push_next(&mut arm);
        }
        // SAFETY: the device is of this instance, and the chain holds structures it knows, each once.
        unsafe { instance.raw.get_physical_device_properties2(self.physical, &mut all) };

        let (driver, info) = (text(of_1_2.driver_name_as_c_str()), text(of_1_2.driver_info_as_c_str()));
        let separator = if info.is_empty() { "" } else { " " };
        self.driver = format!("{driver}{separator}{info}");
        self.uuid = of_1_1.device_uuid;
        self.max_allocation = of_1_1.max_memory_allocation_size;
        self.subgroup = (of_1_1.subgroup_size, of_1_1.subgroup_size);
        if of_1_1.subgroup_supported_stages.contains(vk::ShaderStageFlags::COMPUTE) {
            self.subgroup_operations = of_1_1.subgroup_supported_operations;
        }
        if has_size_control {
            self.subgroup = (sizes.min_subgroup_size, sizes.max_subgroup_size);
        }
        if has_buffer_size {
            self.max_buffer = buffers.max_buffer_size;
        }
        self.max_push_descriptors = push.max_push_descriptors;
        self.host_pointer_alignment = host.min_imported_host_pointer_alignment;
        let amd = amd
            .shader_engine_count
            .saturating_mul(amd.shader_arrays_per_engine_count)
            .saturating_mul(amd.compute_units_per_shader_array);
        self.units = [sm.shader_sm_count, amd, arm.shader_core_count].into_iter().find(|units| *units > 0);
    }
}

impl Family {
    /// The family whose queues are used: one that computes without drawing before one that does both, so that kernels are not queued
    /// behind what a desktop draws, and the work of streams runs side by side where the hardware has engines for that; of those the one
    /// with most queues. All queues are of one family: bytes then pass between streams without a transfer of ownership.
    fn choose(families: &[vk::QueueFamilyProperties]) -> Option<Self> {
        let computing = families
            .iter()
            .zip(0..)
            .filter(|(family, _)| family.queue_flags.contains(vk::QueueFlags::COMPUTE) && family.queue_count > 0);
        let best = computing.min_by_key(|(family, _)| {
            (family.queue_flags.contains(vk::QueueFlags::GRAPHICS), core::cmp::Reverse(family.queue_count))
        });
        best.map(|(family, index)| Self { index, queues: family.queue_count })
    }
}

impl core::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Adapter").field("name", &self.name).field("driver", &self.driver).finish_non_exhaustive()
    }
}

fn text(name: Result<&CStr, FromBytesUntilNulError>) -> String {
    name.map_or_else(|_| String::new(), |name| name.to_string_lossy().trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(flags: vk::QueueFlags, queue_count: u32) -> vk::QueueFamilyProperties {
        vk::QueueFamilyProperties { queue_flags: flags, queue_count, ..Default::default() }
    }

    fn chosen(families: &[vk::QueueFamilyProperties]) -> Option<(u32, u32)> {
        Family::choose(families).map(|family| (family.index, family.queues))
    }

    #[test]
    fn queues_that_compute_without_drawing_come_first_and_then_the_family_with_most() {
        let (all, compute) = (vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE, vk::QueueFlags::COMPUTE);
        let transfer = family(vk::QueueFlags::TRANSFER, 2);
        assert_eq!(chosen(&[family(all, 16), transfer, family(compute, 8)]), Some((2, 8)));
        assert_eq!(chosen(&[transfer, family(compute, 2), family(compute, 4)]), Some((2, 4)));
        assert_eq!(chosen(&[family(all, 1)]), Some((0, 1)));
        assert_eq!(chosen(&[family(compute, 0), transfer]), None);
        assert_eq!(chosen(&[]), None);
    }
}
