//! Pools for what dies together: pages filled from their begin, and used again across streams as a whole.
//!
//! A page carries two frontiers: what its blocks come after, and what whoever fills it the next time comes after. A stream may fill a page
//! when everything in the first is done or ordered before what the stream does next; when the page's last block is freed, the second becomes
//! the first.

use crate::general::{Found, latest};
use crate::placer::{BlockKey, Linear, Placer, SpanKey};
use alloc::vec::Vec;
use hashbrown::HashMap;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::timeline::{Frontier, Timeline};

/// How many pages a request looks at, beside the one that is being filled.
const LOOKS: usize = 4;

struct Page {
    page: u32,
    units: u32,
    placer: Linear,
    span: SpanKey,
    before: Frontier,
    after: Frontier,
}

impl Page {
    fn is_empty(&self) -> bool {
        self.placer.is_span_free(&self.span)
    }

    fn is_free(&self) -> bool {
        self.is_empty() && self.before.is_empty()
    }
}

/// The pool.
pub(crate) struct LinearPool {
    /// By number; a number is used again when its page was returned.
    pages: Vec<Option<Page>>,
    /// The numbers of pages, and those that no page has.
    numbers: HashMap<u32, u32>,
    unused: Vec<u32>,
    /// The blocks that live; a block's node is its position.
    blocks: Vec<(u32, BlockKey)>,
    vacant: Vec<u32>,
    /// The page that is being filled.
    current: usize,
    /// Whose turn it is to be looked at.
    turn: usize,
}

impl LinearPool {
    pub(crate) fn new() -> Self {
        Self {
            pages: Vec::new(),
            numbers: HashMap::new(),
            unused: Vec::new(),
            blocks: Vec::new(),
            vacant: Vec::new(),
            current: 0,
            turn: 0,
        }
    }

    /// A place that `stream` may have at once, in constant time: in the page that is being filled, or in one of a few others.
    pub(crate) fn reuse(&mut self, units: u32, stream: StreamId, timeline: &(impl Timeline + ?Sized)) -> Option<Found> {
        self.fill(self.current, units, stream, timeline).or_else(|| {
            (0..LOOKS.min(self.pages.len())).find_map(|_| {
                let page = self.next_in_turn();
                self.fill(page, units, stream, timeline)
            })
        })
    }

    /// A place that `stream` may have at once, if there is any. Takes time with the number of pages.
    pub(crate) fn reuse_any(
        &mut self,
        units: u32,
        stream: StreamId,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<Found> {
        (0..self.pages.len()).find_map(|page| self.fill(page, units, stream, timeline))
    }

    fn next_in_turn(&mut self) -> usize {
        self.turn = if self.turn + 1 < self.pages.len() { self.turn + 1 } else { 0 };
        self.turn
    }

    fn fill(
        &mut self,
        number: usize,
        units: u32,
        stream: StreamId,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<Found> {
        let page = self.pages.get_mut(number)?.as_mut()?;
        if !page.before.is_free_for(stream, timeline) {
            return None;
        }
        let block = page.placer.allocate(units).ok()?;
        self.current = number;
        let entry = (number as u32, block.key);
        let node = match self.vacant.pop() {
            Some(node) => {
                self.blocks[node as usize] = entry;
                node
            }
            None => {
                self.blocks.push(entry);
                (self.blocks.len() - 1) as u32
            }
        };
        Some(Found { node, page: page.page, offset: block.offset })
    }

    /// A place in a page that was just taken from the driver. `None` never happens for a page as large as the block.
    pub(crate) fn grow(
        &mut self,
        page: u32,
        page_units: u32,
        units: u32,
        stream: StreamId,
        timeline: &(impl Timeline + ?Sized),
    ) -> Option<Found> {
        let mut placer = Linear::new();
        let span = placer.add_span(page, page_units);
        let known = Page { page, units: page_units, placer, span, before: Frontier::new(), after: Frontier::new() };
        let number = match self.unused.pop() {
            Some(number) => {
                self.pages[number as usize] = Some(known);
                number
            }
            None => {
                self.pages.push(Some(known));
                (self.pages.len() - 1) as u32
            }
        };
        self.numbers.insert(page, number);
        self.fill(number as usize, units, stream, timeline)
    }

    fn of(&self, page: u32) -> Option<&Page> {
        self.pages.get(*self.numbers.get(&page)? as usize)?.as_ref()
    }

    /// The units at the end of a page, where `stream` may fill it.
    pub(crate) fn room_at_end(&self, page: u32, stream: StreamId, timeline: &(impl Timeline + ?Sized)) -> Option<u64> {
        let page = self.of(page).filter(|page| page.before.is_free_for(stream, timeline))?;
        Some(page.placer.largest_free().into())
    }

    /// What to wait for, for a page to be filled by so many units at its end.
    pub(crate) fn when_room_at_end(&self, page: u32, units: u64) -> Option<Frontier> {
        let page = self.of(page).filter(|page| u64::from(page.placer.largest_free()) >= units)?;
        Some(page.before.clone())
    }

    /// A page has become larger at its end.
    pub(crate) fn extend(&mut self, page: u32, page_units: u32) {
        let Some(number) = self.numbers.get(&page) else { return };
        if let Some(Some(page)) = self.pages.get_mut(*number as usize) {
            page.units = page_units;
            page.placer.grow_span(&page.span, page_units);
        }
    }

    /// Frees a block whose last uses are `frontier`.
    pub(crate) fn free(&mut self, node: u32, mut frontier: Frontier, timeline: &(impl Timeline + ?Sized)) {
        let (number, key) = self.blocks[node as usize];
        self.vacant.push(node);
        let Some(Some(page)) = self.pages.get_mut(number as usize) else { return };
        page.placer.free(key);
        frontier.prune(timeline);
        page.after.join(&frontier);
        if page.is_empty() {
            // Each block's last uses come after what its page waited for.
            page.before = core::mem::take(&mut page.after);
        }
    }

    /// Forgets what is done.
    pub(crate) fn merge_done(&mut self, timeline: &(impl Timeline + ?Sized)) {
        self.pages.iter_mut().flatten().for_each(|page| page.before.prune(timeline));
    }

    /// Takes out one page that is free as a whole, of those before the position `from`, which moves on; its index in the table of pages.
    pub(crate) fn take_free_page(&mut self, from: &mut Option<usize>) -> Option<u32> {
        let end = from.unwrap_or(usize::MAX).min(self.pages.len());
        let number = self.pages[..end].iter().rposition(|page| page.as_ref().is_some_and(Page::is_free));
        *from = Some(number.unwrap_or(0));
        self.take_page_at(number?)
    }

    /// Takes out this page, if it is free as a whole.
    pub(crate) fn take_page_if_free(&mut self, page: u32) -> Option<u32> {
        self.take_page_at(*self.numbers.get(&page)? as usize)
    }

    /// Looks at one page, at each in turn: takes it out, if it is free as a whole.
    pub(crate) fn settle_in_turn(&mut self, timeline: &(impl Timeline + ?Sized)) -> Option<u32> {
        let number = self.next_in_turn();
        self.pages.get_mut(number)?.as_mut()?.before.prune(timeline);
        self.take_page_at(number)
    }

    fn take_page_at(&mut self, number: usize) -> Option<u32> {
        let page = self.pages.get_mut(number)?.take_if(|page| page.is_free())?.page;
        self.numbers.remove(&page);
        self.unused.push(number as u32);
        Some(page)
    }

    /// The frontier after which a block of this size can be placed: the one that seems done the earliest.
    pub(crate) fn when_fits(&self, units: u32) -> Option<Frontier> {
        let fits = self.pages.iter().flatten().filter(|page| page.placer.largest_free() >= units);
        fits.map(|page| &page.before).min_by_key(|frontier| latest(frontier)).cloned()
    }

    /// The pages in which nothing is in use: their units, and what is to be done before they are free as a whole.
    pub(crate) fn emptying(&self, mut each: impl FnMut(u64, Frontier)) {
        self.pages
            .iter()
            .flatten()
            .filter(|page| page.is_empty())
            .for_each(|page| each(page.units.into(), page.before.clone()));
    }

    /// The largest piece that is anyone's, and the largest free one of all.
    pub(crate) fn largest(&self) -> (u32, u32) {
        let pages = || self.pages.iter().flatten();
        let anyone = pages().filter(|page| page.before.is_empty()).map(|page| page.placer.largest_free());
        (anyone.max().unwrap_or(0), pages().map(|page| page.placer.largest_free()).max().unwrap_or(0))
    }
}
