//! Buffers that hang together in time: their best offsets so far, and what is tried next.
//!
//! A try is a short walk below a cap. Most walks end without a plan, and where one gets stuck is mostly chance; so many short ones in varied
//! orders find more than a long one. A plan lowers the cap by a step, and the order that found it is tried again at once. Steps grow with
//! plans and shrink with failures, between a two hundredth and a twentieth of the goal.

use super::check::overlap;
use super::greedy;
use super::lifetime::Lifetime;
use super::orders::{self, Random, Ranks};
use super::search::{Outcome, Search};
use super::shape::Shape;
use alloc::vec::Vec;

/// A walk has at most this many steps a buffer.
const STEPS_A_BUFFER: u64 = 4;
/// After so many walks without a plan the step is halved.
const PATIENCE: u32 = 3;
/// After so many walks what got in the way counts half.
const FORGET: u32 = 8;

/// Buffers that hang together in time.
#[derive(Debug)]
pub(crate) struct Component {
    /// Which buffers these are.
    pub(crate) indices: Vec<u32>,
    /// Sizes are rounded up to the alignment.
    lifetimes: Vec<Lifetime>,
    pub(crate) offsets: Vec<u64>,
    pub(crate) size: u64,
    walks: Walks,
}

#[derive(Debug)]
enum Walks {
    NotBegun,
    Open(alloc::boxed::Box<Walking>),
    /// Nothing better is to be found.
    Settled,
}

#[derive(Debug)]
struct Walking {
    shape: Shape,
    search: Search,
    random: Random,
    plain: Vec<Ranks>,
    /// The order of the last plan.
    proven: Ranks,
    ranks: Ranks,
    /// Whether the last walk found a plan.
    solved: bool,
    walks: u32,
    failures: u32,
    step: u64,
    /// No plan is smaller.
    least: u64,
    /// Whether a walk showed that, and not only what lives at one time.
    shown: bool,
}

impl Component {
    /// With the greedy plan. None of the lifetimes is empty, sizes are aligned.
    pub(crate) fn new(indices: Vec<u32>, lifetimes: Vec<Lifetime>) -> Self {
        let offsets = greedy::by_size(&lifetimes);
        let size = top(&lifetimes, &offsets);
        Self { indices, lifetimes, offsets, size, walks: Walks::NotBegun }
    }

    /// One more walk of at most `nodes`, for a plan smaller than the best so far and not smaller than `goal`. Gives the nodes it took; `None`
    /// where no plan is smaller, or none can be searched for.
    pub(crate) fn walk(&mut self, goal: u64, nodes: u64, seed: u64) -> Option<u64> {
        if let Walks::NotBegun = self.walks {
            self.walks = match Shape::new(&self.lifetimes) {
                Some(shape) => Walks::Open(Walking::new(&self.lifetimes, shape, goal, seed).into()),
                None => Walks::Settled,
            };
        }
        let Walks::Open(walking) = &mut self.walks else { return None };
        if self.size <= walking.least {
            self.walks = Walks::Settled;
            return None;
        }
        let before = walking.search.nodes;
        let cap = walking.next_cap(self.size);
        if walking.walk(cap, nodes) {
            let offsets = walking.search.offsets();
            let size = top(&self.lifetimes, offsets);
            let sound = size <= cap && overlap(&self.lifetimes, offsets).is_none();
            debug_assert!(sound, "the search gave offsets that are no plan");
            if !sound {
                // What is known to hold stays.
                self.walks = Walks::Settled;
                return None;
            }
            self.offsets.copy_from_slice(offsets);
            self.size = size;
        }
        Some(walking.search.nodes - before)
    }
}

impl Walking {
    fn new(lifetimes: &[Lifetime], shape: Shape, goal: u64, seed: u64) -> Self {
        let plain = orders::plain(lifetimes, &shape);
        let peak = shape.load.iter().copied().max().unwrap_or(0);
        Self {
            search: Search::new(&shape),
            random: Random(seed),
            proven: plain[0].clone(),
            ranks: plain[0].clone(),
            plain,
            shape,
            solved: false,
            walks: 0,
            failures: 0,
            step: (peak / 200).max(1),
            least: goal.max(peak),
            shown: false,
        }
    }

    /// A step below the size, as long as there may be such a plan; then what there may be at best, or anything smaller.
    fn next_cap(&self, size: u64) -> u64 {
        match size.saturating_sub(self.step) {
            cap if cap >= self.least => cap,
            _ if self.shown => size - 1,
            _ => self.least,
        }
    }

    /// Whether there is a plan below the cap that is found in so many nodes.
    fn walk(&mut self, cap: u64, nodes: u64) -> bool {
        if !self.solved {
            self.ranks = self.next_ranks();
        }
        let steps = STEPS_A_BUFFER * self.shape.buffers.len() as u64;
        let outcome = self.search.run(&self.shape, &self.ranks, cap, steps, nodes);
        self.solved = outcome == Outcome::Solved;
        let peak = self.least;
        match outcome {
            Outcome::Solved => {
                self.proven.clone_from(&self.ranks);
                self.failures = 0;
                self.step = (2 * self.step).min(peak / 20).max(1);
            }
            // Nothing is smaller than the cap, or as small.
            Outcome::Exhausted => (self.least, self.shown) = (self.least.max(cap + 1), true),
            Outcome::OutOfNodes => {}
        }
        if !self.solved {
            self.failures += 1;
            if self.failures >= PATIENCE {
                self.failures = 0;
                self.step = (self.step / 2).max(peak / 200).max(1);
            }
        }
        self.solved
    }

    /// Each plain order as it is, then by turns varied, and as often the order of the last plan, varied.
    fn next_ranks(&mut self) -> Ranks {
        let turn = self.walks as usize;
        self.walks = self.walks.wrapping_add(1);
        if let Some(plain) = self.plain.get(turn) {
            return plain.clone();
        }
        if self.walks.is_multiple_of(FORGET) {
            self.search.heat.iter_mut().for_each(|heat| *heat /= 2);
        }
        let n = self.shape.buffers.len() as u64;
        let (ranks, reach) = if self.random.below(2) == 0 {
            (&self.proven, [n / 100, n / 30, n / 10, n / 4][self.random.below(4) as usize])
        } else {
            let count = self.plain.len();
            (&self.plain[turn % count], [n / 64, n / 16, n / 5, n / 2][turn / count % 4])
        };
        // Every other time, buffers of sections that were too full are placed earlier.
        let (shape, search) = (&self.shape, &self.search);
        let hottest = u64::from(search.heat.iter().copied().max().unwrap_or(0)) + 1;
        let most = if turn.is_multiple_of(2) { 0 } else { n / 10 };
        let pull = |index: usize| {
            let heat = shape.buffers[index].sections().map(|section| search.heat[section]).max().unwrap_or(0);
            (u64::from(heat) * most / hottest) as i64
        };
        orders::vary(ranks, reach.max(1), pull, &mut self.random)
    }
}

fn top(lifetimes: &[Lifetime], offsets: &[u64]) -> u64 {
    lifetimes.iter().zip(offsets).map(|(lifetime, offset)| offset + lifetime.size).max().unwrap_or(0)
}
