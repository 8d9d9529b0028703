//! Pools of any sizes: blocks placed inside pages where they fit, reused across streams.

use crate::held::Held;
use crate::lanes::Lanes;
use crate::placer::{ANYONE, APART, NOBODY, Placer, SegregatedFit, SpanKey};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::timeline::{Frontier, Timeline};

/// How many lanes a request looks at, and how many finished blocks of each it merges.
const VISITS: usize = 2;
const MERGES: usize = 2;

/// The pool. Sizes and offsets are in units of the pools' alignment, pages by their index in the table of pages.
pub(crate) struct General {
    placer: SegregatedFit,
    lanes: Lanes,
    spans: Held<SpanKey>,
    /// The fewest units a page of it ever had.
    smallest: u32,
    /// Whose turn it is to be looked at, in `spans`.
    turn: usize,
}

/// A block that was found.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) node: u32,
    pub(crate) page: u32,
    pub(crate) offset: u32,
}

impl General {
    pub(crate) fn new() -> Self {
        Self { placer: SegregatedFit::new(), lanes: Lanes::new(), spans: Held::new(), smallest: u32::MAX, turn: 0 }
    }

    /// A free block that `stream` may have at once, in constant time: the tighter fit of the stream's own lane and of what is anyone's.
    #[inline(always)]
    pub(crate) fn reuse(&mut self, units: u32, stream: StreamId, timeline: &(impl Timeline + ?Sized)) -> Option<Found> {
        let own = if self.lanes.is_empty() {
            None
        } else {
            self.merge_some(timeline);
            self.lanes.find(stream).and_then(|lane| self.placer.find(lane, units))
        };
        let anyone = self.placer.find(ANYONE, units);
        let node = match (own, anyone) {
            (Some(own), Some(anyone)) if self.placer.size(anyone) < self.placer.size(own) => anyone,
            (own, anyone) => own.or(anyone)?,
        };
        Some(self.take(node, units))
    }

    /// A free block that `stream` may have at once, if there is any: in its own lane or of what is anyone's however long the list, one
    /// whose frontier the stream has waited for, or several of these next to each other. Takes time with the number of freed blocks
    /// whose last use is unfinished, and is asked only where a driver call or a refusal would follow.
    pub(crate) fn reuse_any(
        &mut self,
        units: u32,
        stream: StreamId,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<Found> {
        let own = self.lanes.find(stream);
        let node =
            own.and_then(|lane| self.placer.find_any(lane, units)).or_else(|| self.placer.find_any(ANYONE, units));
        let node = node.or_else(|| {
            self.lanes.active().iter().filter(|lane| Some(**lane) != own).find_map(|lane| {
                self.lanes
                    .blocks(*lane)
                    .filter(|(node, _)| self.placer.size(*node) >= units)
                    .find(|(_, frontier)| frontier.is_free_for(stream, timeline))
                    .map(|(node, _)| node)
            })
        });
        let node = node.or_else(|| self.gather(units, stream, timeline))?;
        Some(self.take(node, units))
    }

    /// Merges blocks that lie next to each other in different lanes, each free for `stream`, if together they have so much: the block
    /// they become, in the stream's lane.
    fn gather(&mut self, units: u32, stream: StreamId, timeline: &(impl Timeline + ?Sized)) -> Option<u32> {
        let own = self.lanes.find(stream);
        let apart: Vec<u32> = self.run(units, own, stream, timeline)?;
        let lane = self.lanes.of(stream);
        self.placer.ensure_lane(lane);
        let mut merged = None;
        for node in apart {
            let from = self.placer.lane(node);
            let frontier = if from == ANYONE { Frontier::new() } else { self.lanes.remove(from, node) };
            let (became, absorbed) = self.placer.move_to(node, lane);
            self.join_lane(lane, node, became, absorbed, frontier);
            merged = Some(became);
        }
        merged.filter(|node| self.placer.size(*node) >= units)
    }

    /// Of the first blocks next to each other that `stream` may have and that together have so much: those not in its `own` lane.
    fn run(
        &self,
        units: u32,
        own: Option<u32>,
        stream: StreamId,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<Vec<u32>> {
        let may_have = |node: &u32| Some(self.placer.lane(*node)) == own || self.may_have(*node, stream, timeline);
        let before = |node: u32| self.placer.before(node).filter(may_have);
        let waiting = self.lanes.active().iter().flat_map(|lane| self.lanes.blocks(*lane)).map(|(node, _)| node);
        waiting.filter(may_have).find_map(|node| {
            // Each run once: what is anyone's has no such neighbour, so it begins at most one before the first that waits.
            let first = before(node).unwrap_or(node);
            if first != node && (self.placer.lane(first) != ANYONE || before(first).is_some()) {
                return None;
            }
            let mut sum = 0u64;
            let mut apart = Vec::new();
            for at in core::iter::successors(Some(first), |at| self.placer.after(*at)).take_while(may_have) {
                sum += u64::from(self.placer.size(at));
                if Some(self.placer.lane(at)) != own {
                    apart.push(at);
                }
                if sum >= u64::from(units) {
                    return Some(apart);
                }
            }
            None
        })
    }

    /// Whether a block is free, and `stream` comes after its last uses.
    fn may_have(&self, node: u32, stream: StreamId, timeline: &(impl Timeline + ?Sized)) -> bool {
        self.placer.lane(node) == ANYONE
            || (self.placer.is_free(node) && self.lanes.frontier(node).is_free_for(stream, timeline))
    }

    #[inline]
    fn take(&mut self, node: u32, units: u32) -> Found {
        let lane = self.placer.lane(node);
        let taken = self.placer.take(node, lane, units);
        if taken == node && lane != ANYONE {
            self.lanes.remove(lane, node);
        }
        Found { node: taken, page: self.placer.span(taken), offset: self.placer.offset(taken) }
    }

    /// Places a block in a page that was just taken from the driver. `None` never happens for a page as large as the block.
    pub(crate) fn grow(&mut self, page: u32, page_units: u32, units: u32) -> Option<Found> {
        let span = self.placer.add_span(page, page_units);
        let block = self.placer.blocks(&span).next();
        self.spans.push(page, span);
        self.smallest = self.smallest.min(page_units);
        Some(self.take(block?.0, units))
    }

    /// The units at the end of a page that `stream` may have at once. Takes time with the number of blocks in the page.
    pub(crate) fn room_at_end(&self, page: u32, stream: StreamId, timeline: &(impl Timeline + ?Sized)) -> Option<u64> {
        let last = self.placer.last(self.spans.of(page)?)?;
        let blocks = core::iter::successors(Some(last), |node| self.placer.before(*node));
        let room = blocks.take_while(|node| self.may_have(*node, stream, timeline));
        Some(room.map(|node| u64::from(self.placer.size(node))).sum())
    }

    /// What to wait for, for the end of a page to have so many units free, if what was freed makes that. Takes time with the number of blocks
    /// in the page.
    pub(crate) fn when_room_at_end(&self, page: u32, units: u64) -> Option<Frontier> {
        let last = self.placer.last(self.spans.of(page)?)?;
        let (mut room, mut frontier) = (0, Frontier::new());
        let free = |node: &u32| self.placer.is_free(*node);
        for node in core::iter::successors(Some(last), |node| self.placer.before(*node)).take_while(free) {
            if room >= units {
                break;
            }
            room += u64::from(self.placer.size(node));
            self.join(node, &mut frontier);
        }
        (room >= units).then_some(frontier)
    }

    /// A page has become larger at its end.
    pub(crate) fn extend(&mut self, page: u32, page_units: u32) {
        if let Some(span) = self.spans.of(page) {
            self.placer.grow_span(span, page_units);
        }
    }

    /// Frees a block whose last uses are `frontier`.
    #[inline(always)]
    pub(crate) fn free(&mut self, node: u32, mut frontier: Frontier, timeline: &(impl Timeline + ?Sized)) {
        frontier.prune(timeline);
        if frontier.is_empty() {
            self.placer.put(node, ANYONE);
            return;
        }
        let lane = self.lanes.choose(&frontier, timeline);
        self.placer.ensure_lane(lane);
        let (became, absorbed) = self.placer.put(node, lane);
        self.join_lane(lane, node, became, absorbed, frontier);
    }

    /// A block came into a lane, where it became and absorbed what the placer says.
    #[inline(always)]
    fn join_lane(&mut self, lane: u32, node: u32, became: u32, absorbed: u32, mut frontier: Frontier) {
        for part in [absorbed, if became == node { NOBODY } else { became }] {
            if part != NOBODY {
                frontier.join(&self.lanes.remove(lane, part));
            }
        }
        self.lanes.push(lane, became, frontier, self.placer.nodes());
    }

    /// Makes a bounded number of blocks whose last use is done anyone's.
    #[inline]
    fn merge_some(&mut self, timeline: &(impl Timeline + ?Sized)) {
        for _ in 0..VISITS {
            for _ in 0..MERGES {
                let Some((lane, node)) = self.lanes.done_in_turn(timeline) else { break };
                self.lanes.remove(lane, node);
                self.placer.move_to(node, ANYONE);
            }
        }
    }

    /// Makes every block whose last use is done anyone's.
    pub(crate) fn merge_done(&mut self, timeline: &(impl Timeline + ?Sized)) {
        for position in 0..self.lanes.active().len() {
            let lane = self.lanes.active()[position];
            let mut at = self.lanes.next(lane, None);
            while let Some(node) = at {
                at = self.lanes.next(lane, Some(node));
                if self.lanes.frontier(node).is_done(timeline) {
                    self.lanes.remove(lane, node);
                    self.placer.move_to(node, ANYONE);
                }
            }
        }
        self.lanes.retire_empty();
    }

    /// Takes out one page that is free as a whole, of those before the position `from`, which moves on; its index in the table of pages.
    pub(crate) fn take_free_page(&mut self, from: &mut Option<usize>) -> Option<u32> {
        if !self.placer.may_hold(ANYONE, self.smallest) {
            return None;
        }
        let position = self.spans.last_before(from, |span| self.placer.is_span_free(span))?;
        self.take_page_at(position)
    }

    /// Takes out this page, if it is free as a whole.
    pub(crate) fn take_page_if_free(&mut self, page: u32) -> Option<u32> {
        self.take_page_at(self.spans.position(page)?)
    }

    /// Merges a bounded number of blocks and looks at one page, at each in turn: takes it out, if it is free as a whole.
    pub(crate) fn settle_in_turn(&mut self, timeline: &(impl Timeline + ?Sized)) -> Option<u32> {
        self.merge_some(timeline);
        self.turn = if self.turn + 1 < self.spans.len() { self.turn + 1 } else { 0 };
        self.take_page_at(self.turn)
    }

    fn take_page_at(&mut self, position: usize) -> Option<u32> {
        if !self.placer.is_span_free(self.spans.at(position)?) {
            return None;
        }
        let (page, span) = self.spans.take(position)?;
        match self.placer.remove_span(span) {
            Ok(()) => Some(page),
            Err(span) => {
                self.spans.push(page, span);
                None
            }
        }
    }

    /// The frontier after which a block of this size can be placed, if freed blocks make one: the one that seems done the earliest.
    pub(crate) fn when_fits(&self, units: u32) -> Option<Frontier> {
        let mut best: Option<(u64, Frontier)> = None;
        // Blocks next to each other that are all free, and as few of the latest as hold the size.
        let mut window: VecDeque<(u32, u32)> = VecDeque::new();
        for (_, span) in self.spans.iter() {
            let mut sum = 0;
            window.clear();
            for (node, size, free) in self.placer.blocks(span) {
                if !free {
                    window.clear();
                    sum = 0;
                    continue;
                }
                window.push_back((node, size));
                sum += u64::from(size);
                while let Some((_, first)) = window.front()
                    && sum - u64::from(*first) >= u64::from(units)
                {
                    sum -= u64::from(*first);
                    window.pop_front();
                }
                if sum >= u64::from(units) {
                    let mut frontier = Frontier::new();
                    for (node, _) in &window {
                        self.join(*node, &mut frontier);
                    }
                    let latest = latest(&frontier);
                    if best.as_ref().is_none_or(|(known, _)| latest < *known) {
                        best = Some((latest, frontier));
                    }
                }
            }
        }
        best.map(|(_, frontier)| frontier)
    }

    /// The pages in which nothing is in use: their units, and what is to be done before they are free as a whole.
    pub(crate) fn emptying(&self, mut each: impl FnMut(u64, Frontier)) {
        for (_, span) in self.spans.iter() {
            if self.placer.blocks(span).all(|(_, _, free)| free) {
                let (mut units, mut frontier) = (0, Frontier::new());
                for (node, size, _) in self.placer.blocks(span) {
                    units += u64::from(size);
                    self.join(node, &mut frontier);
                }
                each(units, frontier);
            }
        }
    }

    fn join(&self, node: u32, frontier: &mut Frontier) {
        if self.placer.lane(node) != ANYONE {
            frontier.join(self.lanes.frontier(node));
        }
    }

    /// The largest block that is anyone's, and the largest free one of all.
    pub(crate) fn largest(&self) -> (u32, u32) {
        let anyone = self.placer.largest(ANYONE);
        let waiting = self.lanes.active().iter().map(|lane| match *lane {
            APART => self.lanes.blocks(APART).map(|(node, _)| self.placer.size(node)).max().unwrap_or(0),
            lane => self.placer.largest(lane),
        });
        (anyone, waiting.fold(anyone, u32::max))
    }
}

/// A number that grows with how late a frontier seems to be done.
pub(crate) fn latest(frontier: &Frontier) -> u64 {
    frontier.moments().iter().map(|m| m.seq).fold(frontier.epoch(), u64::max)
}
