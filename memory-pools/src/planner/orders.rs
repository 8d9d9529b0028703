//! In which order the search prefers buffers: a few plain orders, varied at random and by what got in the way before.

use super::lifetime::Lifetime;
use super::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

/// SplitMix64: the same numbers on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The rank of each buffer: 0 is preferred.
pub(crate) type Ranks = Vec<u32>;

/// The plain orders, the most useful first. What counts is how full it is at a buffer's fullest time, how long it lives, its bytes,
/// length times bytes, and when it begins.
pub(crate) fn plain(lifetimes: &[Lifetime], shape: &Shape) -> Vec<Ranks> {
    let fullest: Vec<u128> =
        shape.buffers.iter().map(|b| u128::from(shape.load[b.sections()].iter().copied().max().unwrap_or(0))).collect();
    let length = |i: usize| u128::from(lifetimes[i].upper - lifetimes[i].lower);
    let size = |i: usize| u128::from(lifetimes[i].size);
    let area = |i: usize| length(i) * size(i);
    let late = |i: usize| u128::from(u64::MAX - lifetimes[i].lower);
    let ranks = |key: &dyn Fn(usize) -> [u128; 3]| {
        let mut order: Vec<u32> = (0..lifetimes.len() as u32).collect();
        order.sort_by_cached_key(|&index| (core::cmp::Reverse(key(index as usize)), index));
        ranks_of(&order)
    };
    vec![
        ranks(&|i| [fullest[i], length(i), area(i)]),
        ranks(&|i| [fullest[i], area(i), length(i)]),
        ranks(&|i| [length(i), area(i), fullest[i]]),
        ranks(&|i| [area(i), length(i), fullest[i]]),
        ranks(&|i| [fullest[i], size(i), length(i)]),
        ranks(&|i| [size(i), length(i), fullest[i]]),
        ranks(&|i| [late(i), length(i), area(i)]),
    ]
}

/// Moves each rank by up to `reach` places either way, and forward by `pull` of the buffer.
pub(crate) fn vary(ranks: &[u32], reach: u64, pull: impl Fn(usize) -> i64, random: &mut Random) -> Ranks {
    let mut order: Vec<(i64, u32)> = Vec::with_capacity(ranks.len());
    for (index, rank) in ranks.iter().enumerate() {
        let moved = if reach == 0 { 0 } else { random.below(2 * reach + 1) as i64 - reach as i64 };
        order.push((i64::from(*rank) + moved - pull(index), index as u32));
    }
    order.sort_unstable();
    let order: Vec<u32> = order.into_iter().map(|(_, index)| index).collect();
    ranks_of(&order)
}

fn ranks_of(order: &[u32]) -> Ranks {
    let mut ranks = vec![0; order.len()];
    for (rank, index) in order.iter().enumerate() {
        ranks[*index as usize] = rank as u32;
    }
    ranks
}
