//! What is encoded on a stream and not finished, in order, with the bytes it writes.
//!
//! Two flat queues that are reused, so that a warm stream allocates nothing.

use alloc::collections::VecDeque;
use smallvec::SmallVec;
use trunnion_resource_tracker::Use;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) seq: u64,
    /// How many bindings it writes.
    writes: u32,
    pub(super) is_read: bool,
}

/// The bindings an operation writes.
pub(super) type Writes = SmallVec<[Use; 4]>;

#[derive(Debug, Default)]
pub(super) struct Flight {
    entries: VecDeque<Entry>,
    writes: VecDeque<Use>,
}

impl Flight {
    pub(super) fn push(&mut self, seq: u64, uses: &[Use], is_read: bool) {
        let before = self.writes.len();
        self.writes.extend(uses.iter().filter(|u| u.access.writes()).cloned());
        self.entries.push_back(Entry { seq, writes: (self.writes.len() - before) as u32, is_read });
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn oldest(&self) -> Option<u64> {
        self.entries.front().map(|e| e.seq)
    }

    pub(super) fn newest(&self) -> Option<u64> {
        self.entries.back().map(|e| e.seq)
    }

    /// How many are no newer than `seq`.
    pub(super) fn count_within(&self, seq: u64) -> usize {
        self.entries.partition_point(|e| e.seq <= seq)
    }

    /// The newest one that is no newer than `seq`.
    pub(super) fn newest_within(&self, seq: u64) -> Option<u64> {
        if let Some(newest) = self.newest().filter(|newest| *newest <= seq) {
            return Some(newest);
        }
        let after = self.entries.partition_point(|e| e.seq <= seq);
        Some(self.entries[after.checked_sub(1)?].seq)
    }

    /// Takes out what is no newer than `seq`, oldest first.
    pub(super) fn take_finished(&mut self, seq: u64) -> Option<Entry> {
        let entry = self.entries.pop_front_if(|e| e.seq <= seq)?;
        self.writes.drain(..entry.writes as usize);
        Some(entry)
    }

    /// Takes the newest one out.
    pub(super) fn take_newest(&mut self) -> Option<(Entry, Writes)> {
        let entry = self.entries.pop_back()?;
        let writes = self.writes.drain(self.writes.len() - entry.writes as usize..).collect();
        Some((entry, writes))
    }

    /// What the operation `seq` writes.
    pub(super) fn writes_of(&self, seq: u64) -> Option<Writes> {
        let i = self.entries.binary_search_by_key(&seq, |e| e.seq).ok()?;
        let start: usize = self.entries.range(..i).map(|e| e.writes as usize).sum();
        let end = start + self.entries[i].writes as usize;
        Some(self.writes.range(start..end).cloned().collect())
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.writes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunnion_runtime_core::access::Access;
    use trunnion_runtime_core::id::MemoryId;

    fn uses(index: u32, access: Access) -> Use {
        Use { memory: MemoryId { index, generation: 1 }, range: 0..4, access }
    }

    #[test]
    fn each_operation_finds_the_bytes_it_writes() {
        let mut flight = Flight::default();
        flight.push(3, &[uses(0, Access::Read), uses(1, Access::Write)], false);
        flight.push(5, &[uses(2, Access::Read)], true);
        flight.push(9, &[uses(3, Access::Overwrite), uses(4, Access::ReadWrite)], false);
        let of = |flight: &Flight, seq| {
            flight.writes_of(seq).map(|w| w.iter().map(|u| u.memory.index).collect::<alloc::vec::Vec<_>>())
        };
        assert_eq!(of(&flight, 3), Some(alloc::vec![1]));
        assert_eq!(of(&flight, 5), Some(alloc::vec![]));
        assert_eq!(of(&flight, 9), Some(alloc::vec![3, 4]));
        assert_eq!(of(&flight, 4), None);
        assert_eq!(
            (flight.newest_within(8), flight.newest_within(2), flight.newest_within(9)),
            (Some(5), None, Some(9))
        );
        assert!(flight.take_finished(5).is_some_and(|e| e.seq == 3));
        assert!(flight.take_finished(5).is_some_and(|e| e.seq == 5 && e.is_read));
        assert!(flight.take_finished(5).is_none());
        assert_eq!(of(&flight, 9), Some(alloc::vec![3, 4]));
        let (entry, writes) = flight.take_newest().unwrap();
        assert_eq!((entry.seq, writes.len(), flight.is_empty()), (9, 2, true));
    }
}
