//! Failures that lie on bytes, and how they spread through operations that already ran.

use crate::interval::{Intervals, Value};
use crate::uses::Use;
use core::ops::Range;
use hashbrown::HashMap;
use trunnion_runtime_core::failure::Failure;
use trunnion_runtime_core::id::MemoryId;
use trunnion_runtime_core::timeline::Moment;

/// A failure that lies on bytes.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) failure: Failure,
    /// The operation that would have written the bytes.
    pub(crate) by: Moment,
}

impl Value for Mark {
    fn same(&self, other: &Self) -> bool {
        self.by == other.by && self.failure.origin() == other.failure.origin()
    }
}

/// Bytes of several allocations, while it is followed how something on them spread.
#[derive(Debug)]
pub(crate) struct Spread<V>(HashMap<MemoryId, Intervals<V>>);

impl<V: Value> Spread<V> {
    pub(crate) fn new() -> Self {
        Self(HashMap::new())
    }

    /// The first value on the bytes of a use.
    pub(crate) fn first(&self, u: &Use) -> Option<&V> {
        self.0.get(&u.memory)?.first(&u.range)
    }

    pub(crate) fn insert(&mut self, memory: MemoryId, range: &Range<u64>, value: V) {
        if !range.is_empty() {
            self.0.entry(memory).or_insert_with(Intervals::new).insert(range, value);
        }
    }

    pub(crate) fn insert_writes(&mut self, uses: &[Use], value: &V) {
        for u in uses.iter().filter(|u| u.access.writes()) {
            self.insert(u.memory, &u.range, value.clone());
        }
    }

    pub(crate) fn remove(&mut self, u: &Use) {
        if let Some(map) = self.0.get_mut(&u.memory)
            && !u.range.is_empty()
        {
            map.remove(&u.range, |_| true);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (MemoryId, Range<u64>, &V)> {
        self.0.iter().flat_map(|(memory, map)| map.iter().map(|(range, value)| (*memory, range, value)))
    }
}
