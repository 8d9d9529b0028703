//! Bytes of mapped memory: copied in and out by the host, and handed over where host and device do not see each other's writes by themselves.
//!
//! What the `unsafe` here rests on: a mapping lasts as long as its memory, and every copy through it is checked against its size.

use crate::allocation::Allocation;
use crate::failure::failed;
use ash::vk;
use core::ops::Range;
use core::ptr::{self, NonNull};
use trunnion_runtime_core::error::{Error, Result};

impl Allocation {
    /// Where bytes `offset..offset + length` are for the host.
    fn reach(&self, what: &'static str, offset: u64, length: usize) -> Result<NonNull<u8>> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= self.size());
        match (self.mapped(), end) {
            // SAFETY: the mapping is `size` bytes long, and the offset lies within it.
            (Some(start), Some(_)) => Ok(unsafe { start.add(offset as usize) }),
            _ => {
                let size = if self.mapped().is_some() { self.size() } else { 0 };
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
        unsafe { self.device().raw.flush_mapped_memory_ranges(&[range]) }
            .map_err(|result| failed("vkFlushMappedMemoryRanges", result))
    }

    /// Hands the device's writes to mapped bytes to the host. Nothing where the memory is coherent.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn invalidate(&self, bytes: Range<u64>) -> Result<()> {
        let Some(range) = self.atoms(bytes) else { return Ok(()) };
        // SAFETY: the range is aligned, and within memory that is mapped.
        unsafe { self.device().raw.invalidate_mapped_memory_ranges(&[range]) }
            .map_err(|result| failed("vkInvalidateMappedMemoryRanges", result))
    }

    /// Whether the host may write these bytes in place beside others who use what lies next to them: memory that is not coherent is handed
    /// over in whole atoms, and a neighbour's bytes in one would be handed over with them, as they were.
    pub(crate) fn is_apart(&self, bytes: Range<u64>) -> bool {
        let atom = self.atom();
        let ends = bytes.end.is_multiple_of(atom) || bytes.end == self.size() && !self.is_foreign();
        self.is_coherent() || bytes.start.is_multiple_of(atom) && ends
    }

    fn atom(&self) -> u64 {
        self.device().limits.non_coherent_atom_size.max(1)
    }

    /// The whole atoms that hold these bytes, where they must be flushed at all.
    fn atoms(&self, bytes: Range<u64>) -> Option<vk::MappedMemoryRange<'static>> {
        if self.is_coherent() || self.mapped().is_none() || bytes.start >= bytes.end {
            return None;
        }
        let atom = self.atom();
        let start = bytes.start / atom * atom;
        // The last atom may be cut off by the end of the memory, which only the whole rest can say.
        let end = bytes.end.div_ceil(atom).saturating_mul(atom);
        let size = if end < self.made_as().size { end - start } else { vk::WHOLE_SIZE };
        Some(vk::MappedMemoryRange::default().memory(self.memory()).offset(start).size(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::VulkanOptions;
    use crate::rig;
    use crate::storage::VulkanPage;
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
    fn memory_that_is_not_coherent_is_flushed_to_its_end_where_that_is_behind_the_buffers() {
        let flags = MemoryFlags::DEVICE_LOCAL | MemoryFlags::HOST_VISIBLE | MemoryFlags::HOST_CACHED;
        let plan = || {
            Plan::new()
                .memory_types([(flags, 0), (MemoryFlags::HOST_VISIBLE | MemoryFlags::HOST_COHERENT, 0)])
                .limits(|limits| limits.non_coherent_atom_size = 256)
        };
        rig::each_shown(plan, &VulkanOptions::default(), |device, _| {
            // What the shim complains of fails the test: a range that leaves the memory, or ends in the middle of an atom before its end.
            for size in [70, 100, 255, 256, 257, 4096 + 16] {
                round_trips(&VulkanPage::allocate(device, size).unwrap());
            }
        });
    }

    #[test]
    fn bytes_that_share_an_atom_with_others_are_not_apart() {
        rig::each_changed(
            &VulkanOptions::default(),
            |device| {
                device.memory.page.coherent = false;
                device.limits.non_coherent_atom_size = 64;
            },
            |device| {
                let page = VulkanPage::allocate(device, 1000).unwrap();
                let apart = |range| page.allocation().is_apart(range);
                assert!(apart(0..64) && apart(64..192) && apart(960..1000) && apart(0..1000));
                assert!(!apart(0..4) && !apart(4..64) && !apart(60..128) && !apart(64..999));
            },
        );
        rig::each(&VulkanOptions::default(), |device| {
            let page = VulkanPage::allocate(device, 1000).unwrap();
            assert!(!device.memory.page.coherent || page.allocation().is_apart(3..5));
        });
    }
}
