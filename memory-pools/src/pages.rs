//! The pages taken from the driver, under ids that are never renumbered.

use alloc::vec::Vec;
use core::fmt;

/// A page. The generation tells a slot's pages apart, so that a page's id never comes to mean another page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId {
    /// The slot, dense from 0: tables may be indexed by it.
    pub index: u32,
    /// How often the slot was given out.
    pub generation: u32,
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}.{}", self.index, self.generation)
    }
}

struct Entry<P> {
    page: Option<P>,
    generation: u32,
    size: u64,
    /// The number of the pool it was taken for.
    pool: u16,
}

/// A table of pages with stable indices.
pub(crate) struct Pages<P> {
    entries: Vec<Entry<P>>,
    vacant: Vec<u32>,
}

impl<P> Pages<P> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), vacant: Vec::new() }
    }

    pub(crate) fn insert(&mut self, page: P, size: u64, pool: u16) -> u32 {
        if let Some(index) = self.vacant.pop() {
            let entry = &mut self.entries[index as usize];
            entry.page = Some(page);
            (entry.size, entry.pool) = (size, pool);
            return index;
        }
        self.entries.push(Entry { page: Some(page), generation: 0, size, pool });
        (self.entries.len() - 1) as u32
    }

    /// The page and its id, or `None` where the slot is vacant.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<(&P, PageId)> {
        let entry = self.entries.get(index as usize)?;
        Some((entry.page.as_ref()?, PageId { index, generation: entry.generation }))
    }

    /// The bytes of the page.
    pub(crate) fn size(&self, index: u32) -> Option<u64> {
        self.entries.get(index as usize).filter(|entry| entry.page.is_some()).map(|entry| entry.size)
    }

    /// The page, to be made larger, and its size.
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<(&mut P, &mut u64)> {
        let entry = self.entries.get_mut(index as usize)?;
        Some((entry.page.as_mut()?, &mut entry.size))
    }

    /// Takes the page out; its size, 0 where the slot was vacant.
    pub(crate) fn remove(&mut self, index: u32) -> Option<(P, u64)> {
        let entry = self.entries.get_mut(index as usize)?;
        let page = entry.page.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.vacant.push(index);
        Some((page, entry.size))
    }

    /// The pages with their sizes and the numbers of their pools.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&P, u64, u16)> {
        self.entries.iter().filter_map(|entry| Some((entry.page.as_ref()?, entry.size, entry.pool)))
    }

    /// How many slots there are, vacant ones included.
    pub(crate) fn slots(&self) -> u32 {
        self.entries.len() as u32
    }
}
