//! Devices with other memory: not coherent, apart from the host's, and less of it.

use crate::bench::{each, outline};
use crate::scenario::run;
use trunnion_backend_vulkan::VulkanOptions;
use trunnion_backend_vulkan::ash::vk::{MemoryHeapFlags, MemoryPropertyFlags as Flags, PhysicalDeviceType};
use trunnion_runtime_core::error::Error;
use trunnion_vulkan_shim::Plan;

const LOCAL: Flags = Flags::DEVICE_LOCAL;
const VISIBLE: Flags = Flags::HOST_VISIBLE;
const COHERENT: Flags = Flags::HOST_COHERENT;
const CACHED: Flags = Flags::HOST_CACHED;

/// A card: memory of its own that the host does not reach, and two kinds of the host's.
fn card() -> Plan {
    Plan::new()
        .properties(|said| said.device_type = PhysicalDeviceType::DISCRETE_GPU)
        .heaps([(256 << 20, MemoryHeapFlags::DEVICE_LOCAL), (1 << 30, MemoryHeapFlags::empty())])
        .memory_types([(LOCAL, 0), (VISIBLE | COHERENT, 1), (VISIBLE | CACHED, 1)])
        .limits(|limits| limits.non_coherent_atom_size = 64)
}

#[test]
fn on_a_card_bytes_go_through_staging_and_downloads_are_invalidated() {
    each(card, &VulkanOptions::default(), |bench| {
        run(&bench.client).assert_whole("a card");
        assert!(bench.shim.calls("vkInvalidateMappedMemoryRanges") > 0, "what the host reads is cached");
        let buffer = bench.buffer(&[0; 64]);
        let batch = bench.batch(|client| drop(client.write_slice(&buffer, &[7; 256])));
        assert_eq!(outline(&batch), "copy");
        assert_eq!(bench.read(&buffer), [0x0707_0707; 64]);
    });
}

#[test]
fn memory_that_both_reach_and_is_not_coherent_is_flushed_and_invalidated() {
    let plan = || {
        Plan::new()
            .memory_types([(LOCAL | VISIBLE | CACHED, 0), (VISIBLE | COHERENT, 0)])
            .limits(|limits| limits.non_coherent_atom_size = 256)
    };
    each(plan, &VulkanOptions::default(), |bench| {
        run(&bench.client).assert_whole("memory that is not coherent");
        assert!(bench.shim.calls("vkFlushMappedMemoryRanges") > 0);
        assert!(bench.shim.calls("vkInvalidateMappedMemoryRanges") > 0);
        // In place as well: large enough that the caller copies.
        let bytes: Vec<u8> = (0..3 << 20).map(|i: u32| (i % 251) as u8).collect();
        let large = bench.client.create_from_slice(&bytes).unwrap();
        let copy = bench.client.empty(bytes.len() as u64).unwrap();
        bench.client.copy(&large, &copy).unwrap();
        let mut back = vec![0; bytes.len()];
        bench.client.read_into(&copy, &mut back).unwrap();
        assert!(back == bytes);
    });
}

#[test]
fn what_shares_an_atom_with_others_bytes_is_written_by_the_device() {
    let plan = || {
        Plan::new()
            .memory_types([(LOCAL | VISIBLE | CACHED, 0), (VISIBLE | COHERENT, 0)])
            .limits(|limits| limits.non_coherent_atom_size = 256)
    };
    each(plan, &VulkanOptions::default(), |bench| {
        let buffer = bench.buffer(&[0; 256]);
        let part = |start: u64, end: u64| buffer.slice(start..end).unwrap();
        let flushed_by = |write: &dyn Fn()| {
            bench.settle();
            let before = bench.shim.calls("vkFlushMappedMemoryRanges");
            write();
            bench.settle();
            bench.shim.calls("vkFlushMappedMemoryRanges") - before
        };
        // Neighbours, which nothing orders.
        let small = flushed_by(&|| {
            for (start, end) in [(0, 4), (4, 8), (8, 256), (300, 512)] {
                bench.client.write_slice(&part(start, end), &vec![start as u8 + 1; (end - start) as usize]).unwrap();
            }
        });
        assert_eq!(small, 0, "a flush would hand over a neighbour's bytes as they were");
        let whole = flushed_by(&|| {
            bench.client.write_slice(&part(512, 1024), &[9; 512]).unwrap();
        });
        assert!(whole > 0, "whole atoms are written in place");
        let words = bench.read(&buffer);
        assert_eq!((words[0], words[1], words[2], words[63]), (0x0101_0101, 0x0505_0505, 0x0909_0909, 0x0909_0909));
        assert_eq!((words[74], words[75], words[127], words[128]), (0, 0x2d2d_2d2d, 0x2d2d_2d2d, 0x0909_0909));
    });
}

#[test]
fn a_heap_that_is_full_is_out_of_memory_with_the_numbers() {
    let plan = || card().heaps([(8 << 20, MemoryHeapFlags::DEVICE_LOCAL), (1 << 30, MemoryHeapFlags::empty())]);
    each(plan, &VulkanOptions::default(), |bench| {
        let held: Vec<_> = (0..12).map(|_| bench.client.create_from_slice(&vec![1; 1 << 20])).collect();
        let failed = held.iter().flatten().filter_map(|handle| bench.client.read_one(handle).err());
        let failed: Vec<Error> = failed.chain(held.iter().filter_map(|made| made.as_ref().err().cloned())).collect();
        assert!(!failed.is_empty(), "12 MiB do not fit 8");
        for error in &failed {
            assert!(format!("{error:?}").contains("requested: 1048576"), "{error:?}");
        }
        drop(held);
        bench.settle();
        let again = bench.client.create_from_slice(&vec![9; 1 << 20]).unwrap();
        assert_eq!(bench.read(&again)[0], 0x0909_0909, "what was given back is there again");
    });
}

#[test]
fn as_many_allocations_are_made_as_the_device_allows_and_all_of_them_can_be_read() {
    let plan = || Plan::new().limits(|limits| limits.max_memory_allocation_count = 12);
    each(plan, &VulkanOptions::default(), |bench| {
        let client = &bench.client;
        let made = || client.memory_dedicated_allocation(|| client.create_from_slice(&[1; 4096]));
        let held: Vec<_> = (0..16).map(|_| made().unwrap()).collect();
        let refused: Vec<Error> = held.iter().filter_map(|handle| client.read_one(handle).err()).collect();
        assert!(refused.len() > 2 && refused.len() < 16, "{refused:?}");
        for error in &refused {
            assert!(
                format!("{error:?}")
                    .contains("the device has 9 allocations of at most 12, of which 3 are kept for transfers"),
                "{error:?}"
            );
        }
        drop(held);
        bench.settle();
        assert!(client.read_one(&made().unwrap()).is_ok(), "what was given back is there again");
    });
}
