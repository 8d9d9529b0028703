//! The last uses of bytes, and what an operation must wait for because of them.

use crate::interval::Value;
use core::ops::Range;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::id::{MemoryId, StreamId};
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

/// One binding of an operation: which bytes it uses, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The allocation.
    pub memory: MemoryId,
    /// The bytes of it. Empty for a binding of no bytes, which conflicts with nothing.
    pub range: Range<u64>,
    /// How they are used.
    pub access: Access,
}

/// Who used some bytes last: the last write, and the reads since.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    pub(crate) write: Moment,
    reads: Frontier,
}

impl Value for Last {
    fn same(&self, other: &Self) -> bool {
        self.write == other.write && self.reads == other.reads
    }
}

impl Last {
    pub(crate) const fn written(at: Moment) -> Self {
        Self { write: at, reads: Frontier::new() }
    }

    /// Collects what a use of these bytes must wait for, and becomes the last use.
    #[inline]
    pub(crate) fn advance<T: Timeline + ?Sized>(&mut self, access: Access, waits: &mut Waits<'_, T>) {
        waits.after(self.write);
        if access.writes() {
            if !self.reads.is_empty() {
                waits.after_all(&self.reads);
                self.reads = Frontier::new();
            }
            self.write = waits.at;
        } else {
            let known = self.reads.moments();
            if known.len() == Frontier::INLINE && known.iter().all(|m| m.stream != waits.at.stream) {
                self.reads.prune(waits.timeline);
            }
            self.reads.add(waits.at);
        }
    }

    /// The next write, but no read, must wait for these as well. For bytes whose last writer did not wait itself.
    pub(crate) fn add(&mut self, waits: &Frontier) {
        self.reads.join(waits);
    }

    /// Adds these uses to a frontier.
    pub(crate) fn join_into(&self, frontier: &mut Frontier) {
        frontier.add(self.write);
        frontier.join(&self.reads);
    }

    /// Forgets what is done, so that parts with different pasts become the same.
    pub(crate) fn prune<T: Timeline + ?Sized>(&mut self, timeline: &T) {
        if timeline.is_done(self.write) {
            self.write = Moment { stream: StreamId::from_raw(0), seq: 0 };
        }
        self.reads.prune(timeline);
    }
}

/// What one operation must wait for, while it is collected.
pub(crate) struct Waits<'a, T: ?Sized> {
    at: Moment,
    pub(crate) timeline: &'a T,
    pub(crate) others: &'a mut Frontier,
    /// The latest operation of its own stream that it conflicts with; 0 for none.
    pub(crate) own: u64,
}

impl<'a, T: Timeline + ?Sized> Waits<'a, T> {
    pub(crate) const fn new(at: Moment, timeline: &'a T, others: &'a mut Frontier) -> Self {
        Self { at, timeline, others, own: 0 }
    }

    #[inline]
    fn after(&mut self, m: Moment) {
        if m.stream == self.at.stream {
            // The operation itself, where two of its bindings overlap, is nothing to wait for.
            if m.seq < self.at.seq {
                self.own = self.own.max(m.seq);
            }
        } else if m.seq > 0 {
            self.after_other(m);
        }
    }

    #[inline(never)]
    fn after_other(&mut self, m: Moment) {
        let known = self.others.moments().iter().any(|k| k.stream == m.stream && k.seq >= m.seq);
        if !known && !self.timeline.is_done(m) && !self.timeline.is_ordered_after(self.at.stream, m) {
            self.others.add(m);
        }
    }

    fn after_all(&mut self, reads: &Frontier) {
        let epoch = reads.epoch();
        if epoch > 0 && !self.timeline.is_epoch_done(epoch) {
            self.others.add_epoch(epoch);
            self.own = self.own.max(epoch);
        }
        for m in reads.moments() {
            self.after(*m);
        }
    }
}
