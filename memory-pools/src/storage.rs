//! The memory pools ask for: the driver's, by the page.

use alloc::string::String;
use core::fmt;
use trunnion_runtime_core::report::PoolKind;

/// Memory by the page, as a driver gives it. Implemented by a backend; nothing here reads or writes the bytes.
///
/// The pools call [`release`](Self::release) exactly once for every page [`allocate`](Self::allocate) gave, and only after all work
/// that used the page is done; [`MemoryPools::drain`](crate::MemoryPools::drain) is the one exception.
///
/// Equivalent to: `cuMemAlloc` and `cuMemFree`; `vkAllocateMemory` and `vkFreeMemory`; `Device::create_buffer` of wgpu.
pub trait Storage {
    /// A page: whatever names the driver's allocation.
    type Page;

    /// Takes a page of `size` bytes, a multiple of [`alignment`](Self::alignment). `kind` says which pool wants it.
    ///
    /// # Errors
    /// The driver's refusal. One that says `out_of_memory` lets the pools return what they can and ask again.
    fn allocate(&mut self, size: u64, kind: PoolKind) -> Result<Self::Page, StorageError>;

    /// Returns a page to the driver.
    fn release(&mut self, page: Self::Page);

    /// What offsets inside a page must be multiples of, in bytes; a power of two.
    fn alignment(&self) -> u64;

    /// The largest page the driver gives, in bytes.
    fn max_page(&self) -> u64;

    /// The bytes the driver says it has free, where it says.
    fn driver_free(&self) -> Option<u64> {
        None
    }
}

/// The driver's refusal to give a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageError {
    /// The driver's own words.
    pub message: String,
    /// Whether it would help to return memory; false for a lost device and the like.
    pub out_of_memory: bool,
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for StorageError {}
