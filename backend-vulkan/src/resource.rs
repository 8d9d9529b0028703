//! What an access in place is given: the buffer and memory a range lies in, and its bytes where the host reaches them.

use crate::device::Device;
use crate::storage::{Allocation, VulkanPage};
use alloc::sync::Arc;
use ash::vk;
use core::fmt;
use core::ptr::NonNull;
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

    /// Whether the host reaches the bytes.
    pub(crate) fn is_mapped(&self) -> bool {
        self.allocation.mapped().is_some()
    }

    /// The address of bytes of the range, where it has them.
    fn at(&self, offset: u64, length: usize) -> Option<NonNull<u8>> {
        let inside = offset.checked_add(length as u64).is_some_and(|end| end <= self.size);
        // SAFETY: the mapping is of the whole page, in which the range lies, and these bytes lie in the range.
        self.allocation.mapped().filter(|_| inside).map(|start| unsafe { start.add((self.offset + offset) as usize) })
    }

    /// The whole atoms of the memory that hold bytes of the range. Places begin and end at atoms, so nobody else's bytes are in them.
    fn atoms(&self, offset: u64, length: usize) -> vk::MappedMemoryRange<'static> {
        let atom = self.device.limits.non_coherent_atom_size.max(1);
        let start = (self.offset + offset) / atom * atom;
        let end = (self.offset + offset + length as u64).next_multiple_of(atom);
        vk::MappedMemoryRange::default().memory(self.memory()).offset(start).size(end - start)
    }
}

impl HostMemory for VulkanResource {
    fn read(&self, offset: u64, into: &mut [u8]) {
        let Some(from) = self.at(offset, into.len()).filter(|_| !into.is_empty()) else { return };
        if !self.allocation.is_coherent() {
            let range = [self.atoms(offset, into.len())];
            // SAFETY: whole atoms of memory that is mapped.
            if let Err(result) = unsafe { self.device.raw.invalidate_mapped_memory_ranges(&range) } {
                log::error!("vkInvalidateMappedMemoryRanges: {result}");
            }
        }
        // SAFETY: bytes of the mapping, which nobody writes while a reading access is granted; every batch that may have written them ended
        // with a barrier to the host.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
    }

    fn write(&self, offset: u64, from: &[u8]) {
        let Some(to) = self.at(offset, from.len()).filter(|_| self.writes && !from.is_empty()) else { return };
        // SAFETY: bytes of the mapping, which nobody else uses while a writing access is granted.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
        if !self.allocation.is_coherent() {
            let range = [self.atoms(offset, from.len())];
            // SAFETY: whole atoms of memory that is mapped.
            if let Err(result) = unsafe { self.device.raw.flush_mapped_memory_ranges(&range) } {
                log::error!("vkFlushMappedMemoryRanges: {result}");
            }
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
