//! Blocks of one size: spans cut into equal slots.

use super::{Block, BlockKey, NONE, PlaceError, Placer, SpanKey};
use alloc::vec::Vec;

/// In place of a neighbour: the slot is in use, or the span is in no list.
const OUT: u32 = u32::MAX - 1;

/// A slot that is or was in use.
#[derive(Clone, Copy)]
struct Slot {
    span: u32,
    offset: u32,
    /// The next free slot of the span, or the next node that is of no span; [`OUT`] while in use.
    next: u32,
    generation: u32,
}

struct Span {
    tag: u32,
    /// How many slots it has; [`NONE`] where there is no span.
    slots: u32,
    used: u32,
    /// How many of its first slots were ever in use. The others have no node yet.
    begun: u32,
    /// The free ones of those.
    free: u32,
    /// Neighbours among the spans with room.
    previous: u32,
    next: u32,
}

/// Places blocks of up to one size, each in a slot of that size. There is nothing to merge and no remainder to keep, so a free and a
/// request take the least time and memory of all placers; what a block leaves of its slot is lost until it is freed.
///
/// Requests fill the span in which a slot became free last, so that spans that are nearly empty become empty and can be removed.
///
/// ```
/// use trunnion_memory_pools::placer::{PlaceError, Placer, Slabs};
/// let mut slabs = Slabs::new(64);
/// slabs.add_span(7, 1000);
/// let block = slabs.allocate(40)?;
/// assert_eq!((block.offset % 64, block.size), (0, 64));
/// assert_eq!(slabs.allocate(65), Err(PlaceError::TooLarge { size: 65, limit: 64 }));
/// # Ok::<(), PlaceError>(())
/// ```
pub struct Slabs {
    slot: u32,
    slots: Vec<Slot>,
    /// Nodes that are of no span.
    spare: u32,
    spans: Vec<Span>,
    /// Numbers of spans that were removed.
    vacant: Vec<u32>,
    /// The spans with room: first those in part used, the one freed into last at their head, then the empty ones.
    first: u32,
    last: u32,
}

impl core::fmt::Debug for Slabs {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let spans = self.spans.len() - self.vacant.len();
        f.debug_struct("Slabs").field("slot", &self.slot).field("spans", &spans).finish()
    }
}

impl Slabs {
    /// A placer of blocks of up to `slot` units, without spans. 0 counts as 1.
    pub fn new(slot: u32) -> Self {
        Self {
            slot: slot.max(1),
            slots: Vec::new(),
            spare: NONE,
            spans: Vec::new(),
            vacant: Vec::new(),
            first: NONE,
            last: NONE,
        }
    }

    /// The length of a slot, in units.
    pub fn slot_size(&self) -> u32 {
        self.slot
    }

    /// The largest alignment all slots have.
    fn alignment(&self) -> u32 {
        self.slot & self.slot.wrapping_neg()
    }

    #[cold]
    fn refusal(&self, size: u32) -> PlaceError {
        match size {
            0 => PlaceError::Empty,
            size if size > self.slot => PlaceError::TooLarge { size, limit: self.slot },
            size => PlaceError::Full { size, alignment: 1 },
        }
    }

    /// A slot that was never in use of a span that has one.
    fn begin_slot(&mut self, span: u32) -> u32 {
        let of = &mut self.spans[span as usize];
        let offset = of.begun * self.slot;
        of.begun += 1;
        if let Some(known) = self.slots.get_mut(self.spare as usize) {
            let index = core::mem::replace(&mut self.spare, known.next);
            // The generation goes on, so that keys of former tenants stay stale.
            *known = Slot { span, offset, next: OUT, generation: known.generation.wrapping_add(1) };
            return index;
        }
        self.slots.push(Slot { span, offset, next: OUT, generation: 0 });
        (self.slots.len() - 1) as u32
    }

    /// Puts a span with room at the head of the list, or an empty one at its end.
    fn link(&mut self, span: u32, empty: bool) {
        let (previous, next) = if empty { (self.last, NONE) } else { (NONE, self.first) };
        let of = &mut self.spans[span as usize];
        (of.previous, of.next) = (previous, next);
        match self.spans.get_mut(previous as usize) {
            Some(previous) => previous.next = span,
            None => self.first = span,
        }
        match self.spans.get_mut(next as usize) {
            Some(next) => next.previous = span,
            None => self.last = span,
        }
    }

    fn unlink(&mut self, span: u32) {
        let of = &mut self.spans[span as usize];
        let (previous, next) = (of.previous, of.next);
        (of.previous, of.next) = (OUT, OUT);
        match self.spans.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.first = next,
        }
        match self.spans.get_mut(next as usize) {
            Some(next) => next.previous = previous,
            None => self.last = previous,
        }
    }
}

impl Placer for Slabs {
    /// What is left of the span behind its last whole slot is not used.
    fn add_span(&mut self, tag: u32, size: u32) -> SpanKey {
        let slots = size / self.slot;
        let span = Span { tag, slots, used: 0, begun: 0, free: NONE, previous: OUT, next: OUT };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.spans[index as usize] = span;
                index
            }
            None => {
                self.spans.push(span);
                (self.spans.len() - 1) as u32
            }
        };
        if slots > 0 {
            self.link(index, true);
        }
        SpanKey(index)
    }

    /// Constant time.
    fn grow_span(&mut self, span: &SpanKey, size: u32) {
        let (index, slots) = (span.0, size / self.slot);
        let Some(span) = self.spans.get_mut(index as usize).filter(|span| slots > span.slots && span.slots != NONE)
        else {
            return;
        };
        let (had_room, is_empty) = (span.used < span.slots, span.used == 0);
        span.slots = slots;
        if !had_room {
            self.link(index, is_empty);
        }
    }

    /// Takes time with the number of slots of the span that were ever in use at once.
    fn remove_span(&mut self, span: SpanKey) -> Result<(), SpanKey> {
        if !self.is_span_free(&span) {
            return Err(span);
        }
        let of = &mut self.spans[span.0 as usize];
        let has_room = of.slots > 0;
        of.slots = NONE;
        let mut at = of.free;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            let next = core::mem::replace(&mut slot.next, self.spare);
            self.spare = core::mem::replace(&mut at, next);
        }
        if has_room {
            self.unlink(span.0);
        }
        self.vacant.push(span.0);
        Ok(())
    }

    /// Constant time.
    fn is_span_free(&self, span: &SpanKey) -> bool {
        self.spans.get(span.0 as usize).is_some_and(|span| span.slots != NONE && span.used == 0)
    }

    /// Constant time. The largest alignment is that of the slots.
    fn allocate_aligned(&mut self, size: u32, alignment: u32) -> Result<Block, PlaceError> {
        let limit = self.alignment();
        if !alignment.is_power_of_two() || alignment > limit {
            return Err(PlaceError::Alignment { alignment, limit });
        }
        self.allocate(size).map_err(|refused| match refused {
            PlaceError::Full { size, .. } => PlaceError::Full { size, alignment },
            refused => refused,
        })
    }

    /// Constant time.
    #[inline]
    fn allocate(&mut self, size: u32) -> Result<Block, PlaceError> {
        let span = self.first;
        // 0 wraps to more than any slot.
        let fits = size.wrapping_sub(1) < self.slot;
        let Some(of) = self.spans.get_mut(span as usize).filter(|_| fits) else { return Err(self.refusal(size)) };
        of.used += 1;
        let (tag, full) = (of.tag, of.used == of.slots);
        let index = match self.slots.get_mut(of.free as usize) {
            Some(slot) => core::mem::replace(&mut of.free, core::mem::replace(&mut slot.next, OUT)),
            None => self.begin_slot(span),
        };
        if full {
            self.unlink(span);
        }
        let Slot { offset, generation, .. } = self.slots[index as usize];
        Ok(Block { key: BlockKey { index, generation }, span: tag, offset, size: self.slot })
    }

    /// Constant time.
    #[inline]
    fn free(&mut self, key: BlockKey) -> bool {
        let Some(slot) = self.slots.get_mut(key.index as usize) else { return false };
        if slot.generation != key.generation || slot.next != OUT {
            return false;
        }
        let span = slot.span;
        let of = &mut self.spans[span as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = core::mem::replace(&mut of.free, key.index);
        let (was_full, empty) = (of.used == of.slots, of.used == 1);
        of.used -= 1;
        if empty && !was_full {
            self.unlink(span);
        }
        if empty || was_full {
            self.link(span, empty);
        }
        true
    }

    fn block(&self, key: BlockKey) -> Option<Block> {
        let slot = self.slots.get(key.index as usize)?;
        let tag = self.spans.get(slot.span as usize)?.tag;
        (slot.generation == key.generation && slot.next == OUT).then_some(Block {
            key,
            span: tag,
            offset: slot.offset,
            size: self.slot,
        })
    }

    /// A slot, while one is free. Constant time.
    fn largest_free(&self) -> u32 {
        if self.first == NONE { 0 } else { self.slot }
    }
}
