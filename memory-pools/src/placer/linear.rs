//! Blocks that die together: spans filled from their begin, free again as a whole.

use super::{Block, BlockKey, MAX_SPAN, NONE, PlaceError, Placer, SpanKey};
use alloc::vec::Vec;

/// One allocation.
#[derive(Clone, Copy)]
struct Node {
    /// [`NONE`] where the node is spare.
    span: u32,
    offset: u32,
    size: u32,
    generation: u32,
}

struct Span {
    tag: u32,
    size: u32,
    /// Where the next block goes.
    top: u32,
    /// How many blocks live; [`NONE`] where there is no span.
    live: u32,
}

impl Span {
    /// Where a block of this size goes.
    #[inline]
    fn fit(&self, size: u32, alignment: u32) -> Option<u32> {
        let offset = self.top.checked_next_multiple_of(alignment)?;
        (self.live != NONE && self.size.checked_sub(offset)? >= size).then_some(offset)
    }
}

/// Places blocks one after the other. A freed block is not used again before every other block of its span is freed too: then the
/// span is free as a whole.
///
/// ```
/// use trunnion_memory_pools::placer::{PlaceError, Placer, Linear};
/// let mut linear = Linear::new();
/// linear.add_span(7, 1000);
/// let (a, b) = (linear.allocate(600)?, linear.allocate(400)?);
/// assert_eq!((a.offset, b.offset), (0, 600));
/// assert!(linear.free(b.key));
/// assert!(linear.allocate(1).is_err());
/// assert!(linear.free(a.key));
/// assert_eq!(linear.allocate(1000)?.offset, 0);
/// # Ok::<(), PlaceError>(())
/// ```
///
/// Equivalent to: `VMA_POOL_CREATE_LINEAR_ALGORITHM_BIT`, used as a free-at-once stack.
#[derive(Default)]
pub struct Linear {
    nodes: Vec<Node>,
    spare: Vec<u32>,
    spans: Vec<Span>,
    vacant: Vec<u32>,
    /// The span that is being filled.
    current: u32,
}

impl core::fmt::Debug for Linear {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let blocks = self.nodes.len() - self.spare.len();
        let spans = self.spans.len() - self.vacant.len();
        f.debug_struct("Linear").field("blocks", &blocks).field("spans", &spans).finish()
    }
}

impl Linear {
    /// A placer without spans.
    pub fn new() -> Self {
        Self::default()
    }

    /// A span with room, other than the current one.
    #[cold]
    fn find_span(&self, size: u32, alignment: u32) -> Result<(u32, u32), PlaceError> {
        let fit = |(index, span): (usize, &Span)| span.fit(size, alignment).map(|offset| (index as u32, offset));
        self.spans.iter().enumerate().find_map(fit).ok_or(PlaceError::Full { size, alignment })
    }
}

impl Placer for Linear {
    fn add_span(&mut self, tag: u32, size: u32) -> SpanKey {
        let span = Span { tag, size, top: 0, live: 0 };
        match self.vacant.pop() {
            Some(index) => {
                self.spans[index as usize] = span;
                SpanKey(index)
            }
            None => {
                self.spans.push(span);
                SpanKey((self.spans.len() - 1) as u32)
            }
        }
    }

    /// Constant time.
    fn grow_span(&mut self, span: &SpanKey, size: u32) {
        if let Some(span) = self.spans.get_mut(span.0 as usize)
            && span.live != NONE
        {
            span.size = span.size.max(size);
        }
    }

    fn remove_span(&mut self, span: SpanKey) -> Result<(), SpanKey> {
        if !self.is_span_free(&span) {
            return Err(span);
        }
        self.spans[span.0 as usize].live = NONE;
        self.vacant.push(span.0);
        Ok(())
    }

    /// Constant time.
    fn is_span_free(&self, span: &SpanKey) -> bool {
        self.spans.get(span.0 as usize).is_some_and(|span| span.live == 0)
    }

    /// Constant time where the span that is being filled has room; else a look at each span.
    #[inline]
    fn allocate_aligned(&mut self, size: u32, alignment: u32) -> Result<Block, PlaceError> {
        if size == 0 {
            return Err(PlaceError::Empty);
        }
        if !alignment.is_power_of_two() {
            return Err(PlaceError::Alignment { alignment, limit: MAX_SPAN / 2 + 1 });
        }
        let here = self.spans.get(self.current as usize).and_then(|span| span.fit(size, alignment));
        let (current, offset) = match here {
            Some(offset) => (self.current, offset),
            None => self.find_span(size, alignment)?,
        };
        self.current = current;
        let span = &mut self.spans[current as usize];
        span.top = offset + size;
        span.live += 1;
        let tag = span.tag;
        let index = match self.spare.pop() {
            Some(index) => index,
            None => {
                self.nodes.push(Node { span: NONE, offset: 0, size: 0, generation: 0 });
                (self.nodes.len() - 1) as u32
            }
        };
        let node = &mut self.nodes[index as usize];
        *node = Node { span: current, offset, size, generation: node.generation };
        Ok(Block { key: BlockKey { index, generation: node.generation }, span: tag, offset, size })
    }

    /// Constant time.
    #[inline]
    fn free(&mut self, key: BlockKey) -> bool {
        let Some(node) = self.nodes.get_mut(key.index as usize) else { return false };
        if node.generation != key.generation || node.span == NONE {
            return false;
        }
        node.generation = node.generation.wrapping_add(1);
        let span = &mut self.spans[core::mem::replace(&mut node.span, NONE) as usize];
        span.live -= 1;
        if span.live == 0 {
            span.top = 0;
        }
        self.spare.push(key.index);
        true
    }

    fn block(&self, key: BlockKey) -> Option<Block> {
        let Node { span, offset, size, generation } = *self.nodes.get(key.index as usize)?;
        let span = self.spans.get(span as usize)?;
        (generation == key.generation).then_some(Block { key, span: span.tag, offset, size })
    }

    /// Takes time with the number of spans.
    fn largest_free(&self) -> u32 {
        self.spans.iter().filter(|span| span.live != NONE).map(|span| span.size - span.top).max().unwrap_or(0)
    }
}
