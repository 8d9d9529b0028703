//! A page of memory and its shadow: for each four bytes who wrote last, who read since, and which bytes were ever written.

use std::collections::HashMap;

use crate::clock::{Clock, Stamp};

/// Bytes of a page.
pub(super) const PAGE: usize = 4096;

/// Bytes that one entry of the shadow tells of.
const CELL: usize = 4;

/// What memory holds that nobody wrote, so that it is noticed where it is used all the same.
const UNWRITTEN: u8 = 0xA5;

#[derive(Clone, Copy, Default)]
struct Cell {
    write: Stamp,
    read: Stamp,
    /// Bytes of the last write, of the reads since, and those ever written; a bit each.
    written: u8,
    seen: u8,
    initialised: u8,
    /// The last write was atomic, and meets other atomic operations unharmed.
    atomic: bool,
    /// Reads that nothing orders with the one kept here are in the page's list.
    crowded: bool,
}

/// Why two accesses do not go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Conflict {
    /// Distance of the four bytes from the page's beginning.
    pub(super) at: usize,
    pub(super) with: Stamp,
    /// The other access wrote.
    pub(super) wrote: bool,
}

/// What an access to a page showed; the first of each kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Noticed {
    pub(super) conflict: Option<Conflict>,
    /// Distance of the first four bytes that were read and hold bytes nobody wrote.
    pub(super) uninitialised: Option<usize>,
}

/// Who accesses, and what is over before that.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a> {
    pub(super) stamp: Stamp,
    pub(super) clock: &'a Clock,
}

/// A page and its shadow.
pub(super) struct Page {
    bytes: [u8; PAGE],
    cells: [Cell; PAGE / CELL],
    crowds: HashMap<u16, Vec<Stamp>>,
}

/// The bits of a cell's bytes that lie in `from..to`.
#[inline]
fn bits(cell: usize, from: usize, to: usize) -> u8 {
    let first = from.saturating_sub(cell * CELL).min(CELL);
    let end = to.saturating_sub(cell * CELL).min(CELL);
    ((1u8 << end) - 1) & !((1u8 << first) - 1)
}

impl Page {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self { bytes: [UNWRITTEN; PAGE], cells: [Cell::default(); PAGE / CELL], crowds: HashMap::new() })
    }

    pub(super) fn read(&mut self, from: usize, out: &mut [u8], moment: Moment<'_>) -> Noticed {
        out.copy_from_slice(&self.bytes[from..from + out.len()]);
        self.mark_read(from, from + out.len(), moment)
    }

    pub(super) fn write(&mut self, from: usize, data: &[u8], moment: Moment<'_>) -> Noticed {
        self.bytes[from..from + data.len()].copy_from_slice(data);
        self.mark_write(from, from + data.len(), moment, false)
    }

    pub(super) fn fill(&mut self, from: usize, length: usize, byte: u8, moment: Moment<'_>) -> Noticed {
        self.bytes[from..from + length].fill(byte);
        self.mark_write(from, from + length, moment, false)
    }

    /// Replaces up to eight bytes by what `f` makes of them, and gives what was there.
    pub(super) fn replace(
        &mut self,
        from: usize,
        size: usize,
        f: &mut dyn FnMut(u64) -> u64,
        moment: Moment<'_>,
    ) -> (u64, Noticed) {
        let mut word = [0; 8];
        word[..size].copy_from_slice(&self.bytes[from..from + size]);
        let old = u64::from_le_bytes(word);
        self.bytes[from..from + size].copy_from_slice(&f(old).to_le_bytes()[..size]);
        let uninitialised = self.first_uninitialised(from, from + size);
        let noticed = self.mark_write(from, from + size, moment, true);
        (old, Noticed { uninitialised, ..noticed })
    }

    /// What giving the memory back at this moment meets: every access that is not over.
    pub(super) fn end(&mut self, moment: Moment<'_>) -> Noticed {
        self.mark_write(0, PAGE, moment, false)
    }

    fn first_uninitialised(&self, from: usize, to: usize) -> Option<usize> {
        (from / CELL..to.div_ceil(CELL))
            .find(|cell| self.cells[*cell].initialised & bits(*cell, from, to) != bits(*cell, from, to))
            .map(|cell| cell * CELL)
    }

    fn mark_read(&mut self, from: usize, to: usize, moment: Moment<'_>) -> Noticed {
        let mut noticed = Noticed::default();
        for index in from / CELL..to.div_ceil(CELL) {
            let mask = bits(index, from, to);
            let cell = &mut self.cells[index];
            if cell.initialised & mask != mask && noticed.uninitialised.is_none() {
                noticed.uninitialised = Some(index * CELL);
            }
            if cell.written & mask != 0 && noticed.conflict.is_none() && !moment.clock.knows(cell.write) {
                noticed.conflict = Some(Conflict { at: index * CELL, with: cell.write, wrote: true });
            }
            if cell.read == moment.stamp {
                cell.seen |= mask;
                continue;
            }
            if moment.clock.knows(cell.read) {
                cell.seen = mask;
            } else {
                let crowd = self.crowds.entry(index as u16).or_default();
                if !crowd.contains(&cell.read) {
                    crowd.push(cell.read);
                }
                cell.crowded = true;
                cell.seen |= mask;
            }
            cell.read = moment.stamp;
        }
        noticed
    }

    fn mark_write(&mut self, from: usize, to: usize, moment: Moment<'_>, atomic: bool) -> Noticed {
        let mut noticed = Noticed::default();
        for index in from / CELL..to.div_ceil(CELL) {
            let mask = bits(index, from, to);
            let cell = &mut self.cells[index];
            if noticed.conflict.is_none() {
                let at = index * CELL;
                if cell.written & mask != 0 && !(cell.atomic && atomic) && !moment.clock.knows(cell.write) {
                    noticed.conflict = Some(Conflict { at, with: cell.write, wrote: true });
                } else if cell.seen & mask != 0 {
                    let crowd = if cell.crowded { self.crowds.get(&(index as u16)) } else { None };
                    let mut readers = crowd.into_iter().flatten().chain([&cell.read]);
                    let other = readers.find(|stamp| !moment.clock.knows(**stamp));
                    noticed.conflict = other.map(|with| Conflict { at, with: *with, wrote: false });
                }
            }
            if cell.crowded {
                self.crowds.remove(&(index as u16));
                cell.crowded = false;
            }
            cell.written = if cell.write == moment.stamp { cell.written | mask } else { mask };
            cell.write = moment.stamp;
            cell.read = Stamp::default();
            cell.seen = 0;
            cell.atomic = atomic;
            cell.initialised |= mask;
        }
        noticed
    }
}

#[cfg(test)]
mod tests {
    use super::{Moment, Page};
    use crate::clock::Clock;

    #[test]
    fn writes_that_nothing_orders_conflict_and_ordered_ones_do_not() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        let mut page = Page::new();
        let first = a.tick(1);
        assert_eq!(page.write(0, &[1; 8], Moment { stamp: first, clock: &a }).conflict, None);
        let second = b.tick(2);
        let noticed = page.write(4, &[2; 4], Moment { stamp: second, clock: &b });
        assert_eq!(
            noticed.conflict.map(|conflict| (conflict.at, conflict.with, conflict.wrote)),
            Some((4, first, true))
        );
        a.join(&b);
        let third = a.tick(1);
        assert_eq!(page.write(0, &[3; 8], Moment { stamp: third, clock: &a }).conflict, None);
    }

    #[test]
    fn every_reader_of_several_is_remembered() {
        let mut page = Page::new();
        let mut writer = Clock::default();
        let stamp = writer.tick(0);
        page.write(0, &[1; 4], Moment { stamp, clock: &writer });
        let (mut a, mut b) = (writer.clone(), writer.clone());
        let (first, second) = (a.tick(1), b.tick(2));
        let mut out = [0; 4];
        page.read(0, &mut out, Moment { stamp: first, clock: &a });
        page.read(0, &mut out, Moment { stamp: second, clock: &b });
        // Who knows of the last reader alone still meets the one before.
        let stamp = b.tick(2);
        let noticed = page.write(0, &[2; 4], Moment { stamp, clock: &b });
        assert_eq!(noticed.conflict.map(|conflict| (conflict.with, conflict.wrote)), Some((first, false)));
    }

    #[test]
    fn neighbouring_bytes_do_not_conflict() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        let mut page = Page::new();
        let stamp = a.tick(1);
        page.write(0, &[1], Moment { stamp, clock: &a });
        let stamp = b.tick(2);
        assert_eq!(page.write(1, &[1], Moment { stamp, clock: &b }).conflict, None);
    }

    #[test]
    fn bytes_are_initialised_one_by_one() {
        let mut clock = Clock::default();
        let mut page = Page::new();
        let stamp = clock.tick(1);
        page.write(8, &[1; 3], Moment { stamp, clock: &clock });
        let mut out = [0; 4];
        assert_eq!(page.read(8, &mut out[..3], Moment { stamp, clock: &clock }).uninitialised, None);
        assert_eq!(page.read(8, &mut out, Moment { stamp, clock: &clock }).uninitialised, Some(8));
    }

    #[test]
    fn atomic_operations_meet_each_other_but_not_plain_ones() {
        let (mut a, mut b) = (Clock::default(), Clock::default());
        let mut page = Page::new();
        let stamp = a.tick(1);
        page.replace(0, 4, &mut |old| old, Moment { stamp, clock: &a });
        let stamp = b.tick(2);
        assert_eq!(page.replace(0, 4, &mut |old| old, Moment { stamp, clock: &b }).1.conflict, None);
        let stamp = a.tick(1);
        assert!(page.write(0, &[0; 4], Moment { stamp, clock: &a }).conflict.is_some());
    }
}
