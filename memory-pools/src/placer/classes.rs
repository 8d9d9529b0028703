//! Size classes, sixteen to a power of two, and free lists by class: a first block for each, with two levels of bitmaps over them.

use super::segregated::NONE;

/// The rank of what lies behind the last block of a span, and of no block.
pub(super) const LAST: u64 = u64::MAX;
const COLUMN_BITS: u32 = 4;
const COLUMNS: u32 = 1 << COLUMN_BITS;
/// Rows used: one for sizes below `COLUMNS`, one for each higher power of two of a `u32`. Tables are rounded up to powers of two.
const ROWS: usize = 32;
pub(super) const CLASSES: usize = ROWS << COLUMN_BITS;

/// One lane's free lists.
#[derive(Clone)]
pub(super) struct Lists {
    /// A bit for each row that has a block, and in it one for each column.
    rows: u32,
    columns: [u32; ROWS],
    heads: [u32; CLASSES],
    /// The heads' ranks, so that one is chosen without a look at them.
    ranks: [u64; CLASSES],
}

impl Lists {
    pub(super) const EMPTY: Self = Self { rows: 0, columns: [0; ROWS], heads: [NONE; CLASSES], ranks: [LAST; CLASSES] };

    /// The first block of a class, or [`NONE`].
    #[inline(always)]
    pub(super) fn head(&self, class: u32) -> u32 {
        self.heads[class as usize % CLASSES]
    }

    /// The rank of the first block of a class, [`LAST`] where there is none.
    #[inline(always)]
    pub(super) fn rank(&self, class: u32) -> u64 {
        self.ranks[class as usize % CLASSES]
    }

    /// Sets the first block of a class, `only` where it has no other.
    #[inline(always)]
    pub(super) fn set_head(&mut self, class: u32, head: u32, rank: u64, only: bool) {
        let at = class as usize % CLASSES;
        (self.heads[at], self.ranks[at]) = (head, rank);
        if only {
            let row = (class >> COLUMN_BITS) as usize % ROWS;
            self.columns[row] |= 1 << (class & (COLUMNS - 1));
            self.rows |= 1 << row;
        }
    }

    /// Says that a class has no block any more.
    #[inline(always)]
    pub(super) fn clear(&mut self, class: u32) {
        let (at, row) = (class as usize % CLASSES, (class >> COLUMN_BITS) as usize % ROWS);
        (self.heads[at], self.ranks[at]) = (NONE, LAST);
        self.columns[row] &= !(1 << (class & (COLUMNS - 1)));
        if self.columns[row] == 0 {
            self.rows &= !(1 << row);
        }
    }

    /// The largest class that has a block.
    pub(super) fn last_class(&self) -> Option<u32> {
        let row = 31u32.checked_sub(self.rows.leading_zeros())?;
        let column = 31u32.checked_sub(self.columns[row as usize % ROWS].leading_zeros())?;
        Some(row << COLUMN_BITS | column)
    }

    /// The classes that have a block, from this one on.
    #[inline(always)]
    pub(super) fn classes_from(&self, class: u32) -> impl Iterator<Item = u32> + '_ {
        let mut row = (class >> COLUMN_BITS) as usize % ROWS;
        let mut columns = self.columns[row] & (!0 << (class & (COLUMNS - 1)));
        let mut rows = self.rows & (!1 << row);
        core::iter::from_fn(move || {
            if columns == 0 {
                if rows == 0 {
                    return None;
                }
                row = rows.trailing_zeros() as usize % ROWS;
                rows &= rows - 1;
                columns = self.columns[row];
            }
            let column = columns.trailing_zeros();
            columns &= columns - 1;
            Some((row as u32) << COLUMN_BITS | column)
        })
    }
}

/// The class of a block of this size: the largest class whose smallest block is no larger.
#[inline(always)]
pub(super) fn class_of(size: u32) -> u32 {
    if size < COLUMNS {
        size
    } else {
        let log = 31 - size.leading_zeros();
        ((log - COLUMN_BITS + 1) << COLUMN_BITS) | ((size >> (log - COLUMN_BITS)) & (COLUMNS - 1))
    }
}
