//! Bytes live by the stream that allocated them.

use crate::account::Tally;
use alloc::vec::Vec;
use hashbrown::HashMap;
use trunnion_runtime_core::id::StreamId;

/// How many pools a stream's bytes are told apart by.
const POOLS: usize = 3;

struct Entry {
    stream: StreamId,
    tallies: [Tally; POOLS],
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.tallies.iter().all(|t| t.allocations == 0)
    }
}

/// A counter a stream and pool; a stream is known while it has live allocations.
pub(crate) struct Streams {
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    of: HashMap<StreamId, u32>,
    /// The entry used last, as most requests come from one stream in a row.
    last: u32,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), vacant: Vec::new(), of: HashMap::new(), last: 0 }
    }

    /// Counts an allocation; the answer names the stream's entry, for [`subtract`](Self::subtract).
    #[inline]
    pub(crate) fn add(&mut self, stream: StreamId, pool: usize, size: u64, padded: u64) -> u32 {
        let index = match self.entries.get(self.last as usize) {
            Some(entry) if entry.stream == stream && !entry.is_empty() => self.last,
            _ => self.entry(stream),
        };
        self.last = index;
        self.entries[index as usize].tallies[pool].add(size, padded);
        index
    }

    fn entry(&mut self, stream: StreamId) -> u32 {
        if let Some(index) = self.of.get(&stream) {
            return *index;
        }
        let entry = Entry { stream, tallies: [Tally::default(); POOLS] };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        self.of.insert(stream, index);
        index
    }

    /// Takes an allocation back.
    #[inline]
    pub(crate) fn subtract(&mut self, index: u32, pool: usize, size: u64, padded: u64) {
        let entry = &mut self.entries[index as usize];
        entry.tallies[pool].subtract(size, padded);
        if entry.tallies[pool].allocations == 0 && entry.is_empty() {
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
        self.of.get(&stream).map_or(Tally::default(), |i| self.entries[*i as usize].tallies[pool])
    }
}
