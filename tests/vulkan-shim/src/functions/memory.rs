//! Memory: its types as they are said, mappings as copies where memory is not coherent, heaps that end.

use core::ffi::{c_int, c_void};

use alloc::format;
use ash::vk::{self, Handle};

use super::{array, enter, hand_on, pointer};
use crate::memory::{Allocation, Copied, Mapped};
use crate::state::{DeviceState, locked};

pub(super) fn find(name: &str) -> vk::PFN_vkVoidFunction {
    match name {
        "vkAllocateMemory" => pointer!(PFN_vkAllocateMemory, allocate_memory),
        "vkFreeMemory" => pointer!(PFN_vkFreeMemory, free_memory),
        "vkMapMemory" => pointer!(PFN_vkMapMemory, map_memory),
        "vkUnmapMemory" => pointer!(PFN_vkUnmapMemory, unmap_memory),
        "vkFlushMappedMemoryRanges" => pointer!(PFN_vkFlushMappedMemoryRanges, flush_mapped_memory_ranges),
        "vkInvalidateMappedMemoryRanges" => {
            pointer!(PFN_vkInvalidateMappedMemoryRanges, invalidate_mapped_memory_ranges)
        }
        "vkGetBufferMemoryRequirements" => pointer!(PFN_vkGetBufferMemoryRequirements, buffer_requirements),
        "vkGetBufferMemoryRequirements2" | "vkGetBufferMemoryRequirements2KHR" => {
            pointer!(PFN_vkGetBufferMemoryRequirements2, buffer_requirements2)
        }
        "vkGetMemoryFdKHR" => pointer!(PFN_vkGetMemoryFdKHR, get_memory_fd),
        "vkGetMemoryFdPropertiesKHR" => pointer!(PFN_vkGetMemoryFdPropertiesKHR, get_memory_fd_properties),
        "vkGetMemoryHostPointerPropertiesEXT" => {
            pointer!(PFN_vkGetMemoryHostPointerPropertiesEXT, get_memory_host_pointer_properties)
        }
        other => handed_on(other),
    }
}

hand_on! {
    "vkBindBufferMemory" PFN_vkBindBufferMemory fp_v1_0 bind_buffer_memory(
        buffer: vk::Buffer, memory: vk::DeviceMemory, offset: u64) -> vk::Result;
    "vkBindBufferMemory2" PFN_vkBindBufferMemory2 fp_v1_1 bind_buffer_memory2(
        count: u32, infos: *const vk::BindBufferMemoryInfo<'_>) -> vk::Result;
}

unsafe extern "system" fn allocate_memory(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::DeviceMemory,
) -> vk::Result {
    const CALL: &str = "vkAllocateMemory";
    let device = match enter(device, CALL) {
        Ok(device) => device,
        Err(code) => return code,
    };
    // SAFETY: the caller's arguments are those of the function.
    unsafe {
        let mut changed = *info;
        let said = changed.memory_type_index;
        let Some(real) = device.memory.real(said) else {
            device.state.complain(format!("{CALL} of memory type {said}, which there is not"));
            return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
        };
        if let Some(code) = locked(&device.state.calls).count_allocation(said) {
            return code;
        }
        if let Err(code) = room(&device, said, changed.allocation_size) {
            return code;
        }
        changed.memory_type_index = real;
        let code = (device.raw.fp_v1_0().allocate_memory)(device.handle(), &changed, allocator, out);
        if code == vk::Result::SUCCESS {
            device.created(*out, 0, CALL);
            let allocation = Allocation { size: changed.allocation_size, said, mapped: None };
            locked(&device.allocations).insert((*out).as_raw(), allocation);
        }
        code
    }
}

/// Whether what is said of the device leaves room for an allocation.
fn room(device: &DeviceState, said: u32, size: u64) -> Result<(), vk::Result> {
    let count = locked(&device.state.objects).count(device.owner(), vk::ObjectType::DEVICE_MEMORY);
    if count >= device.limits.max_memory_allocation_count {
        return Err(vk::Result::ERROR_TOO_MANY_OBJECTS);
    }
    let heap = device.memory.heap(said);
    let allocations = locked(&device.allocations);
    let of_heap = allocations.values().filter(|allocation| device.memory.heap(allocation.said) == heap);
    let used: u64 = of_heap.map(|allocation| allocation.size).sum();
    let there = device.memory.said.memory_heaps_as_slice().get(heap as usize).map_or(0, |heap| heap.size);
    if size > device.max_allocation || device.memory.bounded && used.saturating_add(size) > there {
        return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
    }
    Ok(())
}

unsafe extern "system" fn free_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    const CALL: &str = "vkFreeMemory";
    let Ok(device) = enter(device, CALL) else { return };
    let _alone = device.exclusive(memory, CALL);
    if memory.is_null() || !device.destroyed(memory, CALL) {
        return;
    }
    // What is mapped as a copy reads the real bytes until it is gone.
    drop(locked(&device.allocations).remove(&memory.as_raw()));
    // SAFETY: memory of this device that lives.
    unsafe { (device.raw.fp_v1_0().free_memory)(device.handle(), memory, allocator) };
}

unsafe extern "system" fn map_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    offset: u64,
    size: u64,
    flags: vk::MemoryMapFlags,
    out: *mut *mut c_void,
) -> vk::Result {
    const CALL: &str = "vkMapMemory";
    let device = match enter(device, CALL) {
        Ok(device) => device,
        Err(code) => return code,
    };
    let _alone = device.exclusive(memory, CALL);
    let mut allocations = locked(&device.allocations);
    let Some(allocation) = allocations.get_mut(&memory.as_raw()) else {
        device.state.complain(format!("{CALL} of memory that there is not"));
        return vk::Result::ERROR_MEMORY_MAP_FAILED;
    };
    if allocation.mapped.is_some()
        || !device.memory.flags(allocation.said).contains(vk::MemoryPropertyFlags::HOST_VISIBLE)
    {
        let why = if allocation.mapped.is_some() { "is mapped" } else { "is not host-visible" };
        device.state.complain(format!("{CALL} of memory that {why}"));
        return vk::Result::ERROR_MEMORY_MAP_FAILED;
    }
    let size_here = if size == vk::WHOLE_SIZE { allocation.size.saturating_sub(offset) } else { size };
    // SAFETY: memory of this device that lives; a copy is dropped before its mapping ends.
    unsafe {
        let code = (device.raw.fp_v1_0().map_memory)(device.handle(), memory, offset, size, flags, out);
        if code == vk::Result::SUCCESS {
            let copy = device.memory.is_copied(allocation.said).then(|| Copied::new((*out).cast(), size_here as usize));
            if let Some(copy) = &copy {
                *out = copy.host().cast();
            }
            allocation.mapped = Some(Mapped { offset, size: size_here, copy });
        }
        code
    }
}

unsafe extern "system" fn unmap_memory(device: vk::Device, memory: vk::DeviceMemory) {
    const CALL: &str = "vkUnmapMemory";
    let Ok(device) = enter(device, CALL) else { return };
    let _alone = device.exclusive(memory, CALL);
    let mapped = locked(&device.allocations).get_mut(&memory.as_raw()).and_then(|allocation| allocation.mapped.take());
    if mapped.is_none() {
        return device.state.complain(format!("{CALL} of memory that is not mapped"));
    }
    drop(mapped);
    // SAFETY: memory of this device that is mapped.
    unsafe { (device.raw.fp_v1_0().unmap_memory)(device.handle(), memory) };
}

unsafe extern "system" fn flush_mapped_memory_ranges(
    device: vk::Device,
    count: u32,
    ranges: *const vk::MappedMemoryRange<'_>,
) -> vk::Result {
    const CALL: &str = "vkFlushMappedMemoryRanges";
    // SAFETY: the caller's arguments are those of the function.
    unsafe {
        let device = match enter(device, CALL) {
            Ok(device) => device,
            Err(code) => return code,
        };
        array(ranges, count).iter().for_each(|range| synchronise(&device, range, CALL, Copied::flush));
        (device.raw.fp_v1_0().flush_mapped_memory_ranges)(device.handle(), count, ranges)
    }
}

unsafe extern "system" fn invalidate_mapped_memory_ranges(
    device: vk::Device,
    count: u32,
    ranges: *const vk::MappedMemoryRange<'_>,
) -> vk::Result {
    const CALL: &str = "vkInvalidateMappedMemoryRanges";
    // SAFETY: the caller's arguments are those of the function.
    unsafe {
        let device = match enter(device, CALL) {
            Ok(device) => device,
            Err(code) => return code,
        };
        let code = (device.raw.fp_v1_0().invalidate_mapped_memory_ranges)(device.handle(), count, ranges);
        array(ranges, count).iter().for_each(|range| synchronise(&device, range, CALL, Copied::invalidate));
        code
    }
}

/// Moves the bytes of a range between a copy and the device, and checks the range.
///
/// # Safety
/// As for `by`.
unsafe fn synchronise(
    device: &DeviceState,
    range: &vk::MappedMemoryRange<'_>,
    call: &str,
    by: unsafe fn(&mut Copied, usize, usize),
) {
    let mut allocations = locked(&device.allocations);
    let Some(allocation) = allocations.get_mut(&range.memory.as_raw()) else {
        return device.state.complain(format!("{call} of memory that there is not"));
    };
    let whole = allocation.size;
    let Some(mapped) = &mut allocation.mapped else {
        return device.state.complain(format!("{call} of memory that is not mapped"));
    };
    let end_of_mapping = mapped.offset + mapped.size;
    let end = if range.size == vk::WHOLE_SIZE { end_of_mapping } else { range.offset.saturating_add(range.size) };
    let (start, atom) = (range.offset, device.limits.non_coherent_atom_size.max(1));
    if start < mapped.offset || end > end_of_mapping || start > end {
        let (from, to) = (mapped.offset, end_of_mapping);
        return device.state.complain(format!("{call} of bytes {start}..{end}, where {from}..{to} are mapped"));
    }
    let ends_well = range.size == vk::WHOLE_SIZE || range.size.is_multiple_of(atom) || end == whole;
    if !start.is_multiple_of(atom) || !ends_well {
        device.state.complain(format!("{call} of bytes {start}..{end}, not multiples of {atom}"));
    }
    if let Some(copy) = &mut mapped.copy {
        // SAFETY: as the caller promises.
        unsafe { by(copy, (start - mapped.offset) as usize, (end - mapped.offset) as usize) };
    }
}

unsafe extern "system" fn buffer_requirements(
    device: vk::Device,
    buffer: vk::Buffer,
    out: *mut vk::MemoryRequirements,
) {
    let Ok(device) = enter(device, "vkGetBufferMemoryRequirements") else { return };
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        (device.raw.fp_v1_0().get_buffer_memory_requirements)(device.handle(), buffer, out);
        (*out).memory_type_bits = device.memory.bits((*out).memory_type_bits);
    }
}

unsafe extern "system" fn buffer_requirements2(
    device: vk::Device,
    info: *const vk::BufferMemoryRequirementsInfo2<'_>,
    out: *mut vk::MemoryRequirements2<'_>,
) {
    let Ok(device) = enter(device, "vkGetBufferMemoryRequirements2") else { return };
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        (device.raw.fp_v1_1().get_buffer_memory_requirements2)(device.handle(), info, out);
        let bits = &mut (*out).memory_requirements.memory_type_bits;
        *bits = device.memory.bits(*bits);
    }
}

unsafe extern "system" fn get_memory_fd(
    device: vk::Device,
    info: *const vk::MemoryGetFdInfoKHR<'_>,
    out: *mut c_int,
) -> vk::Result {
    match enter(device, "vkGetMemoryFdKHR") {
        // SAFETY: a device that lives; the caller's arguments are those of the function.
        Ok(device) => unsafe { (device.memory_fd.fp().get_memory_fd_khr)(device.handle(), info, out) },
        Err(code) => code,
    }
}

unsafe extern "system" fn get_memory_fd_properties(
    device: vk::Device,
    kind: vk::ExternalMemoryHandleTypeFlags,
    fd: c_int,
    out: *mut vk::MemoryFdPropertiesKHR<'_>,
) -> vk::Result {
    let device = match enter(device, "vkGetMemoryFdPropertiesKHR") {
        Ok(device) => device,
        Err(code) => return code,
    };
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        let code = (device.memory_fd.fp().get_memory_fd_properties_khr)(device.handle(), kind, fd, out);
        if code == vk::Result::SUCCESS {
            (*out).memory_type_bits = device.memory.bits((*out).memory_type_bits);
        }
        code
    }
}

unsafe extern "system" fn get_memory_host_pointer_properties(
    device: vk::Device,
    kind: vk::ExternalMemoryHandleTypeFlags,
    pointer: *const c_void,
    out: *mut vk::MemoryHostPointerPropertiesEXT<'_>,
) -> vk::Result {
    let device = match enter(device, "vkGetMemoryHostPointerPropertiesEXT") {
        Ok(device) => device,
        Err(code) => return code,
    };
    let functions = device.memory_host.fp();
    // SAFETY: a device that lives; the caller's arguments are those of the function.
    unsafe {
        let code = (functions.get_memory_host_pointer_properties_ext)(device.handle(), kind, pointer, out);
        if code == vk::Result::SUCCESS {
            (*out).memory_type_bits = device.memory.bits((*out).memory_type_bits);
        }
        code
    }
}
