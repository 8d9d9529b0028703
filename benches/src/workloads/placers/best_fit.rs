//! The reference for waste: the smallest free block that holds a request, the lowest of several, merged with its neighbours when freed.
//!
//! The arena has no end: what no free block holds goes behind everything.

use std::collections::{BTreeMap, BTreeSet};

/// An arena of bytes, of unlimited length.
#[derive(Debug, Default)]
pub(super) struct BestFit {
    /// Lengths by offset, and the same as (length, offset).
    by_offset: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    /// Behind the last block in use.
    top: u64,
}

impl BestFit {
    /// Where the block begins.
    pub(super) fn allocate(&mut self, size: u64) -> u64 {
        if let Some((length, offset)) = self.by_length.range((size, 0)..).next().copied() {
            self.take(offset, length);
            self.keep(offset + size, length - size);
            return offset;
        }
        self.top += size;
        self.top - size
    }

    /// Frees what `allocate` gave.
    pub(super) fn free(&mut self, mut offset: u64, mut size: u64) {
        if let Some(length) = self.by_offset.get(&(offset + size)).copied() {
            self.take(offset + size, length);
            size += length;
        }
        if let Some((before, length)) = self.by_offset.range(..offset).next_back().map(|(at, length)| (*at, *length))
            && before + length == offset
        {
            self.take(before, length);
            (offset, size) = (before, size + length);
        }
        if offset + size == self.top {
            self.top = offset;
        } else {
            self.keep(offset, size);
        }
    }

    fn take(&mut self, offset: u64, length: u64) {
        self.by_offset.remove(&offset);
        self.by_length.remove(&(length, offset));
    }

    fn keep(&mut self, offset: u64, length: u64) {
        if length > 0 {
            self.by_offset.insert(offset, length);
            self.by_length.insert((length, offset));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_block_is_taken_and_neighbours_merge() {
        let mut arena = BestFit::default();
        let offsets: Vec<_> = [10, 1, 5, 1, 7, 1].map(|size| arena.allocate(size)).to_vec();
        assert_eq!(offsets, [0, 10, 11, 16, 17, 24]);
        arena.free(0, 10);
        arena.free(11, 5);
        arena.free(17, 7);
        assert_eq!(arena.allocate(6), 17, "seven units hold six more tightly than ten");
        arena.free(10, 1);
        assert_eq!(arena.allocate(16), 0, "ten, one and five units are one block");
        arena.free(24, 1);
        assert_eq!(arena.allocate(3), 23, "what is free before the end is not behind it");
    }
}
