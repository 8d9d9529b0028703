//! Host memory the device reads and writes: blocks that bytes go through, and page-locked memory for programs.

use crate::allocation::{Allocation, PAGE_USAGE, Request, Types};
use crate::device::Device;
use crate::external::External;
use crate::failure::Refusal;
use crate::memory::MemoryType;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use ash::vk;
use core::ptr::NonNull;
use core::slice;
use std::sync::{Mutex, PoisonError};
use trunnion_backend_core::driver::DriverRefusal;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::staging::PinnedMemory;

/// What a block can be used for: what a page can, and parameters of kernels.
pub(crate) const STAGING_USAGE: vk::BufferUsageFlags =
    vk::BufferUsageFlags::from_raw(PAGE_USAGE.as_raw() | vk::BufferUsageFlags::UNIFORM_BUFFER.as_raw());

/// Which way bytes go through a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The host writes, the device reads.
    Upload,
    /// The device writes, the host reads.
    Download,
}

/// Host memory that stays mapped, with a buffer over all of it.
#[derive(Debug)]
pub(crate) struct StagingBlock {
    allocation: Allocation,
    start: NonNull<u8>,
}

// SAFETY: the pointer is the allocation's own mapping, which may be used on any thread; see there.
unsafe impl Send for StagingBlock {}
// SAFETY: as above.
unsafe impl Sync for StagingBlock {}

impl StagingBlock {
    /// Allocates a block of `size` bytes; one of no bytes has one.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) fn allocate(device: &Arc<Device>, size: u64, direction: Direction) -> Result<Self, Refusal> {
        let kind = match direction {
            Direction::Upload => device.memory.upload,
            Direction::Download => device.memory.download,
        };
        Self::of(device, size, kind, true)
    }

    fn of(device: &Arc<Device>, size: u64, kind: MemoryType, is_on_the_way: bool) -> Result<Self, Refusal> {
        let (types, external) = (Types::One(kind), External::None);
        let request = Request { size, usage: STAGING_USAGE, types, maps: true, external, is_on_the_way };
        let allocation = Allocation::new(device, &request)?;
        let not_mapped = || Refusal::Unfit(format!("{size} bytes of staging memory: not mapped"));
        let start = allocation.mapped().ok_or_else(not_mapped)?;
        Ok(Self { allocation, start })
    }

    /// The buffer over the block.
    pub(crate) fn buffer(&self) -> vk::Buffer {
        self.allocation.buffer()
    }

    /// Bytes in it.
    pub(crate) fn size(&self) -> u64 {
        self.allocation.size()
    }

    /// Its first byte, for the host.
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Copies in, and makes it visible to the device's work that is submitted afterwards.
    ///
    /// # Safety
    /// Nothing else uses these bytes at the same time.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](trunnion_runtime_core::error::Error::OutOfRange); what the driver answers to a flush.
    pub(crate) unsafe fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.allocation.write(offset, from) }
    }

    /// Copies out what the device has made visible to the host.
    ///
    /// # Safety
    /// Nothing else writes these bytes at the same time.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](trunnion_runtime_core::error::Error::OutOfRange); what the driver answers to an invalidation.
    pub(crate) unsafe fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.allocation.read(offset, into) }
    }
}

/// Page-locked memory of a program's. It is coherent, so that nobody has to say when its bytes changed.
struct Pinned {
    block: StagingBlock,
    size: usize,
}

/// Page-locks new memory of `size` bytes, which [`PinnedRanges::find`] then finds by address.
///
/// # Errors
/// [`DriverRefusal`].
pub(crate) fn pin(device: &Arc<Device>, size: usize) -> Result<Box<dyn PinnedMemory>, DriverRefusal> {
    device.options.limits.check_pinned(size as u64, device.pinned.bytes())?;
    let block = StagingBlock::of(device, size as u64, device.memory.pinned, false)?;
    device.pinned.add(block.start().as_ptr() as usize, size, block.buffer());
    Ok(Box::new(Pinned { block, size }))
}

impl PinnedMemory for Pinned {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped for as long as the block lives, at least this long, and any bytes are valid; who lets the device write here
        // while the slice is in use is held off by whoever encodes that.
        unsafe { slice::from_raw_parts(self.block.start.as_ptr(), self.size) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.block.start.as_ptr(), self.size) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.block.allocation.device().pinned.remove(self.block.start.as_ptr() as usize);
    }
}

/// Page-locked memory by the address of its first byte: bytes and buffer.
#[derive(Debug, Default)]
pub(crate) struct PinnedRanges(Mutex<BTreeMap<usize, (usize, vk::Buffer)>>);

impl PinnedRanges {
    /// The buffer these bytes are in, and where they begin in it. `None` for bytes that are not page-locked for this device.
    pub(crate) fn find(&self, bytes: &[u8]) -> Option<(vk::Buffer, u64)> {
        let address = bytes.as_ptr() as usize;
        let ranges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, (size, buffer)) = ranges.range(..=address).next_back()?;
        let offset = address - start;
        (offset.checked_add(bytes.len())? <= *size).then_some((*buffer, offset as u64))
    }

    /// How many bytes there are.
    fn bytes(&self) -> u64 {
        let ranges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ranges.values().map(|(size, _)| *size as u64).sum()
    }

    fn add(&self, start: usize, size: usize, buffer: vk::Buffer) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(start, (size, buffer));
    }

    fn remove(&self, start: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::VulkanOptions;
    use crate::rig;
    use alloc::vec;
    use core::ops::Range;
    use trunnion_backend_core::LimitOptions;

    #[test]
    fn blocks_are_mapped_whichever_way_they_go() {
        rig::each(&VulkanOptions::default(), |device| {
            for direction in [Direction::Upload, Direction::Download] {
                let block = StagingBlock::allocate(device, 1000, direction).unwrap();
                let mut found = vec![0; 25];
                // SAFETY: the block is this test's alone.
                unsafe {
                    block.write(975, &[9; 25]).unwrap();
                    block.read(975, &mut found).unwrap();
                }
                assert_eq!((block.size(), found), (1000, vec![9; 25]));
            }
            let none = StagingBlock::allocate(device, 0, Direction::Upload).unwrap();
            assert_eq!(none.size(), 1);
        });
    }

    #[test]
    fn a_download_block_that_is_not_coherent_is_invalidated_in_whole_atoms() {
        rig::each_changed(
            &VulkanOptions::default(),
            |device| device.memory.download.coherent = false,
            |device| {
                let block = StagingBlock::allocate(device, 333, Direction::Download).unwrap();
                let mut found = [0; 7];
                // SAFETY: the block is this test's alone.
                unsafe {
                    block.write(326, &[5; 7]).unwrap();
                    block.read(326, &mut found).unwrap();
                }
                assert_eq!(found, [5; 7]);
            },
        );
    }

    #[test]
    fn page_locked_memory_is_found_by_address_until_it_is_dropped() {
        rig::each(&VulkanOptions::default(), |device| {
            let mut memory = pin(device, 100).unwrap();
            assert_eq!(memory.as_slice().len(), 100);
            memory.as_mut_slice().copy_from_slice(&[4; 100]);
            assert_eq!(memory.as_slice(), [4; 100]);
            let at = |range: Range<usize>| device.pinned.find(&memory.as_slice()[range]).map(|(_, offset)| offset);
            assert_eq!((at(0..100), at(40..60), at(99..100)), (Some(0), Some(40), Some(99)));
            let elsewhere = [4; 100];
            assert!(device.pinned.find(&elsewhere).is_none());
            let none = pin(device, 0).unwrap();
            assert_eq!(none.as_slice(), [0; 0]);
            drop((memory, none));
            assert!(device.pinned.0.lock().unwrap().is_empty());
            assert_eq!(device.allocations(), 0);
        });
    }

    #[test]
    fn page_locked_memory_over_the_limit_is_refused_until_some_is_dropped() {
        rig::each(
            &VulkanOptions::default().limits(LimitOptions { pinned_memory: Some(100), ..LimitOptions::default() }),
            |device| {
                let held = pin(device, 60).unwrap();
                let refusal = pin(device, 41).map(|_| ()).unwrap_err();
                assert!(
                    refusal.out_of_memory && refusal.message.contains("41 bytes requested, 40 of 100"),
                    "{refusal:?}"
                );
                drop((pin(device, 40).unwrap(), held));
                pin(device, 100).unwrap();
            },
        );
    }

    #[test]
    fn page_locked_memory_outlives_whoever_opened_the_device() {
        rig::each(&VulkanOptions::default(), |device| {
            let mut memory = pin(device, 64).unwrap();
            std::thread::spawn(move || {
                memory.as_mut_slice().fill(7);
                assert_eq!(memory.as_slice(), [7; 64]);
            })
            .join()
            .unwrap();
        });
    }
}
