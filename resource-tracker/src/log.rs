//! What ran and may still fail: the operations since the oldest unfinished one, in order, with their uses.
//!
//! The log is two flat vectors that are reused, so that a warm log allocates nothing. Its size is bounded by what is unfinished:
//! when it is full, done operations leave it from the front, then, behind an operation that takes long, all that are done and
//! touch nothing an unfinished one wrote. Only what must be kept makes it grow.

use crate::marks::{Mark, Spread};
use crate::names::{Name, Names};
use crate::uses::Use;
use alloc::vec::Vec;
use trunnion_runtime_core::failure::Failure;
use trunnion_runtime_core::timeline::{Moment, Timeline};

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Moment,
    name: Name,
    /// Where its uses end; they begin where those of the entry before it end.
    end: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: Vec<Entry>,
    uses: Vec<Use>,
    /// Entries in front that are done and wait to be taken out.
    done: usize,
}

impl Log {
    const SMALLEST: usize = 32;

    #[inline]
    pub(crate) fn push<T: Timeline + ?Sized>(&mut self, at: Moment, name: Name, uses: &[Use], timeline: &T) {
        if self.entries.len() == self.entries.capacity() || self.uses.capacity() - self.uses.len() < uses.len() {
            self.make_room(uses.len(), timeline);
        }
        self.uses.extend_from_slice(uses);
        self.entries.push(Entry { at, name, end: self.uses.len() });
    }

    /// The newest operation's moment and name.
    #[inline]
    pub(crate) fn newest(&self) -> Option<(Moment, Name)> {
        self.entries.last().map(|e| (e.at, e.name))
    }

    /// The newest operation's uses.
    pub(crate) fn newest_uses(&self) -> &[Use] {
        self.entries.len().checked_sub(1).map_or(&[], |last| self.uses_of(last))
    }

    /// Takes the newest operation out.
    pub(crate) fn pop(&mut self) {
        self.entries.pop();
        self.done = self.done.min(self.entries.len());
        self.uses.truncate(self.entries.last().map_or(0, |e| e.end));
    }

    /// Takes out what is done and has nothing unfinished before it.
    pub(crate) fn retire<T: Timeline + ?Sized>(&mut self, timeline: &T) {
        while self.entries.get(self.done).is_some_and(|e| timeline.is_done(e.at)) {
            self.done += 1;
        }
        if self.done == self.entries.len() {
            self.entries.clear();
            self.uses.clear();
            self.done = 0;
        }
    }

    /// How many operations are remembered.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.done
    }

    /// Whether the operation at `at` is remembered.
    pub(crate) fn holds(&self, at: Moment) -> bool {
        self.place(at).is_ok()
    }

    /// Follows what lies on the bytes of `dirty` through the operations after `at`: who read such bytes hands the first failure
    /// found on to what it wrote, who overwrote them clean takes it away.
    pub(crate) fn follow(
        &self,
        at: Moment,
        dirty: &mut Spread<Mark>,
        names: &Names,
        mut tell: impl FnMut(Moment, &Failure),
    ) {
        let first = self.place(at).map_or_else(|next| next, |here| here + 1);
        for i in first..self.entries.len() {
            let (entry, uses) = (self.entries[i], self.uses_of(i));
            match uses.iter().filter(|u| u.access.reads()).find_map(|u| dirty.first(u)) {
                Some(mark) => {
                    let failure: Failure = mark.failure.through(names.text(entry.name), entry.at);
                    tell(entry.at, &failure);
                    dirty.insert_writes(uses, &Mark { failure, by: entry.at });
                }
                None => uses.iter().filter(|u| !u.access.reads()).for_each(|u| dirty.remove(u)),
            }
        }
    }

    /// Where the operation is, or where it would be.
    fn place(&self, at: Moment) -> Result<usize, usize> {
        let found = self.entries[self.done..].binary_search_by_key(&at.seq, |e| e.at.seq);
        found.map(|i| i + self.done).map_err(|i| i + self.done)
    }

    fn uses_of(&self, i: usize) -> &[Use] {
        let start = if i == 0 { 0 } else { self.entries[i - 1].end };
        &self.uses[start..self.entries[i].end]
    }

    #[cold]
    #[inline(never)]
    fn make_room<T: Timeline + ?Sized>(&mut self, uses: usize, timeline: &T) {
        self.retire(timeline);
        self.keep_from(self.done, |_| true);
        if self.entries.len() * 2 > self.entries.capacity() || (self.uses.len() + uses) * 2 > self.uses.capacity() {
            self.forget_independent(timeline);
        }
        let entries = (self.entries.len() + 1).max(Self::SMALLEST);
        let uses = (self.uses.len() + uses).max(Self::SMALLEST);
        self.entries.reserve(entries);
        self.uses.reserve(uses);
    }

    /// Takes out what is done and touches nothing that an unfinished operation before it wrote. A done operation may touch such
    /// bytes: it was seen done before the one it waited for was.
    fn forget_independent<T: Timeline + ?Sized>(&mut self, timeline: &T) {
        let mut open = Spread::new();
        let keep: Vec<bool> = (0..self.entries.len())
            .map(|i| {
                let uses = self.uses_of(i);
                let keep = !timeline.is_done(self.entries[i].at) || uses.iter().any(|u| open.first(u).is_some());
                if keep {
                    open.insert_writes(uses, &());
                }
                keep
            })
            .collect();
        self.keep_from(0, |i| keep[i]);
    }

    /// Keeps, of the entries from `first` on, those that `keep` says; takes the others out.
    fn keep_from(&mut self, first: usize, keep: impl Fn(usize) -> bool) {
        let mut start = first.checked_sub(1).map_or(0, |before| self.entries[before].end);
        let (mut entries, mut uses) = (0, 0);
        for i in first..self.entries.len() {
            let entry = self.entries[i];
            if keep(i) {
                // What is written lies at or before what is read.
                for from in start..entry.end {
                    self.uses.swap(uses, from);
                    uses += 1;
                }
                self.entries[entries] = Entry { end: uses, ..entry };
                entries += 1;
            }
            start = entry.end;
        }
        self.entries.truncate(entries);
        self.uses.truncate(uses);
        self.done = 0;
    }
}
