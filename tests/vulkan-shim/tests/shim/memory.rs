//! Memory types and heaps that a plan makes up.

use ash::vk::{self, MemoryPropertyFlags as Flags};
use trunnion_vulkan_shim::Plan;

use crate::program::{Program, assert_clean, shim};

/// Device memory the host does not reach, and host memory that is not coherent.
fn split() -> Plan {
    Plan::new()
        .heaps([(1 << 20, vk::MemoryHeapFlags::DEVICE_LOCAL), (1 << 20, vk::MemoryHeapFlags::empty())])
        .memory_types([(Flags::DEVICE_LOCAL, 0), (Flags::HOST_VISIBLE | Flags::HOST_CACHED, 1)])
        .limits(|limits| limits.non_coherent_atom_size = 64)
}

#[test]
fn memory_has_the_types_and_heaps_of_the_plan() {
    let Some(shim) = shim(split()) else { return };
    unsafe {
        let program = Program::new(&shim);
        let said = program.instance.get_physical_device_memory_properties(program.physical);
        assert_eq!((said.memory_type_count, said.memory_heap_count), (2, 2));
        assert_eq!(said.memory_types[0].property_flags, Flags::DEVICE_LOCAL);
        assert_eq!(said.memory_heaps[1].size, 1 << 20);
        program.end();
    }
    assert_clean(&shim);
}

#[test]
fn memory_that_is_not_host_visible_is_not_mapped() {
    let Some(shim) = shim(split()) else { return };
    unsafe {
        let program = Program::new(&shim);
        let piece = program.piece(64, 0);
        let mapped = program.device.map_memory(piece.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty());
        assert_eq!(mapped, Err(vk::Result::ERROR_MEMORY_MAP_FAILED));
        program.free(piece);
        program.end();
    }
    assert_eq!(shim.complaints(), ["vkMapMemory of memory that is not host-visible"]);
}

#[test]
fn memory_that_is_not_coherent_needs_flushes_and_invalidations() {
    let Some(shim) = shim(split()) else { return };
    unsafe {
        let program = Program::new(&shim);
        let piece = program.piece(128, 1);
        let at = program.device.map_memory(piece.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()).unwrap();
        let at = at.cast::<u32>();
        let range = [vk::MappedMemoryRange::default().memory(piece.memory).size(64)];
        let set = program.set(piece.buffer);
        let commands = program.commands(|device, commands| {
            device.cmd_bind_pipeline(commands, vk::PipelineBindPoint::COMPUTE, program.pipeline);
            device.cmd_bind_descriptor_sets(commands, vk::PipelineBindPoint::COMPUTE, program.layout, 0, &[set], &[]);
            device.cmd_dispatch(commands, 2, 1, 1);
        });
        at.write(5);
        program.device.flush_mapped_memory_ranges(&range).unwrap();
        at.add(1).write(100);
        program.submit(&[commands], None, 1).unwrap();
        program.wait(1).unwrap();
        assert_eq!(at.read(), 5, "not seen before the invalidation");
        program.device.invalidate_mapped_memory_ranges(&range).unwrap();
        assert_eq!(at.read(), 6);
        assert_ne!(at.add(1).read(), 101, "written after the flush, so the device never had it");
        program.device.unmap_memory(piece.memory);
        program.free(piece);
        program.end();
    }
    assert_clean(&shim);
}

#[test]
fn ranges_beside_the_mapping_and_the_atom_are_complaints() {
    let Some(shim) = shim(split()) else { return };
    unsafe {
        let program = Program::new(&shim);
        let piece = program.piece(256, 1);
        let range = |offset, size| [vk::MappedMemoryRange::default().memory(piece.memory).offset(offset).size(size)];
        program.device.flush_mapped_memory_ranges(&range(0, 64)).unwrap();
        program.device.map_memory(piece.memory, 0, 128, vk::MemoryMapFlags::empty()).unwrap();
        program.device.flush_mapped_memory_ranges(&range(64, 64)).unwrap();
        program.device.flush_mapped_memory_ranges(&range(4, 64)).unwrap();
        program.device.invalidate_mapped_memory_ranges(&range(128, 64)).unwrap();
        program.device.unmap_memory(piece.memory);
        program.free(piece);
        program.end();
    }
    assert_eq!(
        shim.complaints(),
        [
            "vkFlushMappedMemoryRanges of memory that is not mapped",
            "vkFlushMappedMemoryRanges of bytes 4..68, not multiples of 64",
            "vkInvalidateMappedMemoryRanges of bytes 128..192, where 0..128 are mapped",
        ]
    );
}

#[test]
fn a_heap_gives_no_more_than_its_size_and_a_device_no_more_than_its_allocations() {
    let plan = split().limits(|limits| limits.max_memory_allocation_count = 2);
    let Some(shim) = shim(plan) else { return };
    unsafe {
        let program = Program::new(&shim);
        let ask = |size, kind| {
            let info = vk::MemoryAllocateInfo::default().allocation_size(size).memory_type_index(kind);
            program.device.allocate_memory(&info, None)
        };
        let first = ask(768 << 10, 0).unwrap();
        assert_eq!(ask(512 << 10, 0), Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY));
        let second = ask(512 << 10, 1).unwrap();
        assert_eq!(ask(64, 1), Err(vk::Result::ERROR_TOO_MANY_OBJECTS));
        program.device.free_memory(first, None);
        let third = ask(512 << 10, 0).unwrap();
        [second, third].into_iter().for_each(|memory| program.device.free_memory(memory, None));
        program.end();
    }
    assert_clean(&shim);
}
