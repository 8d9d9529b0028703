//! Slots that live as long as the process and are given out again and again: control blocks can be referred to by `&'static`,
//! so that a handle is a plain pointer without any unsafe code, and a slot's generation tells its tenants apart.
//!
//! The memory stays with the process: its size is the most slots that were ever in use at once.

use crate::sync::const_fn;
use crate::sync::explored::{AtomicU32, AtomicU64, Mutex, Ordering};
use alloc::boxed::Box;

/// What a slot must be able to tell: its link in the one list it is in, free or otherwise.
pub(crate) trait Slot: Sync + 'static {
    /// A slot that will be found under this index.
    fn new(index: u32) -> Self;
    /// The index it was made with.
    fn index(&self) -> u32;
    /// The next slot of the list: index + 1, or 0 at its end.
    fn link(&self) -> &AtomicU32;
}

/// The first chunk has 2 to this power. A model makes them all anew each time it runs.
const FIRST_LOG: u32 = if cfg!(loom) { 1 } else { 5 };
/// Chunks double in size, so that so many of them cover every index and none ever moves.
const CHUNKS: usize = (u32::BITS - FIRST_LOG) as usize;

pub(crate) struct Slab<T: Slot> {
    /// Nobody waits at these, or relies on their order: they are made under the lock, and an index is only known from a list.
    chunks: [spin::Once<Box<[T]>>; CHUNKS],
    grow: Mutex<u32>,
    /// The free list's first slot: index + 1 in the low half. The high half counts changes, so that a head that
    /// left and came back between a load and an exchange is not taken for one that stayed.
    free: AtomicU64,
}

impl<T: Slot> Slab<T> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self { chunks: [const { spin::Once::new() }; CHUNKS], grow: Mutex::new(0), free: AtomicU64::new(0) }
        }
    }

    /// The slot with this index, if it was ever made.
    pub(crate) fn get(&'static self, index: u32) -> Option<&'static T> {
        let position = u64::from(index) + (1 << FIRST_LOG);
        let log = position.ilog2();
        self.chunks[(log - FIRST_LOG) as usize].get()?.get((position - (1 << log)) as usize)
    }

    /// A free slot. `None` when every index is in use.
    pub(crate) fn take(&'static self) -> Option<&'static T> {
        loop {
            if let Some(slot) = self.pop() {
                return Some(slot);
            }
            let mut chunks = self.grow.lock();
            // Somebody may have grown it, or given a slot back, while this thread waited.
            if let Some(slot) = self.pop() {
                return Some(slot);
            }
            if *chunks as usize == CHUNKS {
                return None;
            }
            let (first, count) = ((1u64 << (FIRST_LOG + *chunks)) - (1 << FIRST_LOG), 1u64 << (FIRST_LOG + *chunks));
            let made =
                self.chunks[*chunks as usize].call_once(|| (first..first + count).map(|i| T::new(i as u32)).collect());
            *chunks += 1;
            made.iter().rev().for_each(|slot| self.give(slot));
        }
    }

    fn pop(&'static self) -> Option<&'static T> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let slot = self.get((head as u32).checked_sub(1)?)?;
            let next = ((head >> 32).wrapping_add(1) << 32) | u64::from(slot.link().load(Ordering::Relaxed));
            match self.free.compare_exchange_weak(head, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(slot),
                Err(now) => head = now,
            }
        }
    }

    /// Gives a slot back. The caller is the only one who still uses it.
    pub(crate) fn give(&self, slot: &T) {
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            slot.link().store(head as u32, Ordering::Relaxed);
            let next = ((head >> 32).wrapping_add(1) << 32) | u64::from(slot.index() + 1);
            match self.free.compare_exchange_weak(head, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// Puts a slot at the head of a list that is only ever taken whole.
pub(crate) fn push(list: &AtomicU32, slot: &impl Slot) {
    let mut head = list.load(Ordering::Relaxed);
    loop {
        slot.link().store(head, Ordering::Relaxed);
        match list.compare_exchange_weak(head, slot.index() + 1, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use super::*;

    struct Cell {
        index: u32,
        link: AtomicU32,
        held: AtomicU32,
    }

    impl Slot for Cell {
        fn new(index: u32) -> Self {
            Self { index, link: AtomicU32::new(0), held: AtomicU32::new(0) }
        }
        fn index(&self) -> u32 {
            self.index
        }
        fn link(&self) -> &AtomicU32 {
            &self.link
        }
    }

    #[test]
    fn no_slot_is_held_twice_while_threads_take_and_give() {
        static SLAB: Slab<Cell> = Slab::new();
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for round in 0..2_000 {
                        let held: alloc::vec::Vec<_> = (0..1 + round % 7).map(|_| SLAB.take().unwrap()).collect();
                        for slot in &held {
                            assert_eq!(slot.held.swap(1, Ordering::Relaxed), 0);
                            assert!(core::ptr::eq(SLAB.get(slot.index).unwrap(), *slot));
                        }
                        for slot in held {
                            slot.held.store(0, Ordering::Relaxed);
                            SLAB.give(slot);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn indices_are_dense_from_zero() {
        static SLAB: Slab<Cell> = Slab::new();
        let taken: alloc::vec::Vec<u32> = (0..100).map(|_| SLAB.take().unwrap().index).collect();
        assert_eq!(taken, (0..100).collect::<alloc::vec::Vec<_>>());
    }
}
