//! Freed blocks whose last use may be unfinished, by the stream that need not wait for it.
//!
//! A lane belongs to one stream and holds blocks that are free *for that stream*: all their last uses are done, on it, or waited for
//! by it. That stays true whatever the stream does, so its blocks may merge with each other, and to a stream that runs far ahead
//! of the device memory behaves as if the device had no lag. The lane [`APART`] holds blocks that are free for no one stream.
//! Every block carries the frontier after which it is anyone's.

use crate::placer::{ANYONE, APART, NONE};
use alloc::vec::Vec;
use hashbrown::HashMap;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::timeline::{Frontier, Timeline};

/// How many lanes there are before empty ones are given up, so that a stream that takes its only block and frees it keeps its lane.
const LANES_KEPT: usize = 16;

#[derive(Default)]
struct Waiting {
    frontier: Frontier,
    older: u32,
    newer: u32,
}

#[derive(Clone, Copy)]
struct Lane {
    stream: Option<StreamId>,
    oldest: u32,
    newest: u32,
    /// Where in `active` it is.
    position: u32,
}

const EMPTY: Lane = Lane { stream: None, oldest: NONE, newest: NONE, position: 0 };

/// The lanes, each a list of its blocks from the one freed longest ago to the latest.
pub(crate) struct Lanes {
    /// By the block's node.
    waiting: Vec<Waiting>,
    /// By the lane's number.
    lanes: Vec<Lane>,
    vacant: Vec<u32>,
    /// Lanes that are in use.
    active: Vec<u32>,
    numbers: HashMap<StreamId, u32>,
    /// The lane asked for last, as most requests come from one stream in a row.
    last: u32,
    /// Whose turn it is to be looked at, in `active`.
    turn: usize,
    /// How many lanes in use make it time to give up the empty ones: twice as many as were left the last time.
    retire_at: usize,
    /// How many blocks wait.
    blocks: usize,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Vec::new(),
            lanes: alloc::vec![EMPTY, EMPTY],
            vacant: Vec::new(),
            active: alloc::vec![APART],
            numbers: HashMap::new(),
            last: ANYONE,
            turn: 0,
            retire_at: LANES_KEPT,
            blocks: 0,
        }
    }

    /// The stream's lane, if it has one.
    #[inline]
    pub(crate) fn find(&mut self, stream: StreamId) -> Option<u32> {
        if self.lanes[self.last as usize].stream == Some(stream) {
            return Some(self.last);
        }
        let lane = *self.numbers.get(&stream)?;
        self.last = lane;
        Some(lane)
    }

    /// The lane for a block with this frontier, which is not done.
    #[inline]
    pub(crate) fn choose(&mut self, frontier: &Frontier, timeline: &(impl Timeline + ?Sized)) -> u32 {
        let moments = frontier.moments();
        let stream = match moments {
            _ if frontier.epoch() > 0 => None,
            [only] => Some(only.stream),
            _ => moments.iter().map(|m| m.stream).find(|stream| frontier.is_free_for(*stream, timeline)),
        };
        stream.map_or(APART, |stream| self.of(stream))
    }

    /// The stream's lane, which it gets if it has none.
    #[inline]
    pub(crate) fn of(&mut self, stream: StreamId) -> u32 {
        if let Some(lane) = self.find(stream) {
            return lane;
        }
        if self.active.len() >= self.retire_at {
            self.retire_empty();
            self.retire_at = LANES_KEPT.max(2 * self.active.len());
        }
        let lane = self.vacant.pop().unwrap_or_else(|| {
            self.lanes.push(EMPTY);
            (self.lanes.len() - 1) as u32
        });
        self.lanes[lane as usize] = Lane { stream: Some(stream), position: self.active.len() as u32, ..EMPTY };
        self.active.push(lane);
        self.numbers.insert(stream, lane);
        self.last = lane;
        lane
    }

    /// Puts a block at the newest end of a lane.
    #[inline]
    pub(crate) fn push(&mut self, lane: u32, node: u32, frontier: Frontier, nodes: usize) {
        if self.waiting.len() <= node as usize {
            // In the steps in which the table of nodes grows, so that a new most of them by one allocates nothing.
            self.waiting.resize_with(nodes.next_power_of_two(), Waiting::default);
        }
        self.blocks += 1;
        let list = &mut self.lanes[lane as usize];
        let older = core::mem::replace(&mut list.newest, node);
        self.waiting[node as usize] = Waiting { frontier, older, newer: NONE };
        match older {
            NONE => list.oldest = node,
            older => self.waiting[older as usize].newer = node,
        }
    }

    /// Takes a block out of its lane; its frontier.
    #[inline]
    pub(crate) fn remove(&mut self, lane: u32, node: u32) -> Frontier {
        self.blocks -= 1;
        let Waiting { frontier, older, newer } = core::mem::take(&mut self.waiting[node as usize]);
        let list = &mut self.lanes[lane as usize];
        match older {
            NONE => list.oldest = newer,
            older => self.waiting[older as usize].newer = newer,
        }
        match newer {
            NONE => list.newest = older,
            newer => self.waiting[newer as usize].older = older,
        }
        frontier
    }

    /// Whether no block waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// The lanes in use.
    pub(crate) fn active(&self) -> &[u32] {
        &self.active
    }

    /// The blocks of a lane, oldest first.
    pub(crate) fn blocks(&self, lane: u32) -> impl Iterator<Item = (u32, &Frontier)> {
        let mut at = self.lanes[lane as usize].oldest;
        core::iter::from_fn(move || {
            let waiting = self.waiting.get(at as usize)?;
            let node = core::mem::replace(&mut at, waiting.newer);
            Some((node, &waiting.frontier))
        })
    }

    /// The block after this one in its lane, or the oldest when `None` is given.
    pub(crate) fn next(&self, lane: u32, node: Option<u32>) -> Option<u32> {
        let next = node.map_or(self.lanes[lane as usize].oldest, |n| self.waiting[n as usize].newer);
        (next != NONE).then_some(next)
    }

    /// What must be done before the block is anyone's.
    #[inline]
    pub(crate) fn frontier(&self, node: u32) -> &Frontier {
        &self.waiting[node as usize].frontier
    }

    /// The oldest block of the lane whose turn it is, if its last use is done. A lane whose oldest is not done, or that is empty, passes
    /// its turn on.
    #[inline]
    pub(crate) fn done_in_turn(&mut self, timeline: &(impl Timeline + ?Sized)) -> Option<(u32, u32)> {
        if self.blocks == 0 {
            return None;
        }
        if self.turn >= self.active.len() {
            self.turn = 0;
        }
        let lane = self.active[self.turn];
        let oldest = self.lanes[lane as usize].oldest;
        if oldest == NONE {
            self.turn += 1;
            return None;
        }
        if self.waiting[oldest as usize].frontier.is_done(timeline) {
            return Some((lane, oldest));
        }
        self.turn += 1;
        if lane == APART && self.lanes[lane as usize].newest != oldest {
            // Blocks here wait for unlike things: the oldest must not hold up the others.
            let frontier = self.remove(lane, oldest);
            self.push(lane, oldest, frontier, 0);
        }
        None
    }

    /// Gives up the lanes that are empty.
    pub(crate) fn retire_empty(&mut self) {
        for position in (0..self.active.len()).rev() {
            let lane = self.active[position];
            if lane != APART && self.lanes[lane as usize].oldest == NONE {
                self.retire(lane);
            }
        }
    }

    fn retire(&mut self, lane: u32) {
        let Lane { stream, position, .. } = self.lanes[lane as usize];
        if let Some(stream) = stream {
            self.numbers.remove(&stream);
        }
        self.lanes[lane as usize] = EMPTY;
        self.active.swap_remove(position as usize);
        if let Some(moved) = self.active.get(position as usize) {
            self.lanes[*moved as usize].position = position;
        }
        self.vacant.push(lane);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunnion_runtime_core::timeline::Moment;

    struct Done(u64);

    impl Timeline for Done {
        fn is_done(&self, at: Moment) -> bool {
            at.seq <= self.0
        }

        fn is_epoch_done(&self, epoch: u64) -> bool {
            epoch <= self.0
        }

        fn is_ordered_after(&self, stream: StreamId, at: Moment) -> bool {
            stream == at.stream
        }
    }

    fn after(moments: &[(u64, u64)]) -> Frontier {
        let mut frontier = Frontier::new();
        moments
            .iter()
            .for_each(|(stream, seq)| frontier.add(Moment { stream: StreamId::from_raw(*stream), seq: *seq }));
        frontier
    }

    #[test]
    fn streams_that_come_and_go_share_a_few_lanes() {
        let mut lanes = Lanes::new();
        for seq in 1..=10_000 {
            let timeline = Done(seq - 1);
            let frontier = after(&[(seq, seq)]);
            let lane = lanes.choose(&frontier, &timeline);
            lanes.push(lane, 0, frontier, 1);
            lanes.remove(lane, 0);
        }
        assert!(lanes.lanes.len() <= 2 * LANES_KEPT, "{}", lanes.lanes.len());
    }

    #[test]
    fn a_stream_that_stands_still_does_not_hold_up_what_others_finished() {
        let mut lanes = Lanes::new();
        let stuck = [after(&[(1, 1000)]), after(&[(2, 1000), (3, 1000)])];
        let done = [after(&[(4, 5)]), after(&[(5, 6), (6, 6)])];
        for (node, frontier) in stuck.into_iter().chain(done).enumerate() {
            let lane = lanes.choose(&frontier, &Done(0));
            assert_eq!(lane == APART, frontier.moments().len() == 2);
            lanes.push(lane, node as u32, frontier, 4);
        }
        let mut found = Vec::new();
        for _ in 0..12 {
            if let Some((lane, node)) = lanes.done_in_turn(&Done(10)) {
                lanes.remove(lane, node);
                found.push(node);
            }
        }
        found.sort_unstable();
        assert_eq!(found, [2, 3]);
    }
}
