//! Staging blocks that go round: a batch takes space from them, and they come back when it is finished.
//!
//! A place in a batch's blocks is a [`Piece`]. Blocks are powers of two, so that one fits where another was; those that come back are
//! kept up to [`KEPT`] bytes a direction.

use crate::device::Device;
use crate::staging::{Direction, StagingBlock};
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;
use core::mem;
use trunnion_runtime_core::error::{Error, Result};

/// The smallest block: room for the parameters and short writes of a batch.
const SMALLEST: u64 = 64 << 10;

/// The most bytes of one transfer in one block; longer ones take several.
pub(crate) const LONGEST: u64 = 16 << 20;

/// Bytes of blocks kept for the next batch, by direction.
const KEPT: u64 = 64 << 20;

/// The blocks that no batch uses.
#[derive(Debug)]
pub(crate) struct Blocks {
    device: Arc<Device>,
    uploads: Shelf,
    downloads: Shelf,
}

#[derive(Debug, Default)]
struct Shelf {
    blocks: Vec<StagingBlock>,
    bytes: u64,
}

/// The blocks of one batch in one direction. Space is taken from the last one.
#[derive(Debug)]
pub(crate) struct Arena {
    direction: Direction,
    blocks: Vec<StagingBlock>,
    /// Bytes taken of the last block.
    used: u64,
}

/// A place in the blocks of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    block: usize,
    /// Where it begins in its block's buffer.
    pub(crate) offset: u64,
}

impl Piece {
    /// The place so many bytes further on.
    pub(crate) fn after(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

impl Blocks {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { device: device.clone(), uploads: Shelf::default(), downloads: Shelf::default() }
    }

    fn shelf(&mut self, direction: Direction) -> &mut Shelf {
        match direction {
            Direction::Upload => &mut self.uploads,
            Direction::Download => &mut self.downloads,
        }
    }

    fn take(&mut self, size: u64, direction: Direction) -> Result<StagingBlock> {
        let size = size.max(SMALLEST).next_power_of_two();
        let shelf = self.shelf(direction);
        if let Some(i) = shelf.blocks.iter().rposition(|block| block.size() == size) {
            shelf.bytes -= size;
            return Ok(shelf.blocks.swap_remove(i));
        }
        let made = match StagingBlock::allocate(&self.device, size, direction) {
            Err(refused) if refused.is_out_of_memory() && self.let_go() => {
                StagingBlock::allocate(&self.device, size, direction)
            }
            made => made,
        };
        made.map_err(|refused| refused.into_error(size))
    }

    /// Frees every block that no batch uses. Whether there were any.
    fn let_go(&mut self) -> bool {
        let shelves = [mem::take(&mut self.uploads), mem::take(&mut self.downloads)];
        shelves.iter().any(|shelf| !shelf.blocks.is_empty())
    }

    fn give(&mut self, block: StagingBlock, direction: Direction) {
        let shelf = self.shelf(direction);
        if shelf.bytes + block.size() <= KEPT {
            shelf.bytes += block.size();
            shelf.blocks.push(block);
        }
    }
}

impl Arena {
    pub(crate) fn new(direction: Direction) -> Self {
        Self { direction, blocks: Vec::new(), used: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Takes `size` bytes, at most [`LONGEST`], which begin at a multiple of `alignment`, a power of two.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] or [`Error::Driver`] when there is no block.
    pub(crate) fn take(&mut self, blocks: &mut Blocks, size: u64, alignment: u64) -> Result<Piece> {
        if let Some(last) = self.blocks.last() {
            let offset = self.used.next_multiple_of(alignment.max(1));
            if offset + size <= last.size() {
                self.used = offset + size;
                return Ok(Piece { block: self.blocks.len() - 1, offset });
            }
        }
        self.blocks.push(blocks.take(size, self.direction)?);
        self.used = size;
        Ok(Piece { block: self.blocks.len() - 1, offset: 0 })
    }

    /// The block of a piece, which was taken from this arena.
    fn block(&self, piece: Piece) -> Result<&StagingBlock> {
        self.blocks.get(piece.block).ok_or_else(|| Error::OutOfRange {
            what: "blocks of a batch".into(),
            range: piece.block as u64..piece.block as u64 + 1,
            size: self.blocks.len() as u64,
        })
    }

    /// The buffer a piece lies in.
    pub(crate) fn buffer(&self, piece: Piece) -> vk::Buffer {
        self.blocks.get(piece.block).map_or(vk::Buffer::null(), StagingBlock::buffer)
    }

    /// Copies into a piece.
    ///
    /// # Safety
    /// The piece is this arena's, is at least as long, and the device does not use it.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) unsafe fn write(&self, piece: Piece, from: &[u8]) -> Result<()> {
        // SAFETY: the caller's promise; that it lies in the block is checked.
        unsafe { self.block(piece)?.write(piece.offset, from) }
    }

    /// Copies out of a piece.
    ///
    /// # Safety
    /// As for [`write`](Self::write), and the device's writes were made visible to the host.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) unsafe fn read(&self, piece: Piece, into: &mut [u8]) -> Result<()> {
        // SAFETY: the caller's promise; that it lies in the block is checked.
        unsafe { self.block(piece)?.read(piece.offset, into) }
    }

    /// Gives all blocks back. The device uses none of them any more.
    pub(crate) fn clear(&mut self, blocks: &mut Blocks) {
        self.used = 0;
        self.blocks.drain(..).for_each(|block| blocks.give(block, self.direction));
    }
}
