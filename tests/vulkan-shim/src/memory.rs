//! The memory a device says it has, and what lies behind it.
//!
//! A plan's memory types are each backed by a real one. Memory of a type that is host-visible and not coherent is mapped as a copy of
//! the real bytes: what the host writes reaches the device by a flush, what the device writes reaches the host by an invalidation,
//! and by nothing else. A flush moves the bytes of its range that the host changed since the copy last agreed with the device.

use core::alloc::Layout;

use alloc::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use alloc::vec::Vec;
use ash::vk;

use crate::plan::Plan;

/// The memory a device says it has.
#[derive(Clone, Debug)]
pub(crate) struct MemoryView {
    pub(crate) said: vk::PhysicalDeviceMemoryProperties,
    /// The real type behind each.
    backing: Vec<u32>,
    /// Whether types are the plan's.
    pub(crate) planned: bool,
    /// Whether heaps are the plan's, which give no more than their size.
    pub(crate) bounded: bool,
}

impl MemoryView {
    pub(crate) fn new(plan: &Plan, real: &vk::PhysicalDeviceMemoryProperties) -> Self {
        let mut said = *real;
        let mut backing: Vec<u32> = (0..real.memory_type_count).collect();
        if !plan.heaps.is_empty() {
            said.memory_heap_count = plan.heaps.len() as u32;
            said.memory_heaps[..plan.heaps.len()].copy_from_slice(&plan.heaps);
        }
        if !plan.memory_types.is_empty() {
            said.memory_type_count = plan.memory_types.len() as u32;
            said.memory_types[..plan.memory_types.len()].copy_from_slice(&plan.memory_types);
            let types = real.memory_types_as_slice();
            let suits = |flags| types.iter().position(|real| real.property_flags.contains(flags)).unwrap_or(0) as u32;
            backing = plan.memory_types.iter().map(|planned| suits(planned.property_flags)).collect();
        }
        Self { said, backing, planned: !plan.memory_types.is_empty(), bounded: !plan.heaps.is_empty() }
    }

    /// The real type behind one.
    pub(crate) fn real(&self, said: u32) -> Option<u32> {
        self.backing.get(said as usize).copied()
    }

    /// A set of real types, as the types that are said.
    pub(crate) fn bits(&self, real: u32) -> u32 {
        let suits = |index: &u32| real & (1 << self.backing[*index as usize]) != 0;
        (0..self.said.memory_type_count).filter(suits).fold(0, |bits, index| bits | 1 << index)
    }

    pub(crate) fn flags(&self, said: u32) -> vk::MemoryPropertyFlags {
        self.said
            .memory_types_as_slice()
            .get(said as usize)
            .map_or(vk::MemoryPropertyFlags::empty(), |t| t.property_flags)
    }

    pub(crate) fn heap(&self, said: u32) -> u32 {
        self.said.memory_types_as_slice().get(said as usize).map_or(0, |memory_type| memory_type.heap_index)
    }

    /// Whether memory of a type is mapped as a copy.
    pub(crate) fn is_copied(&self, said: u32) -> bool {
        let flags = self.flags(said);
        self.planned
            && flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE)
            && !flags.contains(vk::MemoryPropertyFlags::HOST_COHERENT)
    }
}

/// Memory that was allocated.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) size: u64,
    /// The type, as it was said.
    pub(crate) said: u32,
    /// The bytes that are mapped.
    pub(crate) mapped: Option<Mapped>,
}

/// A mapping.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// The copy that the host sees.
    pub(crate) copy: Option<Copied>,
}

/// A copy of mapped bytes.
#[derive(Debug)]
pub(crate) struct Copied {
    /// What the host reads and writes.
    host: *mut u8,
    /// What both agreed on last.
    agreed: Vec<u8>,
    /// What the device reads and writes.
    device: *mut u8,
}

// SAFETY: the pointers are of memory that this owns (`host`) or that stays mapped as long as this is there (`device`); which bytes are
// touched when is for callers of `flush` and `invalidate`, as Vulkan has it.
unsafe impl Send for Copied {}

/// What a driver aligns a mapping to, at least.
const ALIGNMENT: usize = 4096;

impl Copied {
    /// A copy of `size` bytes at `device`.
    ///
    /// # Safety
    /// They stay mapped until this is dropped.
    pub(crate) unsafe fn new(device: *mut u8, size: usize) -> Self {
        // SAFETY: mapped, as the caller promises.
        let agreed = unsafe { core::slice::from_raw_parts(device, size) }.to_vec();
        let layout = Self::layout(size);
        // SAFETY: the layout is not empty.
        let host = unsafe { alloc_zeroed(layout) };
        if host.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: both are `size` bytes, and one of them is new.
        unsafe { host.copy_from_nonoverlapping(agreed.as_ptr(), size) };
        Self { host, agreed, device }
    }

    fn layout(size: usize) -> Layout {
        // A mapping lies within what the driver could map, which is far below what a layout can say.
        Layout::from_size_align(size.max(1), ALIGNMENT).unwrap_or(Layout::new::<u8>())
    }

    /// What the host sees.
    pub(crate) fn host(&self) -> *mut u8 {
        self.host
    }

    /// What the host wrote there reaches the device.
    ///
    /// # Safety
    /// Nobody writes these bytes meanwhile.
    pub(crate) unsafe fn flush(&mut self, start: usize, end: usize) {
        for at in start..end.min(self.agreed.len()) {
            // SAFETY: within both, which have as many bytes as `agreed`.
            unsafe {
                let byte = self.host.add(at).read();
                if byte != self.agreed[at] {
                    self.agreed[at] = byte;
                    self.device.add(at).write(byte);
                }
            }
        }
    }

    /// What the device wrote there reaches the host.
    ///
    /// # Safety
    /// As for `flush`.
    pub(crate) unsafe fn invalidate(&mut self, start: usize, end: usize) {
        let end = end.min(self.agreed.len());
        for at in start..end {
            // SAFETY: as in `flush`.
            unsafe {
                self.agreed[at] = self.device.add(at).read();
                self.host.add(at).write(self.agreed[at]);
            }
        }
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.host, Self::layout(self.agreed.len())) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_move_only_by_flush_and_invalidation() {
        let mut device = [1_u8, 2, 3, 4];
        let at = device.as_mut_ptr();
        // SAFETY: `device` outlives the copy, and only this thread touches either.
        unsafe {
            let mut copy = Copied::new(at, 4);
            copy.host().add(1).write(20);
            at.add(2).write(30);
            assert_eq!((at.add(1).read(), copy.host().add(2).read()), (2, 3), "nothing moved yet");
            copy.flush(0, 4);
            assert_eq!((at.add(1).read(), at.add(2).read()), (20, 30), "a flush leaves what the host did not write");
            copy.invalidate(0, 4);
            assert_eq!(copy.host().add(2).read(), 30);
        }
    }

    #[test]
    fn planned_types_are_backed_by_real_ones() {
        use vk::MemoryPropertyFlags as Flags;
        let mut real = vk::PhysicalDeviceMemoryProperties { memory_type_count: 2, ..Default::default() };
        real.memory_types[0].property_flags = Flags::DEVICE_LOCAL;
        real.memory_types[1].property_flags = Flags::DEVICE_LOCAL | Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let plan = Plan::new().memory_types([
            (Flags::DEVICE_LOCAL, 0),
            (Flags::HOST_VISIBLE, 0),
            (Flags::LAZILY_ALLOCATED, 0),
        ]);
        let view = MemoryView::new(&plan, &real);
        assert_eq!([view.real(0), view.real(1), view.real(2), view.real(3)], [Some(0), Some(1), Some(0), None]);
        assert_eq!(view.bits(0b10), 0b010);
        assert_eq!(view.bits(0b01), 0b101);
        assert!(view.is_copied(1) && !view.is_copied(0));
    }
}
