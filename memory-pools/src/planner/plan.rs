//! Plans, and what makes them: validation, the parts that share no time, and the search's budget.

use super::component::Component;
use super::error::PlanError;
use super::lifetime::Lifetime;
use super::orders::Random;
use alloc::vec;
use alloc::vec::Vec;

/// How to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// What offsets are multiples of, in bytes; a power of two. Sizes are rounded up to it.
    pub alignment: u64,
    /// What the search varies by. The same seed gives the same plan.
    pub seed: u64,
    /// How many nodes are searched at most; a node is a buffer tried in a place, and takes about a microsecond where hundreds of buffers hang
    /// together. Where thousands do, one that takes more than some twenty microseconds counts as several, so that a plan with the default
    /// takes seconds at most. With 0 the plan is the greedy one.
    pub nodes: u64,
}

impl Default for PlanOptions {
    /// 256 bytes, seed 1, 200,000 nodes.
    fn default() -> Self {
        Self { alignment: 256, seed: 1, nodes: 200_000 }
    }
}

/// Where each buffer lies.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// An offset for each lifetime, in their order, in bytes. Where nothing is to be placed, 0.
    pub offsets: Vec<u64>,
    /// The bytes of the block that holds them all.
    pub size: u64,
    /// The most bytes that live at one time, sizes rounded up to the alignment. No plan is smaller than that.
    pub peak_live: u64,
    /// The nodes searched for it.
    pub nodes: u64,
}

impl Plan {
    /// The part of the block that is not in use when most of it is: 1 − peak / size; 0 where there is no block.
    pub fn waste(&self) -> f64 {
        if self.size == 0 { 0.0 } else { 1.0 - self.peak_live as f64 / self.size as f64 }
    }
}

/// What a step of a [`Planner`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// [`Planner::best`] is a smaller plan than before.
    Better,
    /// Nothing new yet.
    Searching,
    /// The nodes are used up, or no plan is smaller, or there are too many overlaps to search.
    Done,
}

/// A search for a plan that can be looked at, and stopped, at any time.
///
/// As an iterator it gives better and better plans, the greedy one first, and ends when it can or may find none better.
///
/// ```
/// use trunnion_memory_pools::planner::{Lifetime, PlanOptions, Planner};
/// let lifetimes: Vec<_> = (0..50).map(|i| Lifetime { lower: i, upper: i + 1 + i * 7 % 9, size: 256 * (1 + i * 5 % 11) }).collect();
/// let mut last = u64::MAX;
/// for plan in Planner::new(&lifetimes, &PlanOptions::default())? {
///     assert!(plan.size < last);
///     last = plan.size;
///     if plan.waste() < 0.05 {
///         break; // good enough
///     }
/// }
/// # Ok::<(), trunnion_memory_pools::planner::PlanError>(())
/// ```
#[derive(Debug)]
pub struct Planner {
    components: Vec<Component>,
    buffers: usize,
    peak_live: u64,
    options: PlanOptions,
    nodes: u64,
    /// Whether the iterator has given the first plan.
    given: bool,
}

/// The smallest plan that is found with these options.
///
/// Where at most thousands of buffers overlap each other this takes time with [`PlanOptions::nodes`], otherwise with the square of their number.
///
/// # Errors
/// Input that is none; see [`PlanError`].
pub fn plan(lifetimes: &[Lifetime], options: &PlanOptions) -> Result<Plan, PlanError> {
    let mut planner = Planner::new(lifetimes, options)?;
    while planner.step() != Step::Done {}
    Ok(planner.best())
}

impl Planner {
    /// The most buffers planned at once.
    pub const MAX_BUFFERS: usize = 32_768;
    /// The most bytes that all sizes together may have, rounded up to the alignment.
    pub const MAX_BYTES: u64 = 1 << 62;

    /// A search that has the greedy plan.
    ///
    /// # Errors
    /// Input that is none; see [`PlanError`].
    pub fn new(lifetimes: &[Lifetime], options: &PlanOptions) -> Result<Self, PlanError> {
        let aligned = check_and_align(lifetimes, options.alignment)?;
        let mut order: Vec<u32> = (0..lifetimes.len() as u32).filter(|&i| !aligned[i as usize].is_empty()).collect();
        order.sort_unstable_by_key(|&index| (aligned[index as usize].lower, index));
        let mut components = Vec::new();
        let mut reaches = 0;
        let mut begin = 0;
        for at in 0..=order.len() {
            let next = order.get(at).map(|&index| aligned[index as usize]);
            if at > begin && next.is_none_or(|next| next.lower >= reaches) {
                let indices = order[begin..at].to_vec();
                let lifetimes = indices.iter().map(|&index| aligned[index as usize]).collect();
                components.push(Component::new(indices, lifetimes));
                begin = at;
            }
            reaches = reaches.max(next.map_or(0, |next| next.upper));
        }
        let peak_live = peak_live(&aligned);
        Ok(Self { components, buffers: lifetimes.len(), peak_live, options: *options, nodes: 0, given: false })
    }

    /// Searches a little further: a few nodes for each buffer.
    pub fn step(&mut self) -> Step {
        let before = self.size();
        let left = self.options.nodes.saturating_sub(self.nodes);
        if left == 0 || before <= self.peak_live {
            return Step::Done;
        }
        // Only the largest part can make the whole smaller.
        let Some(index) = (0..self.components.len()).rev().max_by_key(|index| self.components[*index].size) else {
            return Step::Done;
        };
        let seed = Random(self.options.seed ^ (index as u64) << 32).next();
        match self.components[index].walk(self.peak_live, left, seed) {
            Some(nodes) => self.nodes += nodes,
            None => return Step::Done,
        }
        if self.size() < before { Step::Better } else { Step::Searching }
    }

    /// The smallest plan so far.
    pub fn best(&self) -> Plan {
        let mut offsets = vec![0; self.buffers];
        for component in &self.components {
            for (index, offset) in component.indices.iter().zip(&component.offsets) {
                offsets[*index as usize] = *offset;
            }
        }
        Plan { offsets, size: self.size(), peak_live: self.peak_live, nodes: self.nodes }
    }

    /// The bytes of the smallest plan so far.
    pub fn size(&self) -> u64 {
        self.components.iter().map(|component| component.size).max().unwrap_or(0)
    }
}

impl Iterator for Planner {
    type Item = Plan;

    fn next(&mut self) -> Option<Plan> {
        if !core::mem::replace(&mut self.given, true) {
            return Some(self.best());
        }
        loop {
            match self.step() {
                Step::Better => return Some(self.best()),
                Step::Searching => {}
                Step::Done => return None,
            }
        }
    }
}

fn check_and_align(lifetimes: &[Lifetime], alignment: u64) -> Result<Vec<Lifetime>, PlanError> {
    if !alignment.is_power_of_two() {
        return Err(PlanError::Alignment { alignment });
    }
    if lifetimes.len() > Planner::MAX_BUFFERS {
        return Err(PlanError::TooManyBuffers { buffers: lifetimes.len(), limit: Planner::MAX_BUFFERS });
    }
    let mut total = 0u128;
    let align = |(buffer, lifetime): (usize, &Lifetime)| {
        let Lifetime { lower, upper, size } = *lifetime;
        if upper < lower {
            return Err(PlanError::UpperBeforeLower { buffer, lower, upper });
        }
        let aligned = u128::from(size).next_multiple_of(u128::from(alignment));
        total += aligned;
        match u64::try_from(aligned) {
            Ok(aligned) if total <= u128::from(Planner::MAX_BYTES) => Ok(Lifetime { lower, upper, size: aligned }),
            _ => Err(PlanError::TooManyBytes { buffer, size, total, limit: Planner::MAX_BYTES }),
        }
    };
    lifetimes.iter().enumerate().map(align).collect()
}

fn peak_live(lifetimes: &[Lifetime]) -> u64 {
    let living = lifetimes.iter().filter(|lifetime| !lifetime.is_empty());
    // At one time what ends is counted before what begins.
    let mut events: Vec<(u64, bool, u64)> =
        living.flat_map(|l| [(l.lower, true, l.size), (l.upper, false, l.size)]).collect();
    events.sort_unstable();
    let (mut live, mut peak) = (0, 0);
    for (_, begins, size) in events {
        live = if begins { live + size } else { live - size };
        peak = peak.max(live);
    }
    peak
}
