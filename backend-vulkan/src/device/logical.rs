//! The logical device that is driven: its functions, queues and memory types, shared by everything made from it.

use super::adapter::Adapter;
use crate::allocation::PAGE_USAGE;
use crate::failure::{Refusal, failed};
use crate::instance::{Instance, unavailable};
use crate::memory::{MemoryType, MemoryTypes};
use crate::options::VulkanOptions;
use crate::staging::{PinnedRanges, STAGING_USAGE};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use ash::{ext, khr, vk};
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use trunnion_backend_core::driver::DriverMemory;
use trunnion_backend_core::exit::Inside;
use trunnion_kernel_wgsl::Capabilities;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::properties::DeviceProperties;

/// Allocations that only transfers may make.
const KEPT_FOR_TRANSFERS: u32 = 8;

/// What is called of a device. The bindings put a function that ends the process in the place of one that is missing, so the table is
/// looked through when the device is opened.
const FUNCTIONS: [&CStr; 47] = [
    c"vkDestroyDevice",
    c"vkAllocateCommandBuffers",
    c"vkAllocateDescriptorSets",
    c"vkAllocateMemory",
    c"vkBeginCommandBuffer",
    c"vkBindBufferMemory",
    c"vkCmdBindDescriptorSets",
    c"vkCmdBindPipeline",
    c"vkCmdCopyBuffer",
    c"vkCmdDispatch",
    c"vkCmdDispatchIndirect",
    c"vkCmdFillBuffer",
    c"vkCmdPipelineBarrier",
    c"vkCmdPushConstants",
    c"vkCreateBuffer",
    c"vkCreateCommandPool",
    c"vkCreateComputePipelines",
    c"vkCreateDescriptorPool",
    c"vkCreateDescriptorSetLayout",
    c"vkCreatePipelineCache",
    c"vkCreatePipelineLayout",
    c"vkCreateSemaphore",
    c"vkCreateShaderModule",
    c"vkDestroyBuffer",
    c"vkDestroyCommandPool",
    c"vkDestroyDescriptorPool",
    c"vkDestroyDescriptorSetLayout",
    c"vkDestroyPipeline",
    c"vkDestroyPipelineCache",
    c"vkDestroyPipelineLayout",
    c"vkDestroySemaphore",
    c"vkDestroyShaderModule",
    c"vkEndCommandBuffer",
    c"vkFlushMappedMemoryRanges",
    c"vkFreeCommandBuffers",
    c"vkFreeMemory",
    c"vkGetBufferMemoryRequirements2",
    c"vkGetDeviceQueue",
    c"vkGetPipelineCacheData",
    c"vkGetSemaphoreCounterValue",
    c"vkInvalidateMappedMemoryRanges",
    c"vkMapMemory",
    c"vkQueueSubmit",
    c"vkResetDescriptorPool",
    c"vkSignalSemaphore",
    c"vkUpdateDescriptorSets",
    c"vkWaitSemaphores",
];

/// A `VkDevice` and what is known of it. Whatever is made from it holds it, so that it is destroyed last: pages, code and page-locked
/// memory may outlive the driver.
pub(crate) struct Device {
    pub(crate) raw: ash::Device,
    /// Where the device pushes descriptors and option `push_descriptors` allows it.
    pub(crate) push_descriptor: Option<khr::push_descriptor::Device>,
    /// The most buffers that can be pushed.
    pub(crate) max_push_descriptors: u32,
    pub(crate) external_memory_fd: Option<khr::external_memory_fd::Device>,
    pub(crate) external_memory_host: Option<ext::external_memory_host::Device>,
    /// What addresses and sizes of imported host memory are multiples of; 0 where none can be imported.
    pub(crate) host_pointer_alignment: u64,
    /// The queues, all of one family, each with the family's index. A queue is used by one thread at a time.
    pub(crate) queues: Vec<(u32, vk::Queue)>,
    pub(crate) memory: MemoryTypes,
    /// What the device itself says, which the options don't lower.
    pub(crate) limits: vk::PhysicalDeviceLimits,
    /// What the driver's stored code is recognised by.
    pub(crate) core: vk::PhysicalDeviceProperties,
    pub(crate) properties: DeviceProperties,
    /// What WGSL code may use.
    pub(crate) wgsl: Capabilities,
    /// Whether the driver begins workgroup memory as zeros where code asks for it.
    pub(crate) zeroes_shared: bool,
    pub(crate) options: VulkanOptions,
    /// Page-locked memory by address.
    pub(crate) pinned: PinnedRanges,
    allocations: AtomicU32,
    /// Bytes of pages.
    taken: AtomicU64,
    /// Whether memory of somebody else was taken in, which the host may look at whatever pages are.
    imported: AtomicBool,
    has_budget: bool,
    pub(crate) physical: vk::PhysicalDevice,
    // After the others: it is destroyed when the device is.
    pub(crate) instance: Arc<Instance>,
}

impl Device {
    /// Makes a logical device of an adapter, which is the device `index`. Any number can be made from one adapter.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`](trunnion_runtime_core::error::Error::BackendUnavailable) for a driver that lacks what it must have; what
    /// the driver answers.
    pub(crate) fn open(
        instance: &Arc<Instance>,
        adapter: &Adapter,
        index: u32,
        options: &VulkanOptions,
    ) -> Result<Arc<Self>> {
        let raw = Raw::create(instance, adapter, options)?;
        let has = |name: &CStr| raw.function(name);
        if let Some(name) = FUNCTIONS.iter().find(|name| !has(name)) {
            let why = format!("{}: the driver has no {}", adapter.name, name.to_string_lossy());
            return Err(unavailable(why));
        }
        let bits = (raw.memory_bits(PAGE_USAGE)?, raw.memory_bits(STAGING_USAGE)?);
        let memory = MemoryTypes::choose(&adapter.memory, bits, adapter.unified(), options.staging);
        let memory = memory
            .ok_or_else(|| unavailable(format!("{}: no memory for buffers that the host reaches", adapter.name)))?;
        let queue = |queue| {
            // SAFETY: the device was made with that many queues of the family.
            (adapter.family.index, unsafe { raw.device.get_device_queue(adapter.family.index, queue) })
        };
        let queues = (0..adapter.queues(options)).map(queue).collect();

        let has_push =
            options.push_descriptors && adapter.has(khr::push_descriptor::NAME) && has(c"vkCmdPushDescriptorSetKHR");
        let has_fd = adapter.has(khr::external_memory_fd::NAME) && has(c"vkGetMemoryFdKHR");
        let has_host = adapter.has(ext::external_memory_host::NAME) && has(c"vkGetMemoryHostPointerPropertiesEXT");
        Ok(Arc::new(Self {
            push_descriptor: has_push.then(|| khr::push_descriptor::Device::new(&instance.raw, &raw.device)),
            max_push_descriptors: if has_push { adapter.max_push_descriptors } else { 0 },
            external_memory_fd: has_fd.then(|| khr::external_memory_fd::Device::new(&instance.raw, &raw.device)),
            external_memory_host: has_host.then(|| ext::external_memory_host::Device::new(&instance.raw, &raw.device)),
            host_pointer_alignment: if has_host { adapter.host_pointer_alignment } else { 0 },
            queues,
            memory,
            limits: adapter.core.limits,
            core: adapter.core,
            properties: adapter.properties(index, &memory, options),
            wgsl: adapter.wgsl(),
            zeroes_shared: adapter.features.of_1_3.shader_zero_initialize_workgroup_memory == vk::TRUE,
            options: options.clone(),
            pinned: PinnedRanges::default(),
            allocations: AtomicU32::new(0),
            taken: AtomicU64::new(0),
            imported: AtomicBool::new(false),
            has_budget: adapter.has(ext::memory_budget::NAME),
            physical: adapter.physical,
            instance: instance.clone(),
            raw: raw.keep(),
        }))
    }

    /// What page sizes, and the places inside pages, are multiples of: a power of two that suits kernels, and keeps the host's flushes of
    /// one place out of another.
    pub(crate) fn page_alignment(&self) -> u64 {
        let flushed =
            if self.memory.host_visible && !self.memory.page.coherent { self.limits.non_coherent_atom_size } else { 1 };
        self.properties.limits.binding_alignment.max(flushed)
    }

    /// Whether pages can be handed out by file descriptor.
    pub(crate) fn hands_out(&self) -> bool {
        let (handles, feature) =
            (vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD, vk::ExternalMemoryFeatureFlags::EXPORTABLE);
        self.options.export_memory && self.external_memory_fd.is_some() && self.shares(handles, feature)
    }

    /// Whether pages can be over memory of this kind.
    pub(crate) fn takes(&self, handles: vk::ExternalMemoryHandleTypeFlags) -> bool {
        self.shares(handles, vk::ExternalMemoryFeatureFlags::IMPORTABLE)
    }

    fn shares(&self, handles: vk::ExternalMemoryHandleTypeFlags, feature: vk::ExternalMemoryFeatureFlags) -> bool {
        let info = vk::PhysicalDeviceExternalBufferInfo::default().usage(PAGE_USAGE).handle_type(handles);
        let mut answer = vk::ExternalBufferProperties::default();
        // SAFETY: the adapter is of this instance, and both structures are of version 1.1.
        unsafe {
            self.instance.raw.get_physical_device_external_buffer_properties(self.physical, &info, &mut answer);
        }
        answer.external_memory_properties.external_memory_features.contains(feature)
    }

    /// Memory of somebody else is taken in.
    pub(crate) fn note_import(&self) {
        self.imported.store(true, Ordering::Relaxed);
    }

    /// Whether others may look at what the device writes, and so the host too, whatever pages are: memory was ever taken in, or can be
    /// handed out. The driver's calls are made one after the other, so that a batch which uses such memory is submitted after this is
    /// known.
    pub(crate) fn shares_memory(&self) -> bool {
        self.options.export_memory || self.imported.load(Ordering::Relaxed)
    }

    /// A memory type of the adapter's.
    pub(crate) fn memory_type(&self, index: u32) -> Option<MemoryType> {
        // SAFETY: the adapter is of this instance.
        let memory = unsafe { self.instance.raw.get_physical_device_memory_properties(self.physical) };
        MemoryType::of(&memory, index)
    }

    /// What tells this device and its driver from others: memory is handed on only between equals.
    pub(crate) fn identity(&self) -> [[u8; vk::UUID_SIZE]; 2] {
        let mut ids = vk::PhysicalDeviceIDProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut ids);
        // SAFETY: the adapter is of this instance, and the structure is of version 1.1.
        unsafe { self.instance.raw.get_physical_device_properties2(self.physical, &mut all) };
        [ids.device_uuid, ids.driver_uuid]
    }

    /// What there is of the memory that pages come from. Free is what pages may still be made of: the driver's own budget, where it says
    /// one, and the device's limit, whichever is less.
    pub(crate) fn memory_report(&self) -> DriverMemory {
        let limit = self.properties.limits.memory;
        let free = limit.saturating_sub(self.taken.load(Ordering::Relaxed));
        if !self.has_budget {
            return DriverMemory { total: Some(limit), free: Some(free), ..DriverMemory::default() };
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut all = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the device is of this instance and has the extension, which is the chain's one structure.
        unsafe { self.instance.raw.get_physical_device_memory_properties2(self.physical, &mut all) };
        let heap = self.memory.page.heap as usize;
        let of = |values: &[u64]| values.get(heap).copied().unwrap_or(0);
        let (process_limit, process_used) = (of(&budget.heap_budget), of(&budget.heap_usage));
        DriverMemory {
            total: Some(limit),
            free: Some(free.min(process_limit.saturating_sub(process_used))),
            process_limit: Some(process_limit),
            process_used: Some(process_used),
        }
    }

    /// Counts the bytes of a page that is about to be made. Some drivers give out more than their heap holds, and end the process when
    /// it is touched.
    ///
    /// # Errors
    /// [`Refusal`] when pages then had more than the device's memory.
    pub(crate) fn count_page(&self, size: u64) -> Result<(), Refusal> {
        let limit = self.properties.limits.memory;
        let counted = |taken: u64| taken.checked_add(size).filter(|taken| *taken <= limit);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted) {
            Ok(_) => Ok(()),
            Err(taken) => {
                let free = limit.saturating_sub(taken);
                Err(Refusal::Full(format!("{size} bytes requested, {free} of {limit} are free")))
            }
        }
    }

    /// Takes back what [`count_page`](Self::count_page) counted.
    pub(crate) fn uncount_page(&self, size: u64) {
        self.taken.fetch_sub(size, Ordering::Relaxed);
    }

    /// Counts an allocation that is about to be made. All but those that bytes go through on their way leave some to these: what is on
    /// the device can then be read, however many allocations it has.
    ///
    /// # Errors
    /// [`Refusal`] when the device has as many as it can.
    pub(crate) fn count_allocation(&self, size: u64, is_on_the_way: bool) -> Result<(), Refusal> {
        let all = self.limits.max_memory_allocation_count;
        let kept = if is_on_the_way { 0 } else { KEPT_FOR_TRANSFERS.min(all / 4) };
        let most = all - kept;
        let counted = |count: u32| count.checked_add(1).filter(|count| *count <= most);
        match self.allocations.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted) {
            Ok(_) => Ok(()),
            Err(count) => {
                let kept = if kept > 0 { format!(", of which {kept} are kept for transfers") } else { String::new() };
                Err(Refusal::Full(format!("{size} bytes: the device has {count} allocations of at most {all}{kept}")))
            }
        }
    }

    /// Takes back what [`count_allocation`](Self::count_allocation) counted.
    pub(crate) fn uncount_allocation(&self) {
        self.allocations.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many allocations the device has.
    pub(crate) fn allocations(&self) -> u32 {
        self.allocations.load(Ordering::Relaxed)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _inside = Inside::new();
        // SAFETY: whatever was made from the device holds it, so nothing is left of it, and whoever drove it has waited for its work.
        unsafe { self.raw.destroy_device(None) };
    }
}

impl core::fmt::Debug for Device {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Device")
            .field("adapter", &self.properties.info.adapter)
            .field("memory", &self.memory)
            .field("allocations", &self.allocations())
            .finish_non_exhaustive()
    }
}

/// A new device, destroyed if the rest of its opening fails.
struct Raw<'a> {
    device: ash::Device,
    instance: &'a Instance,
    kept: bool,
}

impl<'a> Raw<'a> {
    fn create(instance: &'a Instance, adapter: &Adapter, options: &VulkanOptions) -> Result<Self> {
        let priorities = vec![1.0; adapter.queues(options) as usize];
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(adapter.family.index)
            .queue_priorities(&priorities)];
        let extensions: Vec<_> = adapter.enabled_extensions().iter().map(|name| name.as_ptr()).collect();
        let features = &adapter.features;
        let (mut of_1_1, mut of_1_2, mut of_1_3) = (features.of_1_1, features.of_1_2, features.of_1_3);
        let mut atomic_float = features.atomic_float;
        let mut all = vk::PhysicalDeviceFeatures2::default()
            .features(features.core)
            .push_next(&mut of_1_1)
            .push_next(&mut of_1_2);
        if adapter.api >= vk::API_VERSION_1_3 {
            all = all.push_next(&mut of_1_3);
        }
        if adapter.has(ext::shader_atomic_float::NAME) {
            all = all.push_next(&mut atomic_float);
        }
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut all);
        // SAFETY: the adapter is of this instance; features, extensions and queues are among those it said it has.
        let device = unsafe { instance.raw.create_device(adapter.physical, &info, None) }
            .map_err(|result| failed("vkCreateDevice", result))?;
        Ok(Self { device, instance, kept: false })
    }

    /// Whether the driver has a function.
    fn function(&self, name: &CStr) -> bool {
        // SAFETY: the name ends in a zero, and the device is alive.
        unsafe { self.instance.raw.get_device_proc_addr(self.device.handle(), name.as_ptr()) }.is_some()
    }

    /// Which memory types a buffer for these uses can be bound to: the same for all buffers of the same uses.
    fn memory_bits(&self, usage: vk::BufferUsageFlags) -> Result<u32> {
        let info = vk::BufferCreateInfo::default().size(256).usage(usage);
        // SAFETY: a valid description; the buffer is asked about and destroyed.
        let buffer =
            unsafe { self.device.create_buffer(&info, None) }.map_err(|result| failed("vkCreateBuffer", result))?;
        let of = vk::BufferMemoryRequirementsInfo2::default().buffer(buffer);
        let mut needs = vk::MemoryRequirements2::default();
        // SAFETY: as above.
        unsafe {
            self.device.get_buffer_memory_requirements2(&of, &mut needs);
            self.device.destroy_buffer(buffer, None);
        }
        Ok(needs.memory_requirements.memory_type_bits)
    }

    fn keep(mut self) -> ash::Device {
        self.kept = true;
        self.device.clone()
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        if !self.kept && self.function(FUNCTIONS[0]) {
            // SAFETY: nothing is left of what was made from it, and the function is there.
            unsafe { self.device.destroy_device(None) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::VulkanBackend;
    use crate::rig;
    use crate::storage::VulkanPage;
    use core::time::Duration;
    use std::thread;
    use trunnion_runtime_core::backend::Backend;
    use trunnion_runtime_core::elem::ElemType;

    /// Kibibytes in memory, and threads.
    #[cfg(target_os = "linux")]
    fn footprint() -> (u64, usize) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        };
        (number("VmRSS:"), number("Threads:") as usize)
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn opening_and_closing_a_device_leaves_nothing_behind() {
        if !rig::alone("device::logical::tests::opening_and_closing_a_device_leaves_nothing_behind") {
            return;
        }
        let options = VulkanOptions::default();
        let backend = VulkanBackend::default();
        let Ok(infos) = backend.enumerate() else { return rig::each(&options, |_| ()) };
        let open = |index| {
            let device = backend.device(index, &options).unwrap();
            VulkanPage::allocate(&device, 1 << 16).unwrap();
        };
        for index in 0..infos.len() as u32 {
            (0..10).for_each(|_| open(index));
            let mut levels = vec![footprint()];
            // What each device leaves behind shows in every run; one alone may rise by a thread that ended late, and an allocator.
            let rises = (0..4).all(|_| {
                let (before, threads) = levels[levels.len() - 1];
                (0..50).for_each(|_| open(index));
                // The system counts a thread that was waited for a moment longer.
                let left = (0..1000).map(|_| footprint()).find(|(_, now)| {
                    thread::sleep(Duration::from_millis(1));
                    *now <= threads
                });
                levels.push(left.unwrap_or_else(footprint));
                left.is_none_or(|(after, _)| after >= before + 1024)
            });
            assert!(!rises, "{}: KiB and threads: {levels:?}", infos[index as usize].adapter);
        }
    }

    #[test]
    fn several_devices_of_one_adapter_share_nothing() {
        let backend = VulkanBackend::default();
        rig::each(&VulkanOptions::default(), |device| {
            let other = backend.device(device.properties.info.device.index, &VulkanOptions::default()).unwrap();
            let pages = [VulkanPage::allocate(device, 4096).unwrap(), VulkanPage::allocate(&other, 4096).unwrap()];
            assert_ne!(device.raw.handle(), other.raw.handle());
            assert_eq!((device.allocations(), other.allocations()), (1, 1));
            drop((other, backend.enumerate()));
            // Its page keeps a device that nobody else holds.
            assert_eq!(pages[1].allocation().device().allocations(), 1);
        });
    }

    #[test]
    fn what_kernels_may_use_is_what_the_device_has() {
        rig::each(&VulkanOptions::default(), |device| {
            let (properties, wgsl) = (&device.properties, device.wgsl);
            let elem = |elem| properties.features.elems.contains(&elem);
            let known = [ElemType::F32, ElemType::I32, ElemType::U32];
            assert!(known.into_iter().all(elem) && !elem(ElemType::BF16) && !elem(ElemType::U8));
            assert_eq!(
                (wgsl.float64, wgsl.int64, wgsl.float16),
                (elem(ElemType::F64), elem(ElemType::I64), elem(ElemType::F16))
            );
            assert_eq!(elem(ElemType::I64), elem(ElemType::U64));
            // What is known of the two drivers these tests are run on.
            if properties.info.adapter.starts_with("llvmpipe") {
                assert!(
                    wgsl.float64
                        && wgsl.int64
                        && wgsl.float16
                        && wgsl.float32_atomics
                        && wgsl.subgroup_operations & 1 == 1
                );
            }
            if properties.info.adapter.starts_with("SwiftShader") {
                assert!(!wgsl.float64 && !wgsl.int64 && !wgsl.float16 && !wgsl.float32_atomics);
                assert_eq!((properties.target.subgroup_min, properties.target.subgroup_max), (4, 4));
            }
        });
    }

    #[test]
    fn options_take_away_what_a_device_offers() {
        let backend = VulkanBackend::default();
        let options = VulkanOptions::default().push_descriptors(false).queues(1);
        rig::each(&options, |device| {
            assert!(device.push_descriptor.is_none() && device.max_push_descriptors == 0);
            assert_eq!(device.queues.len(), 1);
            let plain = backend.device(device.properties.info.device.index, &VulkanOptions::default()).unwrap();
            assert_eq!(plain.push_descriptor.is_some(), plain.max_push_descriptors > 0);
            let named = |name| plain.properties.info.details.iter().any(|(_, value)| value.contains(name));
            assert_eq!(plain.push_descriptor.is_some(), named("VK_KHR_push_descriptor"));
            assert_eq!(plain.external_memory_fd.is_some(), named("VK_KHR_external_memory_fd"));
            assert_eq!(plain.external_memory_host.is_some(), plain.host_pointer_alignment > 0);
        });
    }
}
