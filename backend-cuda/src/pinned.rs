//! Host memory that is page-locked, so that the device reads and writes it while the host goes on.

use crate::device::Device;
use crate::failure::refused;
use crate::retired::Memory;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use core::ptr::{self, NonNull};
use core::slice;
use std::sync::{Mutex, PoisonError};
use trunnion_backend_core::driver::DriverRefusal;
use trunnion_backend_core::shelf::Block;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::staging::PinnedMemory;

/// Page-locked memory. Its address is the same for host and device. What is in it at first is the driver's matter.
#[derive(Debug)]
pub(crate) struct PinnedBlock {
    device: Arc<Device>,
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: plain memory, whose bytes are only touched by functions that are unsafe to call, or through a borrow.
unsafe impl Send for PinnedBlock {}
// SAFETY: as above.
unsafe impl Sync for PinnedBlock {}

impl PinnedBlock {
    /// Allocates a block of `size` bytes; one of no bytes has one. Where memory has run short, or much waits to be given back, it is asked
    /// for again when that was given back.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the size; what else the driver answers.
    pub(crate) fn allocate(device: &Arc<Device>, size: usize) -> Result<Self> {
        // Write-combined memory would be slow to read back.
        const FLAGS: u32 = 0;
        let (size, mut start) = (size.max(1), ptr::null_mut());
        device.with_memory(size as u64, || {
            device.retired.check_host()?;
            let _current = device.enter()?;
            // SAFETY: the place is for a pointer, and the context is current.
            device.check("cuMemHostAlloc", unsafe { (device.functions().cuMemHostAlloc)(&raw mut start, size, FLAGS) })
        })?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| Error::Driver {
            call: "cuMemHostAlloc".into(),
            code: 0,
            message: format!("{size} bytes at address 0"),
        })?;
        Ok(Self { device: device.clone(), start, size })
    }

    /// Its first byte, for host and device.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The address of its first byte, as kernels take it.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }
}

impl Block for PinnedBlock {
    fn size(&self) -> u64 {
        self.size as u64
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        self.device.retire(Memory::Host(self.start), self.size as u64);
    }
}

/// Page-locked memory of a program's.
struct Pinned {
    block: PinnedBlock,
    size: usize,
}

/// Page-locks new memory of `size` bytes, which [`PinnedRanges::holds`] then knows.
///
/// # Errors
/// [`DriverRefusal`].
pub(crate) fn pin(device: &Arc<Device>, size: usize) -> Result<Box<dyn PinnedMemory>, DriverRefusal> {
    device.options.limits.check_pinned(size as u64, device.pinned.bytes())?;
    let block = PinnedBlock::allocate(device, size).map_err(|error| refused(size as u64, &error))?;
    // SAFETY: new memory, at least this long, which nobody else knows.
    unsafe { ptr::write_bytes(block.start().as_ptr(), 0, size) };
    device.pinned.add(block.start().as_ptr().addr(), size);
    Ok(Box::new(Pinned { block, size }))
}

impl PinnedMemory for Pinned {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: there for as long as the block lives, at least this long, and initialized; who lets the device write here while the slice
        // is in use is held off by whoever encodes that.
        unsafe { slice::from_raw_parts(self.block.start.as_ptr(), self.size) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.block.start.as_ptr(), self.size) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.block.device.pinned.remove(self.block.start.as_ptr().addr());
    }
}

/// Page-locked memory by the address of its first byte: how many bytes it has.
#[derive(Debug, Default)]
pub(crate) struct PinnedRanges(Mutex<BTreeMap<usize, usize>>);

impl PinnedRanges {
    fn add(&self, start: usize, size: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(start, size);
    }

    fn remove(&self, start: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&start);
    }

    /// Whether all of these bytes are page-locked for the device.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr().addr();
        let ranges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = ranges.range(..=start).next_back();
        before.is_some_and(|(first, size)| start - first + bytes.len() <= *size)
    }

    /// How many bytes are page-locked.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().map(|size| *size as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_lie_in_one_range_are_page_locked() {
        let memory = [0_u8; 64];
        let ranges = PinnedRanges::default();
        ranges.add(memory[8..].as_ptr().addr(), 16);
        ranges.add(memory[32..].as_ptr().addr(), 8);
        let cases = [(8..24, true), (10..20, true), (24..24, true), (7..9, false), (23..25, false), (8..40, false)];
        for (range, expected) in cases {
            assert_eq!(ranges.holds(&memory[range.clone()]), expected, "{range:?}");
        }
        assert_eq!(ranges.bytes(), 24);
        ranges.remove(memory[8..].as_ptr().addr());
        assert!(!ranges.holds(&memory[10..20]) && ranges.holds(&memory[32..40]));
    }
}
