//! The memory pools ask for: the driver's, by the page.

use alloc::string::String;
use core::fmt;
use trunnion_runtime_core::report::PoolKind;

/// Memory by the page, as a driver gives it. Implemented by a backend; nothing here reads or writes the bytes.
///
/// The pools call [`release`](Self::release) exactly once for every page that was given, and only after all work that used the page is
/// done; [`MemoryPools::drain`](crate::MemoryPools::drain) is the one exception.
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

    /// In what steps pages grow, in bytes: a multiple of [`alignment`](Self::alignment). `None`, which is the default, where a page stays as
    /// it is. [`PoolsConfig::fitting`](crate::PoolsConfig::fitting) asks for it.
    fn growth_step(&self) -> Option<u64> {
        None
    }

    /// Takes a page of `size` bytes that is to [`grow`](Self::grow) up to `reach` bytes, both multiples of the step. A page that stays as it
    /// is will do too, which is the default.
    ///
    /// Equivalent to: `cuMemAddressReserve` of more than is mapped.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    fn allocate_growing(&mut self, size: u64, _reach: u64, kind: PoolKind) -> Result<Self::Page, StorageError> {
        self.allocate(size, kind)
    }

    /// Makes a page larger at its end, from `from` to `to` bytes, both multiples of the step. It keeps its place and what is in it, and work
    /// that uses it may be under way.
    ///
    /// Equivalent to: `cuMemMap` into what was reserved.
    ///
    /// # Errors
    /// The driver's refusal: the page is as it was. Unless that says `out_of_memory` the page is not asked to grow again. The default
    /// refuses.
    fn grow(&mut self, _page: &mut Self::Page, from: u64, to: u64) -> Result<(), StorageError> {
        let message = alloc::format!("{to} bytes for a page of {from}: pages of this storage stay as they are");
        Err(StorageError { message, out_of_memory: false })
    }

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
