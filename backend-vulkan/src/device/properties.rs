//! What an adapter is to the runtime: its description, features and limits, lowered by the options.

use super::adapter::Adapter;
use crate::NAME;
use crate::instance::version;
use crate::memory::MemoryTypes;
use crate::options::VulkanOptions;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use ash::{ext, khr, vk};
use core::fmt::Write;
use trunnion_kernel_wgsl::Capabilities;
use trunnion_runtime_core::elem::ElemType;
use trunnion_runtime_core::error::SourceForm;
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::properties::{
    BoundsAbility, DeviceInfo, DeviceKind, DeviceProperties, Features, Limits, TargetProperties, TimingMethod,
};
use trunnion_runtime_core::report::Size;

/// The most buffers of a kernel, whatever a device allows.
const MAX_BUFFERS: u32 = 64;

/// The most bytes of parameters of a kernel. Every device has a uniform buffer for so many.
const MAX_PARAMETERS: u32 = 256;

/// What rows are padded to, in bytes: a line of most caches.
const ROW_PITCH: u64 = 64;

/// The extensions that are enabled where a device has them.
const EXTENSIONS: [&core::ffi::CStr; 6] = [
    khr::push_descriptor::NAME,
    khr::external_memory_fd::NAME,
    ext::external_memory_host::NAME,
    ext::memory_budget::NAME,
    ext::shader_atomic_float::NAME,
    // A device that has it demands that it is enabled.
    khr::portability_subset::NAME,
];

impl Adapter {
    /// The extensions a logical device is made with.
    pub(crate) fn enabled_extensions(&self) -> Vec<&'static core::ffi::CStr> {
        EXTENSIONS.into_iter().filter(|name| self.has(name)).collect()
    }

    /// Whether the device computes in the host's memory.
    pub(crate) fn unified(&self) -> bool {
        matches!(self.kind, DeviceKind::IntegratedGpu | DeviceKind::Cpu)
    }

    /// The description of the device `index`.
    ///
    /// Adapter, driver and API make the identity under which compiled kernels are kept. So the driver's text has its build, as far as
    /// the driver tells builds apart: the identifier of its pipeline caches, which two equal devices share.
    pub(crate) fn info(&self, index: u32, options: &VulkanOptions) -> DeviceInfo {
        let device = DeviceId { backend: NAME, index };
        let driver = format!(
            "{} ({:#x}, pipelines {})",
            self.driver,
            self.core.driver_version,
            hexadecimal(&self.core.pipeline_cache_uuid)
        );
        let api = format!("Vulkan {}", version(self.core.api_version));
        let heaps: Vec<_> = self.memory.memory_heaps_as_slice().iter().map(heap).collect();
        let extensions: Vec<_> = self.enabled_extensions().iter().map(|name| name.to_string_lossy()).collect();
        let mut info = DeviceInfo::new(device, self.kind, self.name.as_str(), driver, api)
            .detail("vendor", format!("{:#06x}", self.core.vendor_id))
            .detail("model", format!("{:#06x}", self.core.device_id))
            .detail("uuid", hexadecimal(&self.uuid))
            .detail("queues", format!("{} of family {}", self.queues(options), self.family.index))
            .detail("heaps", heaps.join(", "))
            .detail("extensions", extensions.join(" "));
        if *options != VulkanOptions::default() {
            info = info.detail("options", format!("{options}"));
        }
        info
    }

    /// How many queues are used.
    pub(crate) fn queues(&self, options: &VulkanOptions) -> u32 {
        self.family.queues.min(options.queues.unwrap_or(u32::MAX)).max(1)
    }

    /// The properties of the device `index` whose memory is of these types.
    pub(crate) fn properties(&self, index: u32, memory: &MemoryTypes, options: &VulkanOptions) -> DeviceProperties {
        let page = &memory.page;
        let flags = [("mapped", memory.host_visible), ("coherent", page.coherent), ("cached", page.cached)];
        let mut kind = format!("type {} of heap {}", page.index, page.heap);
        flags.iter().filter(|(_, on)| *on).for_each(|(name, _)| {
            let _ = write!(kind, ", {name}");
        });
        let info = self.info(index, options).detail("memory", kind);

        let mut features = Features::new(self.elems(), vec![SourceForm::Wgsl, SourceForm::SpirV]);
        // Timestamps of the device's own clock are for whoever asks for times, which nobody can yet.
        features.timing = TimingMethod::Host;
        features.bounds = BoundsAbility::Contained;
        features.indirect_dispatch = true;
        features.host_visible = memory.host_visible;

        let vendor = format!("{:04x}:{:04x}", self.core.vendor_id, self.core.device_id);
        // Four elements of 32 bits are the widest load of WGSL and of SPIR-V.
        let mut target = TargetProperties::new(vendor, 16, self.units());
        (target.subgroup_min, target.subgroup_max) = self.subgroup;
        DeviceProperties::new(info, features, self.runtime_limits(memory, options), target)
    }

    fn units(&self) -> u32 {
        match (self.units, self.kind) {
            (Some(units), _) => units,
            (None, DeviceKind::Cpu) => std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
            // The API has no word for it, and no vendor's extension said.
            (None, _) => 1,
        }
    }

    /// What kernels compute with: what the device can, and the portable source can say.
    fn elems(&self) -> Vec<ElemType> {
        let (core, features) = (&self.features.core, &self.features);
        let half = features.of_1_2.shader_float16 == vk::TRUE
            && features.of_1_1.storage_buffer16_bit_access == vk::TRUE
            && features.of_1_1.uniform_and_storage_buffer16_bit_access == vk::TRUE;
        let mut elems = vec![ElemType::F32, ElemType::I32, ElemType::U32];
        if core.shader_float64 == vk::TRUE {
            elems.push(ElemType::F64);
        }
        if half {
            elems.push(ElemType::F16);
        }
        if core.shader_int64 == vk::TRUE {
            elems.extend([ElemType::I64, ElemType::U64]);
        }
        elems
    }

    /// What WGSL code may use.
    pub(crate) fn wgsl(&self) -> Capabilities {
        let elems = self.elems();
        let mut wgsl = Capabilities::default();
        wgsl.float16 = elems.contains(&ElemType::F16);
        wgsl.float64 = elems.contains(&ElemType::F64);
        wgsl.int64 = elems.contains(&ElemType::I64);
        wgsl.int64_atomics = wgsl.int64 && self.features.of_1_2.shader_buffer_int64_atomics == vk::TRUE;
        let atomic_float = &self.features.atomic_float;
        wgsl.float32_atomics = atomic_float.shader_buffer_float32_atomics == vk::TRUE
            && atomic_float.shader_buffer_float32_atomic_add == vk::TRUE;
        wgsl.subgroup_operations = self.subgroup_operations.as_raw();
        wgsl
    }

    fn runtime_limits(&self, memory: &MemoryTypes, options: &VulkanOptions) -> Limits {
        let said = &self.core.limits;
        let buffers = said
            .max_per_stage_descriptor_storage_buffers
            .min(said.max_descriptor_set_storage_buffers)
            // One place is the parameters'.
            .min(said.max_per_stage_resources.saturating_sub(1))
            .min(MAX_BUFFERS);
        let mut limits = Limits::default();
        limits.memory = memory.heap_size.min(isize::MAX as u64);
        limits.max_allocation = limits.memory.min(self.max_allocation).min(self.max_buffer);
        // A range that ends in the middle of an element would lose it.
        limits.max_binding = u64::from(said.max_storage_buffer_range) & !15;
        limits.max_buffers = buffers;
        limits.max_parameters = MAX_PARAMETERS.min(said.max_uniform_buffer_range);
        limits.max_grid = said.max_compute_work_group_count;
        limits.max_workgroup = said.max_compute_work_group_size;
        limits.max_invocations = said.max_compute_work_group_invocations;
        limits.max_shared = said.max_compute_shared_memory_size;
        limits.binding_alignment = said.min_storage_buffer_offset_alignment.max(16);
        limits.copy_alignment = 1;
        limits.row_pitch = ROW_PITCH.max(limits.binding_alignment);
        options.limits.lower(&mut limits);
        limits
    }
}

fn heap(heap: &vk::MemoryHeap) -> String {
    let device = heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
    format!("{} {}", Size(heap.size), if device { "device" } else { "host" })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig;
    use trunnion_backend_core::LimitOptions;

    #[test]
    fn options_lower_limits_and_never_raise_them() {
        let low = VulkanOptions::default().limits(LimitOptions {
            memory: Some(1 << 20),
            row_pitch: Some(512),
            max_allocation: Some(1 << 16),
            max_binding: Some(1 << 12),
            max_buffers: Some(3),
            max_parameters: Some(16),
            max_grid: Some([5, 6, 7]),
            max_workgroup: Some([8, 4, 2]),
            max_invocations: Some(16),
            max_shared: Some(1024),
            ..LimitOptions::default()
        });
        rig::each(&low, |device| {
            let limits = &device.properties.limits;
            assert_eq!((limits.memory, limits.max_allocation, limits.max_binding), (1 << 20, 1 << 16, 1 << 12));
            assert_eq!((limits.max_buffers, limits.max_parameters, limits.max_shared), (3, 16, 1024));
            assert_eq!((limits.max_grid, limits.max_workgroup), ([5, 6, 7], [8, 4, 2]));
            assert_eq!((limits.max_invocations, limits.row_pitch), (16, 512));
        });
        let most = LimitOptions { max_binding: Some(u64::MAX), max_buffers: Some(u32::MAX), ..LimitOptions::default() };
        let high = VulkanOptions::default().limits(most).queues(u32::MAX);
        let backend = crate::VulkanBackend::default();
        rig::each(&high, |device| {
            let plain = backend.device(device.properties.info.device.index, &VulkanOptions::default()).unwrap();
            assert_eq!(device.properties.limits, plain.properties.limits);
            assert_eq!(device.queues.len(), plain.queues.len());
        });
    }

    #[test]
    fn the_limits_are_those_of_the_device_and_fit_each_other() {
        rig::each(&VulkanOptions::default(), |device| {
            let (limits, said) = (&device.properties.limits, &device.limits);
            assert!(
                limits.max_binding <= limits.max_allocation && limits.max_allocation <= limits.memory,
                "{limits:?}"
            );
            assert!(limits.max_binding <= u64::from(said.max_storage_buffer_range), "{limits:?}");
            assert_eq!((limits.max_parameters, limits.copy_alignment), (256, 1));
            assert_eq!(limits.max_grid, said.max_compute_work_group_count);
            assert!(limits.binding_alignment.is_multiple_of(said.min_storage_buffer_offset_alignment));
            assert!(device.page_alignment().is_power_of_two() && limits.row_pitch.is_power_of_two());
            assert!((4..=64).contains(&limits.max_buffers), "{limits:?}");
            let target = &device.properties.target;
            assert!(target.subgroup_min >= 1 && target.subgroup_min <= target.subgroup_max, "{target:?}");
        });
    }

    #[test]
    fn a_device_says_who_it_is_and_is_the_same_every_time() {
        let backend = crate::VulkanBackend::default();
        rig::each(&VulkanOptions::default(), |device| {
            let properties = &device.properties;
            let again = backend.device(properties.info.device.index, &VulkanOptions::default()).unwrap();
            assert_eq!(again.properties.hardware_identity(), properties.hardware_identity());
            let identity = properties.hardware_identity();
            assert!(identity.contains(&hexadecimal(&device.core.pipeline_cache_uuid)), "{identity}");
            assert!(identity.contains(&properties.info.adapter) && identity.contains("Vulkan 1."), "{identity}");
            let names: Vec<_> = properties.info.details.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names[..6], ["vendor", "model", "uuid", "queues", "heaps", "extensions"]);
        });
    }
}
