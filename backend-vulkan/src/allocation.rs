//! Device memory with the buffer over it: one allocation of the driver's, mapped once where the host reaches it.
//!
//! What the `unsafe` here rests on: handles belong to the device that is held beside them, and a mapping lasts as long as its memory.

use crate::device::Device;
use crate::external::External;
use crate::failure::Refusal;
use crate::memory::MemoryType;
use alloc::format;
use alloc::sync::Arc;
use ash::vk;
use core::ptr::NonNull;
use trunnion_backend_core::exit::Inside;
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

/// What is asked for.
pub(crate) struct Request<'a> {
    /// The bytes of the buffer.
    pub(crate) size: u64,
    /// What it is for.
    pub(crate) usage: vk::BufferUsageFlags,
    /// What memory it may have.
    pub(crate) types: Types,
    /// Whether it is mapped, where the host can.
    pub(crate) maps: bool,
    /// What others have to do with the memory.
    pub(crate) external: External<'a>,
    /// Whether bytes only go through it on their way.
    pub(crate) is_on_the_way: bool,
}

/// Memory types to choose from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Types {
    /// This one.
    One(MemoryType),
    /// Of those with these bits that the buffer can have the one that host and device share best.
    AnyOf(u32),
}

impl Allocation {
    /// Memory with a buffer over it.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is then left behind.
    pub(crate) fn new(device: &Arc<Device>, request: &Request<'_>) -> Result<Self, Refusal> {
        // Dropped with what there is at that moment when a step fails: to destroy a null handle does nothing.
        let mut made = Self {
            buffer: vk::Buffer::null(),
            memory: vk::DeviceMemory::null(),
            size: request.size.max(1),
            mapped: None,
            coherent: false,
            made_as: MadeAs::default(),
            is_lent: false,
            foreign: None,
            device: device.clone(),
        };
        made.create_buffer(request)?;
        let kind = made.allocate(request)?;
        made.coherent = kind.coherent;
        // SAFETY: both are this device's, new, and as large as the requirements say.
        unsafe { device.raw.bind_buffer_memory(made.buffer, made.memory, 0) }
            .map_err(|result| made.refused("vkBindBufferMemory", result))?;
        if request.maps && kind.host_visible {
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

    /// Whether the memory is somebody else's.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// Whether host and device see each other's writes to it without a flush.
    pub(crate) fn is_coherent(&self) -> bool {
        self.coherent
    }

    fn refused(&self, call: &'static str, result: vk::Result) -> Refusal {
        Refusal::Call { call, size: self.size, result }
    }

    fn create_buffer(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let mut shared = vk::ExternalMemoryBufferCreateInfo::default().handle_types(request.external.handle_types());
        let mut info = vk::BufferCreateInfo::default().size(self.size).usage(request.usage);
        if !shared.handle_types.is_empty() {
            info = info.push_next(&mut shared);
        }
        // SAFETY: a valid description, and the device is alive.
        self.buffer = unsafe { self.device.raw.create_buffer(&info, None) }
            .map_err(|result| self.refused("vkCreateBuffer", result))?;
        Ok(())
    }

    /// The type of the memory it has then.
    fn allocate(&mut self, request: &Request<'_>) -> Result<MemoryType, Refusal> {
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut needs = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        let of = vk::BufferMemoryRequirementsInfo2::default().buffer(self.buffer);
        // SAFETY: the buffer is this device's, and the chain holds one structure.
        unsafe { self.device.raw.get_buffer_memory_requirements2(&of, &mut needs) };
        let needs = needs.memory_requirements;
        let kind = self.choose(request.types, needs.memory_type_bits)?;
        self.device.count_allocation(self.size, request.is_on_the_way)?;
        let external = &request.external;
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
                Ok(kind)
            }
            Err(result) => {
                self.device.uncount_allocation();
                Err(Refusal::Call { call: "vkAllocateMemory", size: needs.size, result })
            }
        }
    }

    /// The type to take, where the buffer can have those of `bits`.
    fn choose(&self, types: Types, bits: u32) -> Result<MemoryType, Refusal> {
        let is_in = |bits: u32, index: u32| index < u32::BITS && bits & (1 << index) != 0;
        let (chosen, asked) = match types {
            Types::One(kind) => (Some(kind).filter(|kind| is_in(bits, kind.index)), format!("type {}", kind.index)),
            Types::AnyOf(allowed) => {
                let kinds = (0..u32::BITS).filter(|index| is_in(allowed & bits, *index));
                let kinds = kinds.filter_map(|index| self.device.memory_type(index));
                // What both see of each other's writes without a flush, and the host reads through its caches.
                let best = kinds.max_by_key(|kind| (kind.host_visible, kind.coherent, kind.cached));
                (best, format!("types {allowed:#b}"))
            }
        };
        let why = || format!("a buffer of {} bytes takes memory types {bits:#b}, not {asked}", self.size);
        chosen.ok_or_else(|| Refusal::Unfit(why()))
    }

    fn map(&mut self) -> Result<(), Refusal> {
        // SAFETY: the memory is host-visible and not mapped; it is unmapped when it is freed.
        let start = unsafe { self.device.raw.map_memory(self.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) }
            .map_err(|result| self.refused("vkMapMemory", result))?;
        self.mapped = NonNull::new(start.cast());
        match self.mapped {
            Some(_) => Ok(()),
            None => Err(Refusal::Unfit(format!("vkMapMemory, {} bytes: mapped at address 0", self.size))),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::VulkanOptions;
    use crate::rig;
    use trunnion_vulkan_shim::Plan;
    use vk::MemoryPropertyFlags as MemoryFlags;

    fn request(types: Types) -> Request<'static> {
        Request { size: 256, usage: PAGE_USAGE, types, maps: false, external: External::None, is_on_the_way: false }
    }

    #[test]
    fn a_memory_type_that_buffers_cannot_have_is_a_refusal_that_names_it() {
        rig::each(&VulkanOptions::default(), |device| {
            for types in [Types::One(MemoryType { index: 31, ..device.memory.page }), Types::AnyOf(1 << 31)] {
                let refusal = Allocation::new(device, &request(types)).unwrap_err();
                let said = alloc::string::ToString::to_string(&refusal);
                assert!(!refusal.is_out_of_memory() && said.contains("not type"), "{refusal:?}");
                assert_eq!(device.allocations(), 0);
            }
        });
    }

    #[test]
    fn of_several_types_one_is_taken_that_the_buffer_can_have() {
        let own = (MemoryFlags::DEVICE_LOCAL, 0);
        let host = (MemoryFlags::HOST_VISIBLE | MemoryFlags::HOST_COHERENT, 0);
        let plan = move || Plan::new().memory_types([own, host]);
        rig::each_shown(plan, &VulkanOptions::default(), |device, _| {
            for (bits, index) in [(0b01, 0), (0b10, 1), (0b11, 1), (u32::MAX, 1)] {
                let made = Allocation::new(device, &request(Types::AnyOf(bits))).unwrap();
                assert_eq!(made.made_as().memory_type, index, "{bits:#b}");
                // What a buffer can have counts, however good the others are.
                let chosen = |of_the_buffer| made.choose(Types::AnyOf(bits), of_the_buffer).ok().map(|kind| kind.index);
                assert_eq!(chosen(0b01), (bits & 1 != 0).then_some(0), "{bits:#b}");
            }
        });
    }

    #[test]
    fn the_last_allocations_that_a_device_allows_are_for_bytes_on_their_way() {
        rig::each_changed(
            &VulkanOptions::default(),
            |device| device.limits.max_memory_allocation_count = 8,
            |device| {
                let make = |is_on_the_way| {
                    let types = Types::One(device.memory.page);
                    Allocation::new(device, &Request { is_on_the_way, ..request(types) })
                };
                let held: alloc::vec::Vec<_> = (0..6).map(|_| make(false).unwrap()).collect();
                let refusal = alloc::string::ToString::to_string(&make(false).unwrap_err());
                assert!(refusal.contains("6 allocations of at most 8, of which 2 are kept for transfers"), "{refusal}");
                let two = [make(true).unwrap(), make(true).unwrap()];
                assert!(make(true).unwrap_err().is_out_of_memory());
                drop((held, two));
                assert_eq!(device.allocations(), 0);
            },
        );
    }
}
