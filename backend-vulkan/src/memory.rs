//! Which of a device's memory types serves which purpose: a choice over what the device lists, without any call.

use ash::vk;
use vk::MemoryPropertyFlags as Flags;

/// A memory type, and what it is to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryType {
    /// Its index.
    pub(crate) index: u32,
    /// The heap its memory comes from.
    pub(crate) heap: u32,
    /// Whether the host can map it.
    pub(crate) host_visible: bool,
    /// Whether host and device see each other's writes without a flush.
    pub(crate) coherent: bool,
    /// Whether the host reads it through its caches.
    pub(crate) cached: bool,
}

impl MemoryType {
    /// The type with this index, where there is one.
    pub(crate) fn of(memory: &vk::PhysicalDeviceMemoryProperties, index: u32) -> Option<Self> {
        memory.memory_types_as_slice().get(index as usize).map(|kind| Self {
            index,
            heap: kind.heap_index,
            host_visible: kind.property_flags.contains(Flags::HOST_VISIBLE),
            coherent: kind.property_flags.contains(Flags::HOST_COHERENT),
            cached: kind.property_flags.contains(Flags::HOST_CACHED),
        })
    }
}

/// The memory types a device is driven with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryTypes {
    /// What pages are made of.
    pub(crate) page: MemoryType,
    /// What bytes go through on their way to the device: always coherent.
    pub(crate) upload: MemoryType,
    /// What bytes go through on their way back: cached where there is such memory.
    pub(crate) download: MemoryType,
    /// What page-locked memory is made of, which the host reads and writes: always coherent, cached where there is such memory.
    pub(crate) pinned: MemoryType,
    /// Bytes of the heap that pages come from.
    pub(crate) heap_size: u64,
    /// Whether pages are mapped, so that the host reaches their bytes in place.
    pub(crate) host_visible: bool,
}

/// Memory that needs a feature of its own, or that a buffer cannot be bound to.
const SPECIAL: Flags = Flags::from_raw(
    Flags::PROTECTED.as_raw()
        | Flags::LAZILY_ALLOCATED.as_raw()
        | Flags::DEVICE_COHERENT_AMD.as_raw()
        | Flags::DEVICE_UNCACHED_AMD.as_raw()
        | Flags::RDMA_CAPABLE_NV.as_raw(),
);

impl MemoryTypes {
    /// The types for buffers whose requirements allow `page_bits` and `staging_bits`. `unified` says that the device works in the host's
    /// memory; with `staged`, pages are not mapped whatever their memory is.
    ///
    /// Where the device has memory of its own, pages are in the largest heap of it and not mapped, even where the host could: what is
    /// written over the bus piecemeal, and read uncached, is slower than a copy by the device. Where it shares the host's memory,
    /// pages are in memory that both reach: cached, so that it can be read in place, and coherent where there is such memory.
    ///
    /// `None` where a purpose has no type, which the API rules out.
    pub(crate) fn choose(
        memory: &vk::PhysicalDeviceMemoryProperties,
        (page_bits, staging_bits): (u32, u32),
        unified: bool,
        staged: bool,
    ) -> Option<Self> {
        let size = |heap: u32| memory.memory_heaps_as_slice().get(heap as usize).map_or(0, |heap| heap.size);
        let best = |bits: u32, worth: &dyn Fn(Flags) -> Option<u32>| {
            let types = memory.memory_types_as_slice().iter().zip(0_u32..);
            let known =
                types.filter(|(kind, index)| bits & (1 << index) != 0 && !kind.property_flags.intersects(SPECIAL));
            let rated = known.filter_map(|(kind, index)| Some((worth(kind.property_flags)?, kind, index)));
            // Of equals the first, which the driver lists because it performs best.
            let (_, _, index) = rated
                .min_by_key(|(worth, kind, index)| (core::cmp::Reverse((*worth, size(kind.heap_index))), *index))?;
            MemoryType::of(memory, index)
        };

        let page = best(page_bits, &|flags| {
            let local = points(flags, &[(Flags::DEVICE_LOCAL, 8)]);
            Some(local + if unified { points(flags, &VISIBLE) } else { 0 })
        })?;
        // The device's own memory is the scarcer one, also where the host can map it.
        let staging = |wanted: Flags, prefer: [(Flags, u32); 2]| {
            let elsewhere = move |flags: Flags| u32::from(unified || !flags.contains(Flags::DEVICE_LOCAL)) * 8;
            best(staging_bits, &move |flags| flags.contains(wanted).then(|| elsewhere(flags) + points(flags, &prefer)))
        };
        let shared = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let upload = staging(shared, [(Flags::HOST_COHERENT, 1), (Flags::HOST_COHERENT, 1)])?;
        let download = staging(Flags::HOST_VISIBLE, [(Flags::HOST_CACHED, 16), (Flags::HOST_COHERENT, 1)])?;
        let pinned = staging(shared, [(Flags::HOST_CACHED, 16), (Flags::HOST_COHERENT, 1)])?;
        // Uncached memory is read in place only where there is nothing better to copy to.
        let readable = page.cached || !download.cached;
        let host_visible = unified && !staged && page.host_visible && readable;
        Some(Self { page, upload, download, pinned, heap_size: size(page.heap), host_visible })
    }
}

/// What makes memory that both reach better, most important first.
const VISIBLE: [(Flags, u32); 3] = [(Flags::HOST_VISIBLE, 4), (Flags::HOST_CACHED, 2), (Flags::HOST_COHERENT, 1)];

fn points(flags: Flags, worth: &[(Flags, u32)]) -> u32 {
    worth.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, points)| points).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Flags = Flags::DEVICE_LOCAL;
    const VISIBLE: Flags = Flags::HOST_VISIBLE;
    const COHERENT: Flags = Flags::HOST_COHERENT;
    const CACHED: Flags = Flags::HOST_CACHED;

    /// A device with heaps of so many MiB and types of these heaps.
    fn device(heaps: &[u64], types: &[(usize, Flags)]) -> vk::PhysicalDeviceMemoryProperties {
        let mut memory = vk::PhysicalDeviceMemoryProperties {
            memory_heap_count: heaps.len() as u32,
            memory_type_count: types.len() as u32,
            ..Default::default()
        };
        for (heap, size) in memory.memory_heaps.iter_mut().zip(heaps) {
            heap.size = size << 20;
        }
        for (kind, (heap, flags)) in memory.memory_types.iter_mut().zip(types) {
            (kind.heap_index, kind.property_flags) = (*heap as u32, *flags);
        }
        memory
    }

    /// The types for pages, upload, download and page-locked memory, and whether pages are mapped.
    fn chosen(memory: &vk::PhysicalDeviceMemoryProperties, unified: bool) -> ([u32; 4], bool) {
        let types = MemoryTypes::choose(memory, (u32::MAX, u32::MAX), unified, false).unwrap();
        ([types.page, types.upload, types.download, types.pinned].map(|kind| kind.index), types.host_visible)
    }

    #[test]
    fn a_device_with_memory_of_its_own_keeps_its_pages_there() {
        let small_window = device(
            &[8192, 16384, 256],
            &[
                (1, Flags::empty()),
                (0, LOCAL),
                (1, VISIBLE | COHERENT),
                (1, VISIBLE | COHERENT | CACHED),
                (2, LOCAL | VISIBLE | COHERENT),
            ],
        );
        assert_eq!(chosen(&small_window, false), ([1, 2, 3, 3], false));
        // All of it within the host's reach: still copied to, and not mapped.
        let all_visible = device(
            &[8192, 16384],
            &[(0, LOCAL), (0, LOCAL | VISIBLE | COHERENT), (1, VISIBLE | COHERENT), (1, VISIBLE | CACHED)],
        );
        assert_eq!(chosen(&all_visible, false), ([0, 2, 3, 2], false));
        let nothing_else = device(&[8192], &[(0, LOCAL | VISIBLE | COHERENT)]);
        assert_eq!(chosen(&nothing_else, false), ([0; 4], false));
    }

    #[test]
    fn a_device_in_the_hosts_memory_has_pages_both_reach() {
        let one = device(&[2048], &[(0, LOCAL | VISIBLE | COHERENT | CACHED)]);
        assert_eq!(chosen(&one, true), ([0; 4], true));
        let uncached_first =
            device(&[8192], &[(0, LOCAL), (0, LOCAL | VISIBLE | COHERENT), (0, LOCAL | VISIBLE | COHERENT | CACHED)]);
        assert_eq!(chosen(&uncached_first, true), ([2, 1, 2, 2], true));
        let needs_flushes = device(&[4096], &[(0, LOCAL | VISIBLE | CACHED), (0, LOCAL | VISIBLE | COHERENT)]);
        let types = MemoryTypes::choose(&needs_flushes, (3, 3), true, false).unwrap();
        assert_eq!((types.page.index, types.page.coherent), (0, false));
        assert_eq!(chosen(&needs_flushes, true), ([0, 1, 0, 1], true));
        // What is uncached is not read in place where it can be copied to memory that is cached.
        let cached_elsewhere = device(&[4096], &[(0, LOCAL | VISIBLE | COHERENT), (0, VISIBLE | COHERENT | CACHED)]);
        assert_eq!(chosen(&cached_elsewhere, true), ([0, 0, 1, 1], false));
    }

    #[test]
    fn the_largest_of_several_heaps_is_taken_and_the_first_of_equals() {
        let two = device(&[512, 4096, 4096], &[(0, LOCAL), (1, LOCAL), (2, LOCAL), (0, VISIBLE | COHERENT)]);
        let types = MemoryTypes::choose(&two, (7, 8), false, false).unwrap();
        assert_eq!((types.page.index, types.page.heap, types.heap_size), (1, 1, 4096 << 20));
    }

    #[test]
    fn types_the_buffers_cannot_have_and_special_ones_are_left_out() {
        let memory = device(
            &[1024],
            &[
                (0, LOCAL | VISIBLE | COHERENT | CACHED | Flags::PROTECTED),
                (0, LOCAL | Flags::LAZILY_ALLOCATED),
                (0, LOCAL | VISIBLE | COHERENT | CACHED),
                (0, VISIBLE | COHERENT),
            ],
        );
        assert_eq!(chosen(&memory, true).0, [2; 4]);
        let only_last = MemoryTypes::choose(&memory, (8, 8), true, false).unwrap();
        assert_eq!((only_last.page.index, only_last.host_visible), (3, true));
        assert_eq!(MemoryTypes::choose(&memory, (1, 8), true, false), None);
        assert_eq!(MemoryTypes::choose(&memory, (8, 3), true, false), None);
    }

    #[test]
    fn with_staging_forced_pages_are_not_mapped_whatever_they_are() {
        let one = device(&[2048], &[(0, LOCAL | VISIBLE | COHERENT | CACHED)]);
        let types = MemoryTypes::choose(&one, (1, 1), true, true).unwrap();
        assert!(!types.host_visible && types.page.host_visible);
    }
}
