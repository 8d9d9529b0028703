//! Staging blocks that go round: a batch takes space from them, and they come back when it is finished.
//!
//! Bytes on their way to a device or from it lie in host memory of the driver's. To make such memory takes long, so blocks of it are kept.
//! They are powers of two, so that one fits where another was. As long as a driver works it keeps all that come back, since it will want as
//! much again; when it is idle it keeps as much as it used at once, within bounds, and lets go of the rest ([`Shelf::trim`]).

use alloc::vec::Vec;
use core::fmt;
use core::mem;
use trunnion_runtime_core::error::Result;

/// The smallest block: room for the parameters and short transfers of a batch.
const SMALLEST: u64 = 64 << 10;

/// The most bytes of one transfer in one block; longer ones take several.
pub const LONGEST: u64 = 16 << 20;

/// How many times what is always kept may be kept while the driver is idle.
const MOST: u64 = 4;

/// Host memory that bytes go through, which is given back when it is dropped.
pub trait Block {
    /// Bytes in it.
    fn size(&self) -> u64;
}

/// The blocks that no batch uses.
pub struct Shelf<B> {
    blocks: Vec<B>,
    bytes: u64,
    kept: u64,
    /// Bytes in batches now, and the most at once since the shelf was trimmed.
    used: u64,
    peak: u64,
}

/// The blocks of one batch. Space is taken from the last one.
pub struct Arena<B> {
    blocks: Vec<B>,
    /// Bytes taken of the last block.
    used: u64,
}

/// A place in the blocks of an arena, until that is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The block's number.
    pub block: usize,
    /// Where the place begins in it, in bytes.
    pub offset: u64,
}

impl Spot {
    /// The place so many bytes further on.
    pub fn after(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

impl<B: Block> Shelf<B> {
    /// No blocks. So many bytes of them are kept at least while the driver is idle, and four times as many at most.
    pub fn new(kept: u64) -> Self {
        Self { blocks: Vec::new(), bytes: 0, kept, used: 0, peak: 0 }
    }

    /// A block with room for `size` bytes, which is made where there is none. Where memory has run short, what nobody uses is let go of, and it
    /// is tried again.
    ///
    /// # Errors
    /// What `make` answers, which is told how large the block is to be.
    pub fn take(&mut self, size: u64, mut make: impl FnMut(u64) -> Result<B>) -> Result<B> {
        let size = size.max(SMALLEST).checked_next_power_of_two().unwrap_or(size);
        // Where there is more than is always kept, a larger one does as well as a new one.
        let most = if self.has_surplus() { u64::MAX } else { size };
        let fit = |block: &B| (size..=most).contains(&block.size());
        let best =
            self.blocks.iter().enumerate().rev().filter(|(_, block)| fit(block)).min_by_key(|(_, block)| block.size());
        if let Some((i, _)) = best {
            let block = self.blocks.swap_remove(i);
            self.bytes -= block.size();
            return Ok(self.count(block));
        }
        let made = match make(size) {
            Err(error) if error.is_out_of_memory() && self.clear() => make(size),
            made => made,
        };
        made.map(|block| self.count(block))
    }

    fn count(&mut self, block: B) -> B {
        self.used += block.size();
        self.peak = self.peak.max(self.used);
        block
    }

    /// A block of this shelf that nobody uses any more.
    pub fn give(&mut self, block: B) {
        self.used = self.used.saturating_sub(block.size());
        self.bytes += block.size();
        self.blocks.push(block);
    }

    /// Whether there is more than is always kept.
    #[inline]
    pub fn has_surplus(&self) -> bool {
        self.bytes > self.kept
    }

    /// The driver is idle: lets go of what is more than was used at once since it was idle before, and than is always kept; of the largest
    /// first. Where nothing was used since, all stays.
    pub fn trim(&mut self) {
        if self.peak <= self.used {
            return;
        }
        let most = self.peak.clamp(self.kept, MOST * self.kept);
        self.peak = self.used;
        while self.bytes > most {
            let largest = self.blocks.iter().enumerate().max_by_key(|(_, block)| block.size()).map(|(i, _)| i);
            let Some(i) = largest else { return };
            self.bytes -= self.blocks.swap_remove(i).size();
        }
    }

    /// Lets go of all blocks. Whether there were any.
    pub fn clear(&mut self) -> bool {
        self.bytes = 0;
        !mem::take(&mut self.blocks).is_empty()
    }
}

impl<B: Block> Arena<B> {
    /// Takes `size` bytes, at most [`LONGEST`], which begin at a multiple of `alignment`, a power of two. The block they lie in, and where.
    ///
    /// # Errors
    /// What [`Shelf::take`] answers.
    pub fn take(
        &mut self,
        shelf: &mut Shelf<B>,
        size: u64,
        alignment: u64,
        make: impl FnMut(u64) -> Result<B>,
    ) -> Result<(&B, Spot)> {
        let mut offset = self.used.next_multiple_of(alignment.max(1));
        if self.blocks.last().is_none_or(|last| offset + size > last.size()) {
            self.blocks.push(shelf.take(size, make)?);
            offset = 0;
        }
        self.used = offset + size;
        let block = self.blocks.len() - 1;
        Ok((&self.blocks[block], Spot { block, offset }))
    }

    /// The block of a place that was taken since the arena was cleared.
    pub fn block(&self, spot: Spot) -> Option<&B> {
        self.blocks.get(spot.block)
    }

    /// How many blocks it has.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether nothing was taken.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Gives all blocks back. Neither host nor device uses a place in them any more.
    pub fn clear(&mut self, shelf: &mut Shelf<B>) {
        self.used = 0;
        self.blocks.drain(..).for_each(|block| shelf.give(block));
    }
}

impl<B> Default for Arena<B> {
    fn default() -> Self {
        Self { blocks: Vec::new(), used: 0 }
    }
}

impl<B> fmt::Debug for Shelf<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf")
            .field("blocks", &self.blocks.len())
            .field("bytes", &self.bytes)
            .field("kept", &self.kept)
            .finish()
    }
}

impl<B> fmt::Debug for Arena<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("blocks", &self.blocks.len()).field("used", &self.used).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::rc::Rc;
    use alloc::vec;
    use core::cell::Cell;
    use trunnion_runtime_core::error::{Error, OutOfMemory};

    const KEPT: u64 = 32 << 20;

    /// Bytes that are there, and how often some were made.
    #[derive(Default)]
    struct Memory {
        bytes: Cell<u64>,
        made: Cell<u32>,
        most: Cell<u64>,
    }

    struct Piece(Rc<Memory>, u64);

    impl Block for Piece {
        fn size(&self) -> u64 {
            self.1
        }
    }

    impl Drop for Piece {
        fn drop(&mut self) {
            self.0.bytes.set(self.0.bytes.get() - self.1);
        }
    }

    fn memory() -> Rc<Memory> {
        let memory = Memory::default();
        memory.most.set(u64::MAX);
        Rc::new(memory)
    }

    fn make(memory: &Rc<Memory>, size: u64) -> Result<Piece> {
        if memory.bytes.get() + size > memory.most.get() {
            let short = OutOfMemory { requested: size, ..OutOfMemory::default() };
            return Err(Error::OutOfMemory(Box::new(short)));
        }
        memory.bytes.set(memory.bytes.get() + size);
        memory.made.set(memory.made.get() + 1);
        Ok(Piece(memory.clone(), size))
    }

    fn fill(arena: &mut Arena<Piece>, shelf: &mut Shelf<Piece>, memory: &Rc<Memory>, sizes: &[u64]) {
        for size in sizes {
            arena.take(shelf, *size, 16, |size| make(memory, size)).unwrap();
        }
    }

    #[test]
    fn what_a_batch_took_is_there_for_the_next_however_much_it_was() {
        let (memory, mut shelf) = (memory(), Shelf::new(KEPT));
        let mut arenas = [Arena::default(), Arena::default()];
        for round in 0..10 {
            // One batch is always under way.
            fill(&mut arenas[round % 2], &mut shelf, &memory, &[LONGEST; 5]);
            arenas[(round + 1) % 2].clear(&mut shelf);
        }
        assert_eq!((memory.made.get(), memory.bytes.get()), (10, 10 * LONGEST));
        arenas.iter_mut().for_each(|arena| arena.clear(&mut shelf));
        assert_eq!(memory.bytes.get(), 10 * LONGEST);
    }

    #[test]
    fn an_idle_driver_keeps_what_it_used_last_within_bounds() {
        let (memory, mut shelf, mut arena) = (memory(), Shelf::new(KEPT), Arena::default());
        // Blocks in a batch, and blocks that are kept then.
        for (used, kept) in [(5, 5), (5, 5), (3, 3), (1, 2), (20, 8), (7, 7), (1, 2)] {
            fill(&mut arena, &mut shelf, &memory, &vec![LONGEST; used]);
            arena.clear(&mut shelf);
            assert!(memory.bytes.get() >= used as u64 * LONGEST);
            // It may look several times.
            (0..3).for_each(|_| shelf.trim());
            assert_eq!(memory.bytes.get(), kept * LONGEST, "{used} blocks");
        }
        assert_eq!(memory.made.get(), 5 + 18);
    }

    #[test]
    fn blocks_of_other_sizes_serve_before_more_than_is_kept_is_made() {
        let (memory, mut shelf, mut arena) = (memory(), Shelf::new(KEPT), Arena::default());
        fill(&mut arena, &mut shelf, &memory, &[LONGEST; 2]);
        arena.clear(&mut shelf);
        // As much as is kept: small ones are made beside it.
        fill(&mut arena, &mut shelf, &memory, &[10]);
        assert_eq!((memory.made.get(), memory.bytes.get()), (3, 2 * LONGEST + SMALLEST));
        arena.clear(&mut shelf);
        // Now there is more.
        fill(&mut arena, &mut shelf, &memory, &[1 << 20, 1 << 20]);
        assert_eq!(memory.made.get(), 3);
        assert_eq!(shelf.take(LONGEST, |_| panic!("there is one")).unwrap().size(), LONGEST);
    }

    #[test]
    fn space_is_taken_at_multiples_from_one_block_until_that_is_full() {
        let (memory, mut shelf, mut arena) = (memory(), Shelf::new(KEPT), Arena::default());
        let mut take = |size, alignment| {
            let (_, spot) = arena.take(&mut shelf, size, alignment, |size| make(&memory, size)).unwrap();
            (spot.block, spot.offset)
        };
        assert_eq!([take(5, 16), take(20, 16), take(1, 256)], [(0, 0), (0, 16), (0, 256)]);
        assert_eq!([take(SMALLEST - 257, 1), take(1, 1)], [(0, 257), (1, 0)]);
        assert_eq!([take(SMALLEST + 1, 1), take(SMALLEST - 1, 1)], [(2, 0), (2, SMALLEST + 1)]);
        assert_eq!(memory.bytes.get(), 4 * SMALLEST);
    }

    #[test]
    fn who_is_short_of_memory_has_what_nobody_uses_first() {
        let (memory, mut shelf, mut arena) = (memory(), Shelf::new(KEPT), Arena::default());
        fill(&mut arena, &mut shelf, &memory, &[1 << 20, 1 << 20]);
        arena.clear(&mut shelf);
        memory.most.set(4 << 20);
        fill(&mut arena, &mut shelf, &memory, &[4 << 20]);
        assert_eq!(memory.bytes.get(), 4 << 20);
        let refused = shelf.take(1, |size| make(&memory, size)).map(drop).unwrap_err();
        assert!(matches!(&refused, Error::OutOfMemory(short) if short.requested == SMALLEST), "{refused:?}");
    }
}
