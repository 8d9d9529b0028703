//! Staging blocks by direction: where the bytes of a batch lie, by buffer and offset.
//!
//! The blocks go round ([`shelf`]): a batch takes space from them, and they come back when it is finished.

use crate::device::Device;
use crate::failure::Refusal;
use crate::staging::{Direction, StagingBlock};
use alloc::sync::Arc;
use ash::vk;
use trunnion_backend_core::shelf::{self, Block, Shelf};
use trunnion_runtime_core::error::{Error, Result};

pub(crate) use trunnion_backend_core::shelf::{LONGEST, Spot as Piece};

/// Bytes of blocks that are always kept, by direction.
const KEPT: u64 = 64 << 20;

/// The blocks that no batch uses.
#[derive(Debug)]
pub(crate) struct Blocks {
    device: Arc<Device>,
    uploads: Shelf<StagingBlock>,
    downloads: Shelf<StagingBlock>,
}

/// The blocks of one batch in one direction.
#[derive(Debug)]
pub(crate) struct Arena {
    direction: Direction,
    inside: shelf::Arena<StagingBlock>,
}

impl Block for StagingBlock {
    fn size(&self) -> u64 {
        self.size()
    }
}

impl Blocks {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { device: device.clone(), uploads: Shelf::new(KEPT), downloads: Shelf::new(KEPT) }
    }

    /// The device, the blocks of a direction, and those of the other.
    fn split(&mut self, direction: Direction) -> (&Arc<Device>, [&mut Shelf<StagingBlock>; 2]) {
        let Self { device, uploads, downloads } = self;
        match direction {
            Direction::Upload => (device, [uploads, downloads]),
            Direction::Download => (device, [downloads, uploads]),
        }
    }

    /// Whether there is more than is always kept.
    pub(crate) fn has_surplus(&self) -> bool {
        self.uploads.has_surplus() || self.downloads.has_surplus()
    }

    /// Lets go of what was not used lately. The device is idle.
    pub(crate) fn trim(&mut self) {
        self.uploads.trim();
        self.downloads.trim();
    }
}

impl Arena {
    pub(crate) fn new(direction: Direction) -> Self {
        Self { direction, inside: shelf::Arena::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inside.is_empty()
    }

    /// Takes `size` bytes, at most [`LONGEST`], which begin at a multiple of `alignment`, a power of two.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] or [`Error::Driver`] when there is no block.
    pub(crate) fn take(&mut self, blocks: &mut Blocks, size: u64, alignment: u64) -> Result<Piece> {
        let direction = self.direction;
        let (device, [shelf, other]) = blocks.split(direction);
        let mut make = |size| {
            let refused = |refused: Refusal| refused.into_error(size);
            StagingBlock::allocate(device, size, direction).map_err(refused)
        };
        let taken = match self.inside.take(shelf, size, alignment, &mut make) {
            Err(error) if error.is_out_of_memory() && other.clear() => {
                self.inside.take(shelf, size, alignment, &mut make)
            }
            taken => taken,
        };
        taken.map(|(_, piece)| piece)
    }

    /// The block of a piece, which was taken from this arena.
    fn block(&self, piece: Piece) -> Result<&StagingBlock> {
        let number = piece.block as u64;
        self.inside.block(piece).ok_or_else(|| Error::OutOfRange {
            what: "blocks of a batch".into(),
            range: number..number + 1,
            size: self.inside.len() as u64,
        })
    }

    /// The buffer a piece lies in.
    pub(crate) fn buffer(&self, piece: Piece) -> vk::Buffer {
        self.inside.block(piece).map_or(vk::Buffer::null(), StagingBlock::buffer)
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
        let (_, [shelf, _]) = blocks.split(self.direction);
        self.inside.clear(shelf);
    }
}
