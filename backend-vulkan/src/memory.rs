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
    /// pages are in memory that both reach, coherent and cached.
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
            let (_, kind, index) = rated
                .min_by_key(|(worth, kind, index)| (core::cmp::Reverse((*worth, size(kind.heap_index))), *index))?;
            Some(MemoryType {
                index,
                heap: kind.heap_index,
                host_visible: kind.property_flags.contains(Flags::HOST_VISIBLE),
                coherent: kind.property_flags.contains(Flags::HOST_COHERENT),
                cached: kind.property_flags.contains(Flags::HOST_CACHED),
            })
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
const VISIBLE: [(Flags, u32); 3] = [(Flags::HOST_VISIBLE, 4), (Flags::HOST_COHERENT, 2), (Flags::HOST_CACHED, 1)];

fn points(flags: Flags, worth: &[(Flags, u32)]) -> u32 {
    worth.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, points)| points).sum()
}
