//! Pages: device memory with the buffer over all of it, one allocation of the driver's each.

use crate::allocation::{Allocation, PAGE_USAGE, Request, Types};
use crate::device::Device;
use crate::external::External;
use alloc::sync::Arc;
use ash::vk;
use core::ptr::NonNull;
use trunnion_backend_core::driver::DriverRefusal;

/// A piece of device memory: a `VkDeviceMemory` with a `VkBuffer` over all of it, for storage, transfer and indirect dispatch.
#[derive(Debug)]
pub struct VulkanPage {
    allocation: Arc<Allocation>,
    /// What is counted of the device's memory.
    counted: u64,
}

impl Drop for VulkanPage {
    fn drop(&mut self) {
        self.allocation.device().uncount_page(self.counted);
    }
}

impl VulkanPage {
    /// Allocates a page of `size` bytes, mapped where [`MemoryTypes::host_visible`](crate::memory::MemoryTypes) says so.
    ///
    /// # Errors
    /// [`DriverRefusal`]; `out_of_memory` says whether giving something back would help.
    pub(crate) fn allocate(device: &Arc<Device>, size: u64) -> Result<Self, DriverRefusal> {
        device.count_page(size)?;
        let request = Request {
            size,
            usage: PAGE_USAGE,
            types: Types::One(device.memory.page),
            maps: device.memory.host_visible,
            external: if device.hands_out() { External::Exportable } else { External::None },
            is_on_the_way: false,
        };
        match Allocation::new(device, &request) {
            Ok(allocation) => Ok(Self { allocation: Arc::new(allocation), counted: size }),
            Err(refusal) => {
                device.uncount_page(size);
                Err(refusal.into())
            }
        }
    }

    /// A page over memory of somebody else, which counts for nothing.
    pub(crate) fn imported(allocation: Allocation) -> Self {
        Self { allocation: Arc::new(allocation), counted: 0 }
    }

    /// The buffer over the page.
    pub fn buffer(&self) -> vk::Buffer {
        self.allocation.buffer()
    }

    /// The page's memory.
    pub fn memory(&self) -> vk::DeviceMemory {
        self.allocation.memory()
    }

    /// Bytes in it.
    pub fn size(&self) -> u64 {
        self.allocation.size()
    }

    /// Where the host reaches its bytes, where it does.
    pub fn mapped(&self) -> Option<NonNull<u8>> {
        self.allocation.mapped()
    }

    /// The memory behind it, with flushes where it needs them.
    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::VulkanOptions;
    use crate::rig;
    use alloc::format;
    use alloc::vec::Vec;
    use trunnion_backend_core::LimitOptions;
    use trunnion_vulkan_shim::Plan;
    use vk::MemoryPropertyFlags as MemoryFlags;

    #[test]
    fn a_device_with_memory_of_its_own_has_pages_there_that_the_host_does_not_reach() {
        let own = (MemoryFlags::DEVICE_LOCAL, 0);
        let host = (MemoryFlags::HOST_VISIBLE | MemoryFlags::HOST_COHERENT, 1);
        let cached = (MemoryFlags::HOST_VISIBLE | MemoryFlags::HOST_COHERENT | MemoryFlags::HOST_CACHED, 1);
        let plan = move || {
            let heaps = [(64 << 20, vk::MemoryHeapFlags::DEVICE_LOCAL), (128 << 20, vk::MemoryHeapFlags::empty())];
            let discrete =
                |said: &mut vk::PhysicalDeviceProperties| said.device_type = vk::PhysicalDeviceType::DISCRETE_GPU;
            Plan::new().memory_types([host, own, cached]).heaps(heaps).properties(discrete)
        };
        rig::each_shown(plan, &VulkanOptions::default(), |device, _| {
            let memory = &device.memory;
            assert_eq!(
                [memory.page, memory.upload, memory.download, memory.pinned].map(|kind| kind.index),
                [1, 0, 2, 2]
            );
            assert!(!device.properties.features.host_visible);
            assert_eq!(
                (device.properties.limits.memory, device.properties.limits.max_allocation),
                (64 << 20, 64 << 20)
            );
            let page = VulkanPage::allocate(device, 64 << 20).unwrap();
            assert!(page.mapped().is_none());
            assert!(VulkanPage::allocate(device, 256).unwrap_err().out_of_memory);
        });
    }

    #[test]
    fn whatever_step_of_an_allocation_fails_leaves_nothing_behind() {
        let out_of_memory = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
        let steps = ["vkCreateBuffer", "vkAllocateMemory", "vkBindBufferMemory", "vkMapMemory"];
        for (code, giving_back_helps) in [(out_of_memory, true), (vk::Result::ERROR_UNKNOWN, false)] {
            rig::each_shown(Plan::new, &VulkanOptions::default(), |device, shim| {
                for step in steps.iter().filter(|step| **step != "vkMapMemory" || device.memory.host_visible) {
                    shim.fail(step, 1, code);
                    let refusal = VulkanPage::allocate(device, 4096).unwrap_err();
                    assert_eq!(refusal.out_of_memory, giving_back_helps, "{refusal:?}");
                    let named = format!("{step}, 4096 bytes: {code} ({})", code.as_raw());
                    assert_eq!(refusal.message, named);
                    assert_eq!((device.allocations(), device.memory_report().free), (0, device.memory_report().total));
                }
                assert_eq!(shim.fired().len(), if device.memory.host_visible { 4 } else { 3 });
                let before = shim.alive().len();
                drop(VulkanPage::allocate(device, 4096).unwrap());
                assert_eq!(shim.alive().len(), before);
            });
        }
    }

    #[test]
    fn pages_are_refused_beyond_the_devices_memory_and_given_again_when_others_are_released() {
        rig::each(
            &VulkanOptions::default().limits(LimitOptions { memory: Some(1 << 20), ..LimitOptions::default() }),
            |device| {
                assert_eq!(device.properties.limits.memory, 1 << 20);
                let held = VulkanPage::allocate(device, 600 << 10).unwrap();
                assert_eq!(device.memory_report().free, Some((1 << 20) - (600 << 10)));
                let refusal = VulkanPage::allocate(device, 500 << 10).unwrap_err();
                assert!(
                    refusal.out_of_memory && refusal.message.contains("512000 bytes requested, 434176 of 1048576"),
                    "{refusal:?}"
                );
                drop(held);
                VulkanPage::allocate(device, 1 << 20).unwrap();
                assert_eq!(device.memory_report().free, Some(1 << 20));
            },
        );
    }

    #[test]
    fn allocations_beyond_the_devices_count_are_refused_as_memory_that_ran_out() {
        rig::each_changed(
            &VulkanOptions::default(),
            |device| device.limits.max_memory_allocation_count = 3,
            |device| {
                let held: Vec<_> = (0..3).map(|_| VulkanPage::allocate(device, 256).unwrap()).collect();
                let refusal = VulkanPage::allocate(device, 256).unwrap_err();
                assert!(refusal.out_of_memory && refusal.message.contains("3 allocations of at most 3"), "{refusal:?}");
                drop(held);
                assert_eq!(
                    (device.allocations(), device.memory_report().free),
                    (0, Some(device.properties.limits.memory))
                );
                VulkanPage::allocate(device, 256).unwrap();
            },
        );
    }
}
