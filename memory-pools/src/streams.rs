//! Bytes live by the stream that allocated them.

use crate::account::Tally;
use alloc::vec::Vec;
use hashbrown::HashMap;
use trunnion_runtime_core::id::StreamId;

struct Entry {
    stream: StreamId,
    /// In all pools; the entry is vacant while there are none.
    allocations: u64,
}

/// A counter a stream and pool; a stream is known while it has live allocations.
pub(crate) struct Streams {
    entries: Vec<Entry>,
    /// A row an entry, of a tally for each pool.
    tallies: Vec<Tally>,
    pools: usize,
    vacant: Vec<u32>,
    of: HashMap<StreamId, u32>,
    /// The entry used last, as most requests come from one stream in a row.
    last: u32,
}

impl Streams {
    /// Tells this many pools apart.
    pub(crate) fn new(pools: usize) -> Self {
        Self { entries: Vec::new(), tallies: Vec::new(), pools, vacant: Vec::new(), of: HashMap::new(), last: 0 }
    }

    /// Tells as many pools apart, if those are more than before. What was counted stays.
    pub(crate) fn widen(&mut self, pools: usize) {
        if pools > self.pools {
            let mut tallies = Vec::with_capacity(self.entries.len() * pools);
            for row in self.tallies.chunks(self.pools) {
                tallies.extend_from_slice(row);
                tallies.resize(tallies.len() + pools - self.pools, Tally::default());
            }
            (self.tallies, self.pools) = (tallies, pools);
        }
    }

    /// Counts an allocation; the answer names the stream's entry, for [`subtract`](Self::subtract).
    #[inline]
    pub(crate) fn add(&mut self, stream: StreamId, pool: usize, size: u64, padded: u64) -> u32 {
        let index = match self.entries.get(self.last as usize) {
            Some(entry) if entry.stream == stream && entry.allocations > 0 => self.last,
            _ => self.entry(stream),
        };
        self.last = index;
        self.entries[index as usize].allocations += 1;
        self.tallies[index as usize * self.pools + pool].add(size, padded);
        index
    }

    fn entry(&mut self, stream: StreamId) -> u32 {
        if let Some(index) = self.of.get(&stream) {
            return *index;
        }
        let entry = Entry { stream, allocations: 0 };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.tallies.resize(self.entries.len() * self.pools, Tally::default());
                (self.entries.len() - 1) as u32
            }
        };
        self.of.insert(stream, index);
        index
    }

    /// Takes an allocation back.
    #[inline]
    pub(crate) fn subtract(&mut self, index: u32, pool: usize, size: u64, padded: u64) {
        self.tallies[index as usize * self.pools + pool].subtract(size, padded);
        let entry = &mut self.entries[index as usize];
        entry.allocations -= 1;
        if entry.allocations == 0 {
            self.of.remove(&entry.stream);
            self.vacant.push(index);
        }
    }

    /// The stream whose allocations an entry counts.
    pub(crate) fn owner(&self, index: u32) -> StreamId {
        self.entries[index as usize].stream
    }

    /// What `stream` holds of a pool.
    pub(crate) fn get(&self, stream: StreamId, pool: usize) -> Tally {
        self.of.get(&stream).map_or(Tally::default(), |index| self.tallies[*index as usize * self.pools + pool])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_stays_when_more_pools_are_told_apart() {
        let mut streams = Streams::new(2);
        let [one, two] = [1, 2].map(StreamId::from_raw);
        let first = streams.add(one, 0, 10, 16);
        streams.add(two, 1, 20, 32);
        streams.widen(5);
        let last = streams.add(two, 4, 30, 32);
        assert_eq!((streams.get(one, 0).live, streams.get(two, 1).live, streams.get(two, 4).live), (10, 20, 30));
        assert_eq!((streams.get(one, 1), streams.get(one, 4)), (Tally::default(), Tally::default()));
        streams.subtract(first, 0, 10, 16);
        streams.subtract(last, 4, 30, 32);
        assert_eq!((streams.get(one, 0).live, streams.get(two, 1).live, streams.get(two, 4).live), (0, 20, 0));
    }

    #[test]
    fn streams_that_come_and_go_share_an_entry() {
        let mut streams = Streams::new(3);
        for number in 0..1000 {
            let index = streams.add(StreamId::from_raw(number), 2, 1, 256);
            streams.subtract(index, 2, 1, 256);
        }
        assert_eq!((streams.entries.len(), streams.of.len()), (1, 0));
    }
}
