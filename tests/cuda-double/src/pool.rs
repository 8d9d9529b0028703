//! A memory pool for allocations in the order of a stream. Equivalent to: `CUmemoryPool`.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashSet;
use std::sync::Mutex;

use crate::codes::Outcome;
use crate::device::Device;
use crate::handles;
use crate::sync::lock;

/// A pool: bytes that it holds of its device, and bytes of those in use.
pub(crate) struct Pool {
    pub(crate) handle: usize,
    pub(crate) device: u32,
    /// Bytes it keeps at a synchronisation. Equivalent to: `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
    pub(crate) threshold: AtomicU64,
    sizes: Mutex<Sizes>,
    /// Other devices that may touch its memory.
    open_to: Mutex<HashSet<u32>>,
}

/// Bytes now, and the most since the last reset.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Sizes {
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
}

impl Pool {
    pub(crate) fn new(device: u32) -> Self {
        let (threshold, sizes, open_to) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        Self { handle: handles::fresh(), device, threshold, sizes, open_to }
    }

    pub(crate) fn is_open_to(&self, device: u32) -> bool {
        device == self.device || lock(&self.open_to).contains(&device)
    }

    pub(crate) fn open_to(&self, device: u32, is_open: bool) {
        let mut open_to = lock(&self.open_to);
        if is_open {
            open_to.insert(device);
        } else {
            open_to.remove(&device);
        }
    }

    pub(crate) fn sizes(&self) -> Sizes {
        *lock(&self.sizes)
    }

    /// Takes bytes, from what the pool holds first and else from the device.
    pub(crate) fn take(&self, device: &Device, bytes: u64) -> Outcome {
        let mut sizes = lock(&self.sizes);
        let missing = (sizes.used + bytes).saturating_sub(sizes.reserved);
        device.take(missing)?;
        sizes.reserved += missing;
        sizes.used += bytes;
        sizes.reserved_high = sizes.reserved_high.max(sizes.reserved);
        sizes.used_high = sizes.used_high.max(sizes.used);
        Ok(())
    }

    /// Bytes are free again, and stay with the pool for now.
    pub(crate) fn give(&self, bytes: u64) {
        lock(&self.sizes).used -= bytes;
    }

    /// Gives to the device what the pool holds beyond `keep` bytes and nobody uses.
    pub(crate) fn trim(&self, device: &Device, keep: u64) {
        let mut sizes = lock(&self.sizes);
        let left = sizes.used.max(keep.min(sizes.reserved));
        device.give(sizes.reserved - left);
        sizes.reserved = left;
    }

    /// What a synchronisation of the device gives back.
    pub(crate) fn settle(&self, device: &Device) {
        self.trim(device, self.threshold.load(Ordering::Relaxed));
    }

    /// Starts the high marks anew, of what is reserved or of what is used.
    pub(crate) fn reset_high(&self, reserved: bool) {
        let mut sizes = lock(&self.sizes);
        if reserved {
            sizes.reserved_high = sizes.reserved;
        } else {
            sizes.used_high = sizes.used;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;
    use crate::device::Device;

    #[test]
    fn a_pool_keeps_what_is_freed_until_it_is_trimmed() {
        let (device, pool) = (Device::new(0), Pool::new(0));
        pool.take(&device, 100).unwrap();
        pool.give(100);
        assert_eq!(device.memory().1, 100);
        pool.take(&device, 60).unwrap();
        assert_eq!((pool.sizes().reserved, pool.sizes().used), (100, 60));
        pool.settle(&device);
        assert_eq!(device.memory().1, 60);
        assert_eq!(pool.sizes().used_high, 100);
    }
}
