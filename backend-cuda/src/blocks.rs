//! Staging blocks of page-locked memory, which host and device know by the same address: so a place in one is that address.
//!
//! The blocks go round ([`shelf`]): a batch takes space from them, and they come back when it is finished.

use crate::device::Device;
use crate::pinned::PinnedBlock;
use alloc::sync::Arc;
use core::ptr::{self, NonNull};
use trunnion_backend_core::shelf::{self, Shelf};
use trunnion_runtime_core::error::Result;

/// The most bytes of one transfer in one block; longer ones take several.
pub(crate) const LONGEST: usize = shelf::LONGEST as usize;

/// Bytes of blocks that are always kept.
const KEPT: u64 = 128 << 20;

/// What pieces begin at multiples of.
const ALIGNMENT: u64 = 16;

/// The blocks that no batch uses.
#[derive(Debug)]
pub(crate) struct Blocks {
    device: Arc<Device>,
    shelf: Shelf<PinnedBlock>,
}

/// The blocks of one batch.
#[derive(Debug, Default)]
pub(crate) struct Arena(shelf::Arena<PinnedBlock>);

/// A place in the blocks of an arena, until that is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: an address, whose bytes are only touched by functions that are unsafe to call.
unsafe impl Send for Piece {}

impl Blocks {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { device: device.clone(), shelf: Shelf::new(KEPT) }
    }

    /// Lets go of what was not used lately. The device is idle.
    pub(crate) fn trim(&mut self) {
        self.shelf.trim();
    }
}

impl Arena {
    /// Takes `size` bytes, at most [`LONGEST`].
    ///
    /// # Errors
    /// As for [`PinnedBlock::allocate`], when there is no block.
    pub(crate) fn take(&mut self, blocks: &mut Blocks, size: usize) -> Result<Piece> {
        let Blocks { device, shelf } = blocks;
        // A block is not larger than what its batch has bytes for, rounded up.
        let make = |size| PinnedBlock::allocate(device, size as usize);
        let (block, spot) = self.0.take(shelf, size as u64, ALIGNMENT, make)?;
        // SAFETY: the place lies in the block.
        let start = unsafe { block.start().add(spot.offset as usize) };
        Ok(Piece { start, length: size })
    }

    /// Gives all blocks back. Neither host nor device uses a piece of them any more.
    pub(crate) fn clear(&mut self, blocks: &mut Blocks) {
        self.0.clear(&mut blocks.shelf);
    }
}

impl Piece {
    /// Its address, for host and device.
    pub(crate) fn start(self) -> NonNull<u8> {
        self.start
    }

    /// Bytes in it.
    pub(crate) fn length(self) -> usize {
        self.length
    }

    /// Copies in as much as there is room for.
    ///
    /// # Safety
    /// The arena was not cleared since, and the device does not use the piece.
    pub(crate) unsafe fn write(self, from: &[u8]) {
        // SAFETY: the caller's promise; no more than the piece has.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.start.as_ptr(), from.len().min(self.length)) };
    }

    /// Copies out as much as there is room for.
    ///
    /// # Safety
    /// As for [`write`](Self::write).
    pub(crate) unsafe fn read(self, into: &mut [u8]) {
        // SAFETY: the caller's promise; no more than the piece has, whose bytes are whatever was put there.
        unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), into.as_mut_ptr(), into.len().min(self.length)) };
    }
}
