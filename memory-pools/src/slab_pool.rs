//! Pools of slots of one size: a freed slot is reused across streams like a block, and never merges.

use crate::general::{Found, latest};
use crate::held::Held;
use crate::lanes::Lanes;
use crate::placer::{Block, Placer, Slabs, SpanKey};
use alloc::vec::Vec;
use hashbrown::HashMap;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::timeline::{Frontier, Timeline};

/// How many lanes a request looks at, and how many finished slots of each it merges.
const VISITS: usize = 2;
const MERGES: usize = 2;

struct Page {
    units: u32,
    span: SpanKey,
}

/// The pool. A slot whose last use may be unfinished stays in use as far as the placer knows, and lies in a lane.
pub(crate) struct SlabPool {
    placer: Slabs,
    lanes: Lanes,
    pages: Held<Page>,
    /// The slots in use or in a lane; a slot's node is its position.
    slots: Vec<Block>,
    vacant: Vec<u32>,
    /// Whose turn it is to be looked at, in `pages`.
    turn: usize,
}

impl SlabPool {
    /// A pool of slots of so many units.
    pub(crate) fn new(slot: u32) -> Self {
        let placer = Slabs::new(slot);
        Self { placer, lanes: Lanes::new(), pages: Held::new(), slots: Vec::new(), vacant: Vec::new(), turn: 0 }
    }

    /// A slot that `stream` may have at once, in constant time: of its own lane, or anyone's.
    pub(crate) fn reuse(&mut self, stream: StreamId, timeline: &(impl Timeline + ?Sized)) -> Option<Found> {
        for _ in 0..VISITS {
            for _ in 0..MERGES {
                let Some((lane, node)) = self.lanes.done_in_turn(timeline) else { break };
                self.merge(lane, node);
            }
        }
        if let Some(lane) = self.lanes.find(stream)
            && let Some(node) = self.lanes.next(lane, None)
        {
            return Some(self.take_waiting(lane, node));
        }
        self.take_free()
    }

    /// A slot that `stream` may have at once, if there is any. Takes time with the number of slots whose last use is unfinished.
    pub(crate) fn reuse_any(&mut self, stream: StreamId, timeline: &(impl Timeline + ?Sized)) -> Option<Found> {
        if let Some(found) = self.reuse(stream, timeline) {
            return Some(found);
        }
        let (lane, node) = self.lanes.active().iter().find_map(|lane| {
            let is_free = |(_, frontier): &(u32, &Frontier)| frontier.is_free_for(stream, timeline);
            self.lanes.blocks(*lane).find(is_free).map(|(node, _)| (*lane, node))
        })?;
        Some(self.take_waiting(lane, node))
    }

    fn take_free(&mut self) -> Option<Found> {
        let block = self.placer.allocate(self.placer.slot_size()).ok()?;
        let node = match self.vacant.pop() {
            Some(node) => {
                self.slots[node as usize] = block;
                node
            }
            None => {
                self.slots.push(block);
                (self.slots.len() - 1) as u32
            }
        };
        Some(Found { node, page: block.span, offset: block.offset })
    }

    fn take_waiting(&mut self, lane: u32, node: u32) -> Found {
        self.lanes.remove(lane, node);
        let block = &self.slots[node as usize];
        Found { node, page: block.span, offset: block.offset }
    }

    /// A slot of a page that was just taken from the driver. `None` never happens for a page as large as a slot.
    pub(crate) fn grow(&mut self, page: u32, page_units: u32) -> Option<Found> {
        self.pages.push(page, Page { units: page_units, span: self.placer.add_span(page, page_units) });
        self.take_free()
    }

    /// The units at the end of a page that are no slot yet.
    pub(crate) fn room_at_end(&self, page: u32) -> Option<u64> {
        Some(u64::from(self.pages.of(page)?.units % self.placer.slot_size()))
    }

    /// A page has become larger at its end.
    pub(crate) fn extend(&mut self, page: u32, page_units: u32) {
        if let Some(known) = self.pages.of_mut(page) {
            known.units = page_units;
            self.placer.grow_span(&known.span, page_units);
        }
    }

    /// Frees a slot whose last uses are `frontier`.
    pub(crate) fn free(&mut self, node: u32, mut frontier: Frontier, timeline: &(impl Timeline + ?Sized)) {
        frontier.prune(timeline);
        if frontier.is_empty() {
            self.give_back(node);
            return;
        }
        let lane = self.lanes.choose(&frontier, timeline);
        self.lanes.push(lane, node, frontier, self.slots.len());
    }

    fn give_back(&mut self, node: u32) {
        self.placer.free(self.slots[node as usize].key);
        self.vacant.push(node);
    }

    fn merge(&mut self, lane: u32, node: u32) {
        self.lanes.remove(lane, node);
        self.give_back(node);
    }

    /// Makes every slot whose last use is done anyone's.
    pub(crate) fn merge_done(&mut self, timeline: &(impl Timeline + ?Sized)) {
        for position in 0..self.lanes.active().len() {
            let lane = self.lanes.active()[position];
            let mut at = self.lanes.next(lane, None);
            while let Some(node) = at {
                at = self.lanes.next(lane, Some(node));
                if self.lanes.frontier(node).is_done(timeline) {
                    self.merge(lane, node);
                }
            }
        }
        self.lanes.retire_empty();
    }

    /// Takes out one page that is free as a whole, of those before the position `from`, which moves on; its index in the table of pages.
    pub(crate) fn take_free_page(&mut self, from: &mut Option<usize>) -> Option<u32> {
        let position = self.pages.last_before(from, |page| self.placer.is_span_free(&page.span))?;
        self.take_page_at(position)
    }

    /// Takes out this page, if it is free as a whole.
    pub(crate) fn take_page_if_free(&mut self, page: u32) -> Option<u32> {
        self.take_page_at(self.pages.position(page)?)
    }

    /// Merges a bounded number of slots and looks at one page, at each in turn: takes it out, if it is free as a whole.
    pub(crate) fn settle_in_turn(&mut self, timeline: &(impl Timeline + ?Sized)) -> Option<u32> {
        for _ in 0..MERGES {
            let Some((lane, node)) = self.lanes.done_in_turn(timeline) else { break };
            self.merge(lane, node);
        }
        self.turn = if self.turn + 1 < self.pages.len() { self.turn + 1 } else { 0 };
        self.take_page_at(self.turn)
    }

    fn take_page_at(&mut self, position: usize) -> Option<u32> {
        if !self.placer.is_span_free(&self.pages.at(position)?.span) {
            return None;
        }
        let (page, Page { units, span }) = self.pages.take(position)?;
        match self.placer.remove_span(span) {
            Ok(()) => Some(page),
            Err(span) => {
                self.pages.push(page, Page { units, span });
                None
            }
        }
    }

    fn waiting(&self) -> impl Iterator<Item = (u32, &Frontier)> {
        self.lanes.active().iter().flat_map(|lane| self.lanes.blocks(*lane))
    }

    /// The frontier after which a slot can be had: the one that seems done the earliest.
    pub(crate) fn when_fits(&self) -> Option<Frontier> {
        self.waiting().map(|(_, frontier)| frontier).min_by_key(|frontier| latest(frontier)).cloned()
    }

    /// The pages in which nothing is in use: their units, and what is to be done before they are free as a whole.
    pub(crate) fn emptying(&self, mut each: impl FnMut(u64, Frontier)) {
        // How many of a page's slots are in use and in no lane, and what those in a lane wait for.
        let mut of_page: HashMap<u32, (usize, Frontier)> = HashMap::new();
        for slot in &self.slots {
            of_page.entry(slot.span).or_default().0 += 1;
        }
        for node in &self.vacant {
            of_page.entry(self.slots[*node as usize].span).or_default().0 -= 1;
        }
        for (node, uses) in self.waiting() {
            let (used, frontier) = of_page.entry(self.slots[node as usize].span).or_default();
            *used -= 1;
            frontier.join(uses);
        }
        for (page, Page { units, .. }) in self.pages.iter() {
            if let (0, frontier) = of_page.remove(&page).unwrap_or_default() {
                each((*units).into(), frontier);
            }
        }
    }

    /// Whether a slot is anyone's, and whether there is a free one of any kind, as the units it has.
    pub(crate) fn largest(&self) -> (u32, u32) {
        let anyone = self.placer.largest_free();
        let any = if self.waiting().next().is_some() { self.placer.slot_size() } else { anyone };
        (anyone, any)
    }
}
