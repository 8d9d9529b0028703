//! Staging blocks that go round: a batch takes space from them, and they come back when it is finished.
//!
//! A block is page-locked host memory, which host and device know by the same address, so a place in it is that address. Blocks are powers
//! of two, so that one fits where another was; those that come back are kept up to [`KEPT`] bytes.

use crate::device::Device;
use crate::failure::refusal;
use crate::pinned::PinnedBlock;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::{self, NonNull};
use trunnion_runtime_core::error::Result;

/// The smallest block: room for short transfers of a batch.
const SMALLEST: usize = 64 << 10;

/// The most bytes of one transfer in one block; longer ones take several.
pub(crate) const LONGEST: usize = 16 << 20;

/// Bytes of blocks kept for the next batch.
const KEPT: usize = 128 << 20;

/// What pieces begin at multiples of.
const ALIGNMENT: usize = 16;

/// The blocks that no batch uses.
#[derive(Debug)]
pub(crate) struct Blocks {
    device: Arc<Device>,
    blocks: Vec<PinnedBlock>,
    bytes: usize,
}

/// The blocks of one batch. Space is taken from the last one.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    blocks: Vec<PinnedBlock>,
    /// Bytes taken of the last block.
    used: usize,
}

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
        Self { device: device.clone(), blocks: Vec::new(), bytes: 0 }
    }

    fn take(&mut self, size: usize) -> Result<PinnedBlock> {
        let size = size.max(SMALLEST).next_power_of_two();
        if let Some(i) = self.blocks.iter().rposition(|block| block.size() == size) {
            self.bytes -= size;
            return Ok(self.blocks.swap_remove(i));
        }
        PinnedBlock::allocate(&self.device, size).map_err(|refused| refusal(size as u64, refused))
    }

    fn give(&mut self, block: PinnedBlock) {
        if self.bytes + block.size() <= KEPT {
            self.bytes += block.size();
            self.blocks.push(block);
        }
    }
}

impl Arena {
    /// Takes `size` bytes, at most [`LONGEST`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](trunnion_runtime_core::error::Error::OutOfMemory) or
    /// [`Error::Driver`](trunnion_runtime_core::error::Error::Driver) when there is no block.
    pub(crate) fn take(&mut self, blocks: &mut Blocks, size: usize) -> Result<Piece> {
        let offset = self.used.next_multiple_of(ALIGNMENT);
        if let Some(last) = self.blocks.last()
            && offset + size <= last.size()
        {
            self.used = offset + size;
            // SAFETY: the place lies in the block.
            let start = unsafe { last.start().add(offset) };
            return Ok(Piece { start, length: size });
        }
        let block = blocks.take(size)?;
        let start = block.start();
        self.blocks.push(block);
        self.used = size;
        Ok(Piece { start, length: size })
    }

    /// Gives all blocks back. Neither host nor device uses a piece of them any more.
    pub(crate) fn clear(&mut self, blocks: &mut Blocks) {
        self.used = 0;
        self.blocks.drain(..).for_each(|block| blocks.give(block));
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
        // SAFETY: the caller's promise; no more than the piece has, whose bytes are initialized.
        unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), into.as_mut_ptr(), into.len().min(self.length)) };
    }
}
