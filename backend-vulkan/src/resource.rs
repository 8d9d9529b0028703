//! What an access in place is given: the buffer and memory a range lies in, and its bytes where the host reaches them.

use crate::allocation::Allocation;
use crate::device::Device;
use crate::storage::VulkanPage;
use alloc::sync::Arc;
use ash::vk;
use core::fmt;
use trunnion_backend_core::driver::Place;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::server::HostMemory;

/// The backend's resource in a [`Grant`](trunnion_runtime_core::server::Grant): a range of a buffer. It keeps the memory and the device. What is
/// done with it MUST stay in the range, be of the kind that was granted, and end before the access is closed.
///
/// Equivalent to: a `VkDescriptorBufferInfo` with the `VkDevice` and the `VkDeviceMemory` it is of.
pub struct VulkanResource {
    device: Arc<Device>,
    allocation: Arc<Allocation>,
    offset: u64,
    size: u64,
    writes: bool,
}

impl VulkanResource {
    /// Where a place lies; `None` when it leaves its page.
    pub(crate) fn new(device: &Arc<Device>, place: Place<'_, VulkanPage>, access: Access) -> Option<Self> {
        place.offset.checked_add(place.size).filter(|end| *end <= place.page.size())?;
        Some(Self {
            device: device.clone(),
            allocation: place.page.allocation().clone(),
            offset: place.offset,
            size: place.size,
            writes: access.writes(),
        })
    }

    /// The buffer.
    pub fn buffer(&self) -> vk::Buffer {
        self.allocation.buffer()
    }

    /// The memory the buffer is bound to, from its start.
    pub fn memory(&self) -> vk::DeviceMemory {
        self.allocation.memory()
    }

    /// Where the range begins in the buffer, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes in the range.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the access granted writes.
    pub fn is_writable(&self) -> bool {
        self.writes
    }

    /// The functions of the device, with its handle.
    pub fn device(&self) -> &ash::Device {
        &self.device.raw
    }

    /// The functions of the instance the device is of, with its handle.
    pub fn instance(&self) -> &ash::Instance {
        &self.device.instance.raw
    }

    /// The adapter.
    pub fn physical_device(&self) -> vk::PhysicalDevice {
        self.device.physical
    }

    /// The family of the device's queues: buffers of the exclusive mode are theirs.
    pub fn queue_family(&self) -> u32 {
        self.device.queues.first().map_or(0, |(family, _)| *family)
    }

    /// The logical device, as this crate knows it.
    #[cfg(unix)]
    pub(crate) fn logical(&self) -> &Device {
        &self.device
    }

    /// What the range is a part of.
    #[cfg(unix)]
    pub(crate) fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// Whether the host reaches the bytes in place: not to write such as share an atom with what others may use meanwhile.
    pub(crate) fn is_mapped(&self) -> bool {
        let range = self.offset..self.offset + self.size;
        self.allocation.mapped().is_some() && (!self.writes || self.allocation.is_apart(range))
    }

    /// Where bytes of the range lie in the page, where the range has them.
    fn at(&self, offset: u64, length: usize) -> Option<u64> {
        let inside = length > 0 && offset.checked_add(length as u64).is_some_and(|end| end <= self.size);
        inside.then_some(self.offset + offset)
    }
}

impl HostMemory for VulkanResource {
    fn read(&self, offset: u64, into: &mut [u8]) {
        let Some(at) = self.at(offset, into.len()) else { return };
        // SAFETY: nobody writes the bytes while a reading access is granted; every batch that may have written them ended with a barrier
        // to the host.
        if let Err(error) = unsafe { self.allocation.read(at, into) } {
            log::error!("{error}");
        }
    }

    fn write(&self, offset: u64, from: &[u8]) {
        let Some(at) = self.at(offset, from.len()).filter(|_| self.writes) else { return };
        // SAFETY: nobody else uses the bytes while a writing access is granted.
        if let Err(error) = unsafe { self.allocation.write(at, from) } {
            log::error!("{error}");
        }
    }
}

impl fmt::Debug for VulkanResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanResource")
            .field("buffer", &self.buffer())
            .field("offset", &self.offset)
            .field("size", &self.size)
            .field("writes", &self.writes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::VulkanOptions;
    use crate::rig;

    #[test]
    fn bytes_that_share_an_atom_with_others_are_read_in_place_and_not_written() {
        rig::each_changed(
            &VulkanOptions::default(),
            |device| {
                device.memory.page.coherent = false;
                device.limits.non_coherent_atom_size = 64;
            },
            |device| {
                if !device.memory.host_visible {
                    return;
                }
                let page = VulkanPage::allocate(device, 4096).unwrap();
                let is_mapped = |offset, size, access| {
                    VulkanResource::new(device, Place { page: &page, offset, size }, access).unwrap().is_mapped()
                };
                assert!(is_mapped(4, 4, Access::Read) && is_mapped(64, 128, Access::ReadWrite));
                assert!(!is_mapped(4, 4, Access::ReadWrite) && !is_mapped(64, 100, Access::Overwrite));
            },
        );
    }
}
