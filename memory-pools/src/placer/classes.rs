//! Size classes, sixteen to a power of two, and free lists by class: a first block for each, with a bitmap over them.

use super::nodes::NOBODY;
use core::hint::select_unpredictable;

/// The rank of what lies behind the last block of a span, and of no block.
pub(super) const LAST: u64 = u64::MAX;
const COLUMN_BITS: u32 = 4;
const COLUMNS: u32 = 1 << COLUMN_BITS;
/// Rows used: one for sizes below `COLUMNS`, one for each higher power of two of a `u32`. Tables are rounded up to powers of two.
const ROWS: usize = 32;
pub(super) const CLASSES: usize = ROWS << COLUMN_BITS;
const WORD: u32 = u64::BITS;
const WORDS: usize = CLASSES / WORD as usize;
/// A class that no size has, as the tables are rounded up. What is written to its first block is written to nowhere.
const NOWHERE: usize = CLASSES - 1;
const _: () = assert!((class_of(u32::MAX) as usize) < NOWHERE, "a size has the class");

/// One lane's free lists.
#[derive(Clone)]
pub(super) struct Lists {
    /// A bit for each class that has a block, and a word of zeros. Eight words are looked through quicker than it is noted which are 0.
    words: [u64; WORDS + 1],
    heads: [u32; CLASSES],
    /// The heads' ranks, so that one is chosen without a look at them.
    ranks: [u64; CLASSES + WORD as usize],
}

impl Lists {
    pub(super) const EMPTY: Self =
        Self { words: [0; WORDS + 1], heads: [NOBODY; CLASSES], ranks: [LAST; CLASSES + WORD as usize] };

    /// The first block of a class, or [`NOBODY`].
    #[inline(always)]
    pub(super) fn head(&self, class: u32) -> u32 {
        self.heads[class as usize % CLASSES]
    }

    /// The rank of the first block of a class, [`LAST`] where there is none.
    #[inline(always)]
    pub(super) fn rank(&self, class: u32) -> u64 {
        self.ranks[class as usize % CLASSES]
    }

    /// Sets the first block of a class, which has one.
    #[inline(always)]
    pub(super) fn set_head(&mut self, class: u32, head: u32, rank: u64) {
        let at = class as usize % CLASSES;
        (self.heads[at], self.ranks[at]) = (head, rank);
        self.words[at / WORD as usize] |= 1 << (class % WORD);
    }

    /// Sets what became the first block of a class in the place of another, which left its list:
    /// [`NOBODY`], with [`LAST`], where it has none any more. Changes nothing where what left wasn't the `first`.
    ///
    /// Without a branch: whether it was, and whether a list ends, can't be foreseen.
    #[inline(always)]
    pub(super) fn replace_head(&mut self, class: u32, first: bool, head: u32, rank: u64) {
        let class = class as usize % CLASSES;
        let at = select_unpredictable(first, class, NOWHERE);
        (self.heads[at], self.ranks[at]) = (head, rank);
        self.words[class / WORD as usize] ^= u64::from(first & (head == NOBODY)) << (class as u32 % WORD);
    }

    /// The largest class that has a block.
    pub(super) fn last_class(&self) -> Option<u32> {
        (0..WORDS).rev().find_map(|word| Some(word as u32 * WORD + self.words[word].checked_ilog2()?))
    }

    /// The first class that has a block, of this one and those above.
    #[inline(always)]
    pub(super) fn first_from(&self, class: u32) -> Option<u32> {
        let window = self.window(class);
        if window != 0 {
            return Some(class + window.trailing_zeros());
        }
        // A bit for each word, rather than a branch: which of them is the first that isn't 0 can't be foreseen.
        let mut filled = 0;
        for word in 0..WORDS {
            filled |= u32::from(self.words[word] != 0) << word;
        }
        let beyond = filled & !1 << (class / WORD % WORDS as u32);
        if beyond == 0 {
            return None;
        }
        let word = beyond.trailing_zeros() % WORDS as u32;
        Some(word * WORD + self.words[word as usize].trailing_zeros())
    }

    /// The class whose first block is lowest, of `from` and of the first `LOOKS` others up to `last` that have a block. Those 63 classes
    /// or more above `from` aren't looked at.
    #[inline(always)]
    pub(super) fn lowest<const LOOKS: usize>(&self, from: u32, last: u32) -> u32 {
        let further = last.saturating_sub(from).min(WORD - 1);
        let mut window = self.window(from) & (2u64 << further).wrapping_sub(2);
        if window == 0 {
            return from;
        }
        let ranks: &[u64; WORD as usize] =
            self.ranks[from as usize % CLASSES..].first_chunk().unwrap_or(&[LAST; WORD as usize]);
        let (mut best, mut lowest) = (0, ranks[0]);
        // Without branches: which of the classes have a block, and which of those is lowest, can't be foreseen.
        for _ in 0..LOOKS {
            // When all were looked at, the first again.
            let class = window.trailing_zeros() % WORD;
            window &= window.wrapping_sub(1);
            let rank = ranks[class as usize];
            best = select_unpredictable(rank < lowest, class, best);
            lowest = lowest.min(rank);
        }
        from + best
    }

    /// A bit for each of the 64 classes from this one on, set for those that have a block, the lowest for the class itself.
    #[inline(always)]
    pub(super) fn window(&self, class: u32) -> u64 {
        let (word, bit) = ((class / WORD) as usize % WORDS, class % WORD);
        // Shifted in two steps: by 64 at once is not defined.
        self.words[word] >> bit | self.words[word + 1] << 1 << (WORD - 1 - bit)
    }
}

/// The class of a block of this size: the largest class whose smallest block is no larger.
///
/// Sizes below a row are classes of their own, which falls out of counting them to the row above: no branch.
#[inline(always)]
pub(super) const fn class_of(size: u32) -> u32 {
    let shift = (size | COLUMNS).ilog2() - COLUMN_BITS;
    (shift << COLUMN_BITS) + (size >> shift)
}
