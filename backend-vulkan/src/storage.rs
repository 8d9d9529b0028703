//! Device memory with the buffer over it: one allocation of the driver's a page, mapped once where the host reaches it.
//!
//! What the `unsafe` here rests on: handles belong to the device that is held beside them, a mapping lasts as long as its memory, and
//! every copy through it is checked against its size.

use crate::device::Device;
use crate::exit::Inside;
use crate::external::External;
use crate::failure::{failed, refused};
use crate::memory::MemoryType;
use alloc::format;
use alloc::sync::Arc;
use ash::vk;
use core::ops::Range;
use core::ptr::{self, NonNull};
use trunnion_backend_core::driver::DriverRefusal;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::Foreign;

/// What a page's buffer can be used for: everything an operation of the runtime does with bytes.
pub(crate) const PAGE_USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::TRANSFER_SRC.as_raw()
        | vk::BufferUsageFlags::TRANSFER_DST.as_raw()
        | vk::BufferUsageFlags::INDIRECT_BUFFER.as_raw(),
);

/// A buffer bound to memory from start to end: both of its own, or somebody else's.
pub(crate) struct Allocation {
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    size: u64,
    mapped: Option<NonNull<u8>>,
    coherent: bool,
    /// What the memory was allocated as, for whoever is to import it.
    made_as: MadeAs,
    /// Whether buffer and memory are somebody else's, to be destroyed by whom they belong to.
    is_lent: bool,
    /// Kept as long as it is used.
    foreign: Option<Foreign>,
    device: Arc<Device>,
}

/// How memory was allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MadeAs {
    /// The size that was asked for.
    pub(crate) size: u64,
    /// The memory type.
    pub(crate) memory_type: u32,
    /// Whether it is for the one buffer alone.
    pub(crate) is_dedicated: bool,
    /// Whether it can be handed out by file descriptor.
    pub(crate) is_exportable: bool,
}

// SAFETY: the handles may be used on any thread, and the bytes behind the pointer are only touched by functions that are unsafe to
// call for that reason.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Memory of `size` bytes of a type, with a buffer for these uses, mapped or not.
    ///
    /// # Errors
    /// [`DriverRefusal`]; nothing is then left behind.
    pub(crate) fn new(
        device: &Arc<Device>,
        size: u64,
        usage: vk::BufferUsageFlags,
        kind: MemoryType,
        map: bool,
    ) -> Result<Self, DriverRefusal> {
        Self::of(device, size, usage, kind, map, &External::None)
    }

    /// [`new`](Self::new) for memory that others have, or are to have, as well.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub(crate) fn of(
        device: &Arc<Device>,
        size: u64,
        usage: vk::BufferUsageFlags,
        kind: MemoryType,
        map: bool,
        external: &External<'_>,
    ) -> Result<Self, DriverRefusal> {
        // Dropped with what there is at that moment when a step fails: to destroy a null handle does nothing.
        let mut made = Self {
            buffer: vk::Buffer::null(),
            memory: vk::DeviceMemory::null(),
            size: size.max(1),
            mapped: None,
            coherent: kind.coherent,
            made_as: MadeAs::default(),
            is_lent: false,
            foreign: None,
            device: device.clone(),
        };
        made.create_buffer(usage, external)?;
        made.allocate(kind, external)?;
        // SAFETY: both are this device's, new, and as large as the requirements say.
        unsafe { device.raw.bind_buffer_memory(made.buffer, made.memory, 0) }
            .map_err(|result| refused("vkBindBufferMemory", size, result))?;
        if map {
            made.map()?;
        }
        Ok(made)
    }

    /// A buffer of somebody else's over memory of somebody else's, of which the first `size` bytes are used.
    pub(crate) fn lent(
        device: &Arc<Device>,
        buffer: vk::Buffer,
        memory: vk::DeviceMemory,
        size: u64,
        foreign: &Foreign,
    ) -> Self {
        Self {
            buffer,
            memory,
            size,
            mapped: None,
            coherent: true,
            made_as: MadeAs::default(),
            is_lent: true,
            foreign: Some(foreign.clone()),
            device: device.clone(),
        }
    }

    /// Keeps what the memory rests on.
    pub(crate) fn holding(mut self, foreign: &Foreign) -> Self {
        self.foreign = Some(foreign.clone());
        self
    }

    /// How the memory was allocated.
    pub(crate) fn made_as(&self) -> MadeAs {
        self.made_as
    }

    /// Whether host and device see each other's writes to it without a flush.
    pub(crate) fn is_coherent(&self) -> bool {
        self.coherent
    }

    fn create_buffer(&mut self, usage: vk::BufferUsageFlags, external: &External<'_>) -> Result<(), DriverRefusal> {
        let mut shared = vk::ExternalMemoryBufferCreateInfo::default().handle_types(external.handle_types());
        let mut info = vk::BufferCreateInfo::default().size(self.size).usage(usage);
        if !shared.handle_types.is_empty() {
            info = info.push_next(&mut shared);
        }
        // SAFETY: a valid description, and the device is alive.
        self.buffer = unsafe { self.device.raw.create_buffer(&info, None) }
            .map_err(|result| refused("vkCreateBuffer", self.size, result))?;
        Ok(())
    }

    fn allocate(&mut self, kind: MemoryType, external: &External<'_>) -> Result<(), DriverRefusal> {
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut needs = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        let of = vk::BufferMemoryRequirementsInfo2::default().buffer(self.buffer);
        // SAFETY: the buffer is this device's, and the chain holds one structure.
        unsafe { self.device.raw.get_buffer_memory_requirements2(&of, &mut needs) };
        let needs = needs.memory_requirements;
        if needs.memory_type_bits & (1 << kind.index) == 0 {
            let (index, bits) = (kind.index, needs.memory_type_bits);
            let message = format!("a buffer of {} bytes takes memory types {bits:#b}, not type {index}", self.size);
            return Err(DriverRefusal { message, out_of_memory: false });
        }
        self.device.count_allocation(self.size)?;
        let mut alone = vk::MemoryDedicatedAllocateInfo::default().buffer(self.buffer);
        let wants_alone =
            dedicated.prefers_dedicated_allocation == vk::TRUE || dedicated.requires_dedicated_allocation == vk::TRUE;
        let made_as = MadeAs {
            size: external.allocation_size().unwrap_or(needs.size),
            memory_type: kind.index,
            is_dedicated: external.is_dedicated().unwrap_or(wants_alone),
            is_exportable: matches!(external, External::Exportable),
        };
        let mut info = vk::MemoryAllocateInfo::default().allocation_size(made_as.size).memory_type_index(kind.index);
        if made_as.is_dedicated {
            info = info.push_next(&mut alone);
        }
        // SAFETY: the type exists, the buffer named is the one that will be bound, and what is imported is what its owner vouched for.
        match unsafe { external.allocate(&self.device, info) } {
            Ok(memory) => {
                (self.memory, self.made_as) = (memory, made_as);
                Ok(())
            }
            Err(result) => {
                self.device.uncount_allocation();
                Err(refused("vkAllocateMemory", needs.size, result))
            }
        }
    }

    fn map(&mut self) -> Result<(), DriverRefusal> {
        // SAFETY: the memory is host-visible and not mapped; it is unmapped when it is freed.
        let start = unsafe { self.device.raw.map_memory(self.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) }
            .map_err(|result| refused("vkMapMemory", self.size, result))?;
        self.mapped = NonNull::new(start.cast());
        match self.mapped {
            Some(_) => Ok(()),
            None => {
                let message = format!("vkMapMemory, {} bytes: mapped at address 0", self.size);
                Err(DriverRefusal { message, out_of_memory: false })
            }
        }
    }

    pub(crate) fn buffer(&self) -> vk::Buffer {
        self.buffer
    }

    pub(crate) fn memory(&self) -> vk::DeviceMemory {
        self.memory
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn mapped(&self) -> Option<NonNull<u8>> {
        self.mapped
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Where bytes `offset..offset + length` are for the host.
    fn reach(&self, what: &'static str, offset: u64, length: usize) -> Result<NonNull<u8>> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.size);
        match (self.mapped, end) {
            // SAFETY: the mapping is `size` bytes long, and the offset lies within it.
            (Some(start), Some(_)) => Ok(unsafe { start.add(offset as usize) }),
            _ => {
                let size = if self.mapped.is_some() { self.size } else { 0 };
                let range = offset..offset.saturating_add(length as u64);
                Err(Error::OutOfRange { what: what.into(), range, size })
            }
        }
    }

    /// Copies in, and makes it visible to the device's work that is submitted afterwards.
    ///
    /// # Safety
    /// Nothing else uses these bytes at the same time.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for bytes that are not mapped; what the driver answers to a flush.
    pub(crate) unsafe fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        let to = self.reach("write to mapped memory", offset, from.len())?;
        // SAFETY: the range is mapped, used by nobody else by the caller's promise, and no Rust reference points into it.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
        self.flush(offset..offset + from.len() as u64)
    }

    /// Copies out what the device has made visible to the host.
    ///
    /// # Safety
    /// Nothing else writes these bytes at the same time.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for bytes that are not mapped; what the driver answers to an invalidation.
    pub(crate) unsafe fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let from = self.reach("read from mapped memory", offset, into.len())?;
        self.invalidate(offset..offset + into.len() as u64)?;
        // SAFETY: the range is mapped and written by nobody by the caller's promise.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Hands the host's writes to mapped bytes to the device. Nothing where the memory is coherent.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn flush(&self, bytes: Range<u64>) -> Result<()> {
        let Some(range) = self.atoms(bytes) else { return Ok(()) };
        // SAFETY: the range is aligned, and within memory that is mapped.
        unsafe { self.device.raw.flush_mapped_memory_ranges(&[range]) }
            .map_err(|result| failed("vkFlushMappedMemoryRanges", result))
    }

    /// Hands the device's writes to mapped bytes to the host. Nothing where the memory is coherent.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn invalidate(&self, bytes: Range<u64>) -> Result<()> {
        let Some(range) = self.atoms(bytes) else { return Ok(()) };
        // SAFETY: the range is aligned, and within memory that is mapped.
        unsafe { self.device.raw.invalidate_mapped_memory_ranges(&[range]) }
            .map_err(|result| failed("vkInvalidateMappedMemoryRanges", result))
    }

    /// The whole atoms that hold these bytes, where they must be flushed at all.
    fn atoms(&self, bytes: Range<u64>) -> Option<vk::MappedMemoryRange<'static>> {
        if self.coherent || self.mapped.is_none() || bytes.start >= bytes.end {
            return None;
        }
        let atom = self.device.limits.non_coherent_atom_size.max(1);
        let start = bytes.start / atom * atom;
        // The last atom may be cut off by the end of the memory, which only the whole rest can say.
        let end = bytes.end.div_ceil(atom).saturating_mul(atom);
        let size = if end < self.size { end - start } else { vk::WHOLE_SIZE };
        Some(vk::MappedMemoryRange::default().memory(self.memory).offset(start).size(size))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let _inside = Inside::new();
        if self.is_lent {
            return;
        }
        // SAFETY: whoever dropped it knows that the device no longer uses it; freeing unmaps.
        unsafe {
            self.device.raw.destroy_buffer(self.buffer, None);
            self.device.raw.free_memory(self.memory, None);
        }
        if self.memory != vk::DeviceMemory::null() {
            self.device.uncount_allocation();
        }
    }
}

impl core::fmt::Debug for Allocation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Allocation")
            .field("size", &self.size)
            .field("mapped", &self.mapped.is_some())
            .finish_non_exhaustive()
    }
}

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
        let memory = &device.memory;
        let external = if device.hands_out() { External::Exportable } else { External::None };
        match Allocation::of(device, size, PAGE_USAGE, memory.page, memory.host_visible, &external) {
            Ok(allocation) => Ok(Self { allocation: Arc::new(allocation), counted: size }),
            Err(refusal) => {
                device.uncount_page(size);
                Err(refusal)
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
    use alloc::vec;
    use alloc::vec::Vec;
    use trunnion_vulkan_shim::Plan;
    use vk::MemoryPropertyFlags as MemoryFlags;

    fn pattern(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at * 7 + 3) as u8).collect()
    }

    /// Writes and reads at places of any alignment, among others the end.
    fn round_trips(page: &VulkanPage) {
        let size = page.size();
        let whole = pattern(size as usize);
        // SAFETY: the page is this test's alone.
        unsafe { page.allocation().write(0, &whole) }.unwrap();
        for (offset, length) in
            [(0, 1), (1, 62), (63, 2), (size - 25, 25), (size - 1, 1), (size, 0), (0, size as usize)]
        {
            let mut found = vec![0; length];
            // SAFETY: as above.
            unsafe { page.allocation().read(offset, &mut found) }.unwrap();
            assert_eq!(found, whole[offset as usize..][..length], "{length} bytes at {offset}");
        }
        for (offset, length) in [(size, 1), (0, size as usize + 1), (u64::MAX, 2)] {
            // SAFETY: as above; nothing is copied.
            let error = unsafe { page.allocation().read(offset, &mut vec![0; length]) }.unwrap_err();
            let range = offset..offset.saturating_add(length as u64);
            assert_eq!(error, Error::OutOfRange { what: "read from mapped memory".into(), range, size });
        }
    }

    #[test]
    fn what_is_written_to_a_mapped_page_is_read_back() {
        rig::each(&VulkanOptions::default(), |device| {
            if device.memory.host_visible {
                round_trips(&VulkanPage::allocate(device, 4096).unwrap());
                round_trips(&VulkanPage::allocate(device, 1009 * 16).unwrap());
            }
        });
    }

    #[test]
    fn memory_that_is_not_coherent_is_flushed_in_whole_atoms() {
        rig::each_changed(
            &VulkanOptions::default(),
            |device| device.memory.page.coherent = false,
            |device| {
                if device.memory.host_visible {
                    assert!(device.page_alignment() >= device.limits.non_coherent_atom_size);
                    round_trips(&VulkanPage::allocate(device, 4096).unwrap());
                    // An end in the middle of an atom.
                    round_trips(&VulkanPage::allocate(device, 4096 + 16).unwrap());
                }
            },
        );
    }

    #[test]
    fn bytes_reach_memory_that_is_not_coherent_only_by_flushes_and_come_back_by_invalidations() {
        let flags = MemoryFlags::DEVICE_LOCAL | MemoryFlags::HOST_VISIBLE | MemoryFlags::HOST_CACHED;
        let staging = MemoryFlags::HOST_VISIBLE | MemoryFlags::HOST_COHERENT;
        let plan = || Plan::new().memory_types([(flags, 0), (staging, 0)]);
        rig::each_shown(plan, &VulkanOptions::default(), |device, shim| {
            assert_eq!(
                (device.memory.page.index, device.memory.page.coherent, device.memory.host_visible),
                (0, false, true)
            );
            round_trips(&VulkanPage::allocate(device, 4096).unwrap());
            assert!(shim.calls("vkFlushMappedMemoryRanges") >= 1 && shim.calls("vkInvalidateMappedMemoryRanges") >= 6);
        });
    }

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
    fn a_flush_that_fails_is_an_error_of_the_write() {
        let flags = MemoryFlags::DEVICE_LOCAL | MemoryFlags::HOST_VISIBLE | MemoryFlags::HOST_CACHED;
        let plan =
            || Plan::new().memory_types([(flags, 0), (MemoryFlags::HOST_VISIBLE | MemoryFlags::HOST_COHERENT, 0)]);
        rig::each_shown(plan, &VulkanOptions::default(), |device, shim| {
            let page = VulkanPage::allocate(device, 4096).unwrap();
            shim.fail("vkFlushMappedMemoryRanges", 1, vk::Result::ERROR_UNKNOWN);
            // SAFETY: the page is this test's alone.
            let error = unsafe { page.allocation().write(5, &[1, 2, 3]) }.unwrap_err();
            assert!(
                matches!(&error, Error::Driver { call, code: -13, .. } if call == "vkFlushMappedMemoryRanges"),
                "{error}"
            );
        });
    }

    #[test]
    fn with_staging_forced_pages_are_not_mapped() {
        rig::each(&VulkanOptions::default().staging(true), |device| {
            let page = VulkanPage::allocate(device, 256).unwrap();
            assert!(page.mapped().is_none() && !device.properties.features.host_visible);
            // SAFETY: nothing is copied.
            let error = unsafe { page.allocation().write(0, &[1]) }.unwrap_err();
            assert_eq!(error, Error::OutOfRange { what: "write to mapped memory".into(), range: 0..1, size: 0 });
        });
    }

    #[test]
    fn pages_are_refused_beyond_the_devices_memory_and_given_again_when_others_are_released() {
        rig::each(&VulkanOptions::default().memory(1 << 20), |device| {
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
        });
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

    #[test]
    fn a_memory_type_that_buffers_cannot_have_is_a_refusal_that_names_it() {
        rig::each(&VulkanOptions::default(), |device| {
            let kind = MemoryType { index: 31, ..device.memory.page };
            let refusal = Allocation::new(device, 256, PAGE_USAGE, kind, false).unwrap_err();
            assert!(!refusal.out_of_memory && refusal.message.contains("not type 31"), "{refusal:?}");
            assert_eq!(device.allocations(), 0);
        });
    }
}
