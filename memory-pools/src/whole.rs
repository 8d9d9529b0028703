//! Pools whose allocations are whole pages: dedicated, persistent and exclusive ones.

use crate::placer::NONE;
use alloc::vec::Vec;
use hashbrown::HashMap;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::timeline::{Frontier, Timeline};

struct Freed {
    /// [`NONE`] where the entry is vacant.
    page: u32,
    size: u64,
    frontier: Frontier,
    /// Neighbours among the freed pages of this size.
    previous: u32,
    next: u32,
}

/// Pages given out as a whole, and the freed ones by their size.
pub(crate) struct Whole {
    freed: Vec<Freed>,
    vacant: Vec<u32>,
    of_size: HashMap<u64, u32>,
    turn: usize,
}

impl Whole {
    pub(crate) fn new() -> Self {
        Self { freed: Vec::new(), vacant: Vec::new(), of_size: HashMap::new(), turn: 0 }
    }

    /// A freed page of exactly this size that `stream` may have at once, among the first `looks` of that size.
    pub(crate) fn reuse(
        &mut self,
        size: u64,
        looks: usize,
        stream: StreamId,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<u32> {
        let mut at = *self.of_size.get(&size)?;
        for _ in 0..looks {
            let entry = self.freed.get(at as usize)?;
            if entry.frontier.is_free_for(stream, timeline) {
                return Some(self.remove(at));
            }
            at = entry.next;
        }
        None
    }

    /// Whether a freed page is kept.
    pub(crate) fn holds_freed(&self) -> bool {
        self.freed.len() > self.vacant.len()
    }

    /// Keeps a freed page until it is reused or taken.
    pub(crate) fn put(&mut self, page: u32, size: u64, frontier: Frontier) {
        let next = self.of_size.get(&size).copied().unwrap_or(NONE);
        let entry = Freed { page, size, frontier, previous: NONE, next };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.freed[index as usize] = entry;
                index
            }
            None => {
                self.freed.push(entry);
                (self.freed.len() - 1) as u32
            }
        };
        if next != NONE {
            self.freed[next as usize].previous = index;
        }
        self.of_size.insert(size, index);
    }

    fn remove(&mut self, index: u32) -> u32 {
        let entry = &mut self.freed[index as usize];
        let page = core::mem::replace(&mut entry.page, NONE);
        entry.frontier = Frontier::new();
        let (size, previous, next) = (entry.size, entry.previous, entry.next);
        if next != NONE {
            self.freed[next as usize].previous = previous;
        }
        if previous != NONE {
            self.freed[previous as usize].next = next;
        } else if next != NONE {
            self.of_size.insert(size, next);
        } else {
            self.of_size.remove(&size);
        }
        self.vacant.push(index);
        page
    }

    /// Takes out one freed page whose last use is done; looks at one page a call, at each in turn.
    pub(crate) fn take_done_in_turn(&mut self, timeline: &(impl Timeline + ?Sized)) -> Option<u32> {
        if self.freed.len() == self.vacant.len() {
            return None;
        }
        self.turn = if self.turn + 1 < self.freed.len() { self.turn + 1 } else { 0 };
        let entry = &self.freed[self.turn];
        (entry.page != NONE && entry.frontier.is_done(timeline)).then(|| self.remove(self.turn as u32))
    }

    /// Takes out one freed page whose last use is done, if there is any from the entry `from` on, which moves on.
    pub(crate) fn take_done(&mut self, from: &mut Option<usize>, timeline: &(impl Timeline + ?Sized)) -> Option<u32> {
        let begin = from.unwrap_or(0);
        let is_done = |entry: &Freed| entry.page != NONE && entry.frontier.is_done(timeline);
        let found = self.freed.get(begin..)?.iter().position(is_done);
        *from = Some(found.map_or(self.freed.len(), |found| begin + found + 1));
        Some(self.remove((begin + found?) as u32))
    }

    /// The freed pages: their bytes, and what is to be done before they may be returned.
    pub(crate) fn emptying(&self, mut each: impl FnMut(u64, Frontier)) {
        let freed = self.freed.iter().filter(|entry| entry.page != NONE);
        freed.for_each(|entry| each(entry.size, entry.frontier.clone()));
    }

    /// What the earliest freed page of exactly this size waits for.
    pub(crate) fn when_fits(&self, size: u64) -> Option<Frontier> {
        let of_size = self.freed.iter().filter(|entry| entry.page != NONE && entry.size == size);
        of_size.map(|entry| &entry.frontier).min_by_key(|frontier| crate::general::latest(frontier)).cloned()
    }

    /// The largest freed page, in bytes.
    pub(crate) fn largest(&self) -> u64 {
        self.of_size.keys().copied().max().unwrap_or(0)
    }
}
