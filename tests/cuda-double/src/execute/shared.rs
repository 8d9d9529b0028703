//! Shared memory of a block, and for each byte which thread touched it since the last barrier.

use super::WARP;

/// Who touched a byte, and how many barriers of block and warp were before.
#[derive(Clone, Copy, Default)]
struct Touch {
    /// The thread's number and one; zero is nobody.
    thread: u32,
    epoch: u32,
    warp_epoch: u32,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    write: Touch,
    read: Touch,
    /// Another read that no barrier separates from the one kept.
    other_read: Touch,
    atomic: bool,
}

/// What a touch showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Noticed {
    /// Another thread's access that no barrier separates from this one: where, whose, and whether it wrote.
    Race { at: usize, thread: usize, wrote: bool },
    /// A byte that nobody wrote is read.
    Uninitialised { at: usize },
}

/// How a byte is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    Read,
    Write,
    Atomic,
}

/// The shared memory of one block after the other.
pub(super) struct Shared {
    bytes: Vec<u8>,
    cells: Vec<Cell>,
    /// Barriers of the block so far. Goes on from block to block, so that nothing need be cleared.
    epoch: u32,
    /// The first of this block.
    first_epoch: u32,
    warp_epochs: Vec<u32>,
    said_race: bool,
    said_uninitialised: bool,
}

impl Shared {
    pub(super) fn new(bytes: usize, warps: usize) -> Self {
        Self {
            bytes: vec![0; bytes],
            cells: vec![Cell::default(); bytes],
            epoch: 0,
            first_epoch: 0,
            warp_epochs: vec![0; warps],
            said_race: false,
            said_uninitialised: false,
        }
    }

    pub(super) fn begin(&mut self) {
        self.bytes.fill(0xCD);
        self.epoch += 1;
        self.first_epoch = self.epoch;
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Everything before is ordered before everything after, for the whole block.
    pub(super) fn order_block(&mut self) {
        self.epoch += 1;
    }

    /// The same within a warp.
    pub(super) fn order_warp(&mut self, warp: usize) {
        self.warp_epochs[warp] += 1;
    }

    pub(super) fn bytes(&self, at: usize, length: usize) -> &[u8] {
        &self.bytes[at..at + length]
    }

    pub(super) fn bytes_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        &mut self.bytes[at..at + length]
    }

    fn is_ordered(&self, touch: Touch, thread: u32) -> bool {
        touch.thread == thread || touch.epoch < self.epoch || {
            let (theirs, own) = ((touch.thread as usize - 1) / WARP, (thread as usize - 1) / WARP);
            theirs == own && touch.warp_epoch < self.warp_epochs[own]
        }
    }

    fn race(&mut self, at: usize, touch: Touch, wrote: bool) -> Option<Noticed> {
        let said = core::mem::replace(&mut self.said_race, true);
        (!said).then_some(Noticed::Race { at, thread: touch.thread as usize - 1, wrote })
    }

    /// Notes that a thread touches bytes; what is noticed is told once a launch and kind.
    pub(super) fn touch(&mut self, thread: usize, at: usize, length: usize, used: Use) -> Option<Noticed> {
        let number = thread as u32 + 1;
        let own = Touch { thread: number, epoch: self.epoch, warp_epoch: self.warp_epochs[thread / WARP] };
        let mut noticed = None;
        for index in at..at + length {
            let cell = self.cells[index];
            let written = cell.write.thread != 0 && cell.write.epoch >= self.first_epoch;
            if written && !(cell.atomic && used == Use::Atomic) && !self.is_ordered(cell.write, number) {
                noticed = noticed.or(self.race(index, cell.write, true));
            }
            if used == Use::Read {
                if !written && !self.said_uninitialised {
                    self.said_uninitialised = true;
                    noticed = noticed.or(Some(Noticed::Uninitialised { at: index }));
                }
                let cell = &mut self.cells[index];
                if cell.read.thread != number && cell.read.epoch == self.epoch {
                    cell.other_read = cell.read;
                }
                cell.read = own;
                continue;
            }
            for touch in [cell.read, cell.other_read] {
                if touch.thread != 0 && touch.epoch >= self.first_epoch && !self.is_ordered(touch, number) {
                    noticed = noticed.or(self.race(index, touch, false));
                }
            }
            let cell = &mut self.cells[index];
            cell.write = own;
            cell.atomic = used == Use::Atomic;
        }
        noticed
    }
}

#[cfg(test)]
mod tests {
    use super::{Noticed, Shared, Use};

    fn shared() -> Shared {
        let mut shared = Shared::new(64, 2);
        shared.begin();
        shared
    }

    #[test]
    fn a_barrier_orders_and_without_one_there_is_a_race() {
        let mut shared = shared();
        assert_eq!(shared.touch(0, 0, 4, Use::Write), None);
        shared.order_block();
        assert_eq!(shared.touch(40, 0, 4, Use::Read), None);
        assert_eq!(shared.touch(1, 0, 4, Use::Write), Some(Noticed::Race { at: 0, thread: 40, wrote: false }));
    }

    #[test]
    fn both_of_two_readers_are_remembered() {
        let mut shared = shared();
        shared.touch(0, 0, 1, Use::Write);
        shared.order_block();
        shared.touch(1, 0, 1, Use::Read);
        shared.touch(2, 0, 1, Use::Read);
        assert_eq!(shared.touch(2, 0, 1, Use::Write), Some(Noticed::Race { at: 0, thread: 1, wrote: false }));
    }

    #[test]
    fn a_warp_barrier_orders_its_warp_only() {
        let mut shared = shared();
        shared.touch(0, 0, 4, Use::Write);
        shared.order_warp(0);
        assert_eq!(shared.touch(1, 0, 4, Use::Read), None);
        assert_eq!(shared.touch(33, 0, 4, Use::Read), Some(Noticed::Race { at: 0, thread: 0, wrote: true }));
    }

    #[test]
    fn neighbouring_bytes_and_atomic_operations_are_no_race() {
        let mut shared = shared();
        shared.touch(0, 0, 1, Use::Write);
        assert_eq!(shared.touch(1, 1, 1, Use::Write), None);
        shared.touch(0, 8, 4, Use::Atomic);
        assert_eq!(shared.touch(40, 8, 4, Use::Atomic), None);
    }

    #[test]
    fn what_the_block_before_wrote_is_not_there() {
        let mut shared = shared();
        shared.touch(0, 0, 4, Use::Write);
        shared.begin();
        assert_eq!(shared.touch(0, 0, 4, Use::Read), Some(Noticed::Uninitialised { at: 0 }));
    }
}
