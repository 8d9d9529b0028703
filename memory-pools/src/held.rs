//! The pages of one pool, in a row, each found by its index in the table of pages in constant time.

use alloc::vec::Vec;
use hashbrown::HashMap;

/// The pages, each with what the pool knows about it.
pub(crate) struct Held<T> {
    pages: Vec<(u32, T)>,
    positions: HashMap<u32, u32>,
}

impl<T> Held<T> {
    pub(crate) fn new() -> Self {
        Self { pages: Vec::new(), positions: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    pub(crate) fn push(&mut self, page: u32, known: T) {
        self.positions.insert(page, self.pages.len() as u32);
        self.pages.push((page, known));
    }

    pub(crate) fn at(&self, position: usize) -> Option<&T> {
        self.pages.get(position).map(|(_, known)| known)
    }

    /// What the pool knows about a page.
    pub(crate) fn of(&self, page: u32) -> Option<&T> {
        self.at(self.position(page)?)
    }

    /// The same, to be changed.
    pub(crate) fn of_mut(&mut self, page: u32) -> Option<&mut T> {
        let position = self.position(page)?;
        self.pages.get_mut(position).map(|(_, known)| known)
    }

    /// Where a page is in the row.
    pub(crate) fn position(&self, page: u32) -> Option<usize> {
        self.positions.get(&page).map(|position| *position as usize)
    }

    /// Takes a page out; the last one comes to its position.
    pub(crate) fn take(&mut self, position: usize) -> Option<(u32, T)> {
        if position >= self.pages.len() {
            return None;
        }
        let (page, known) = self.pages.swap_remove(position);
        self.positions.remove(&page);
        if let Some((moved, _)) = self.pages.get(position) {
            self.positions.insert(*moved, position as u32);
        }
        Some((page, known))
    }

    /// The last page before the position `from`, the end where it is `None`, of which something is true. `from` moves on.
    pub(crate) fn last_before(&self, from: &mut Option<usize>, is: impl Fn(&T) -> bool) -> Option<usize> {
        let end = from.unwrap_or(usize::MAX).min(self.pages.len());
        let found = self.pages[..end].iter().rposition(|(_, known)| is(known));
        *from = Some(found.unwrap_or(0));
        found
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.pages.iter().map(|(page, known)| (*page, known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_where_it_moved_to() {
        let mut held = Held::new();
        (10..15).for_each(|page| held.push(page, page * 2));
        assert_eq!(held.take(1), Some((11, 22)));
        assert_eq!((held.position(14), held.position(11), held.len()), (Some(1), None, 4));
        assert_eq!((held.take(3), held.take(3)), (Some((13, 26)), None));
        let found: Vec<_> =
            [10, 14, 12].into_iter().filter_map(|page| held.at(held.position(page)?)).copied().collect();
        assert_eq!(found, [20, 28, 24]);
    }

    #[test]
    fn every_page_is_looked_at_once_on_the_way_to_the_first() {
        let mut held = Held::new();
        (0..100).for_each(|page| held.push(page, page % 3 == 0));
        let (looks, mut from) = (core::cell::Cell::new(0), None);
        let mut taken = 0;
        while let Some(position) = held.last_before(&mut from, |is| {
            looks.set(looks.get() + 1);
            *is
        }) {
            assert!(held.take(position).is_some());
            taken += 1;
        }
        assert_eq!((taken, held.len(), looks.get()), (34, 66, 100));
    }
}
