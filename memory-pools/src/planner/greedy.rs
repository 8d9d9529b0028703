//! The first plan: the largest buffers first, each at the lowest offset where it fits.

use super::lifetime::Lifetime;
use alloc::vec;
use alloc::vec::Vec;

/// Offsets for lifetimes none of which is empty, sizes aligned. Takes n² at most: a few microseconds for dozens of buffers.
pub(crate) fn by_size(lifetimes: &[Lifetime]) -> Vec<u64> {
    let mut order: Vec<u32> = (0..lifetimes.len() as u32).collect();
    order.sort_unstable_by_key(|&index| {
        let lifetime = &lifetimes[index as usize];
        (core::cmp::Reverse(lifetime.size), core::cmp::Reverse(lifetime.upper - lifetime.lower), index)
    });
    let mut offsets = vec![0; lifetimes.len()];
    // Those placed, by offset.
    let mut placed: Vec<(u64, Lifetime)> = Vec::with_capacity(lifetimes.len());
    for index in order {
        let lifetime = lifetimes[index as usize];
        let mut offset = 0;
        for (start, other) in &placed {
            if other.lower < lifetime.upper && lifetime.lower < other.upper {
                if *start >= offset + lifetime.size {
                    break;
                }
                offset = offset.max(start + other.size);
            }
        }
        let at = placed.partition_point(|(start, _)| *start <= offset);
        placed.insert(at, (offset, lifetime));
        offsets[index as usize] = offset;
    }
    offsets
}
