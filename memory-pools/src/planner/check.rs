//! Whether a plan holds, found without anything the search knows.

use super::lifetime::Lifetime;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Two buffers that live at one time and share a byte, as indices; none where the offsets are a plan of these lifetimes.
///
/// Buffers beyond the shorter of the two lists are left out. A buffer that would end beyond the last offset there is shares bytes with
/// itself. Takes n log n.
pub fn overlap(lifetimes: &[Lifetime], offsets: &[u64]) -> Option<(usize, usize)> {
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * lifetimes.len());
    for (index, (lifetime, offset)) in lifetimes.iter().zip(offsets).enumerate() {
        if lifetime.is_empty() {
            continue;
        }
        if offset.checked_add(lifetime.size).is_none() {
            return Some((index, index));
        }
        events.push((lifetime.lower, true, index));
        events.push((lifetime.upper, false, index));
    }
    // At one time what ends comes before what begins.
    events.sort_unstable();
    // Those that live, by offset. As long as none overlap, only the neighbours of a new one can.
    let mut living: BTreeMap<u64, usize> = BTreeMap::new();
    for (_, begins, index) in events {
        let offset = offsets[index];
        if !begins {
            living.remove(&offset);
            continue;
        }
        if let Some((start, other)) = living.range(..=offset).next_back()
            && start + lifetimes[*other].size > offset
        {
            return Some((*other, index));
        }
        if let Some((start, other)) = living.range(offset..).next()
            && offset + lifetimes[index].size > *start
        {
            return Some((*other, index));
        }
        living.insert(offset, index);
    }
    None
}
