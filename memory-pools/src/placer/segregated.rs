//! Segregated fit over offsets, in constant time.
//!
//! Free blocks are kept in lists by size class, sixteen classes to a power of two, with a bitmap over them. Blocks of a span are linked
//! in the order of their offsets, so that a freed block merges with its free neighbours at once. Every block, free or used, is one node
//! of a table; the node's index and a generation, which none of the 2³² blocks before had, are the allocation's key.
//!
//! Where a request goes among the blocks that hold it decides what is wasted later. Three rules, each a matter of a few comparisons,
//! leave less than an exact best fit does: of a list the head is the lowest block, as far as one comparison at each free can see to
//! that; what is small beside the largest request goes to the lowest of a few heads; and what lies behind the last block of a span
//! is used when nothing else holds the request. `pool-waste` of the benches measures it.
//!
//! A free, a small request and a large one are functions on their own, and all they do is inlined into them or, where it is rare, called
//! last: what they take doesn't hang on where the compiler sees fit to inline. What can't be foreseen, as which block lies lowest, is
//! selected without a branch, where that costs less than the mispredictions: `pool-churn` counts instructions, `pool-waste` takes time.
//!
//! Free blocks live in *lanes*, each with its own lists. Blocks of different lanes never merge. Lane 0 is memory anyone may have;
//! the pool uses the others for memory that only some may have yet.

use super::classes::{LAST, Lists, class_of};
use super::nodes::{
    EMPTY, NOBODY, Node, SPARE, USED, insert_after, link, link_unforeseen, list, list_of, occupy, to_spare, unlink,
    unlink_found,
};
use super::{Block, BlockKey, MAX_SPAN, PlaceError, Placer, SpanKey};
use alloc::vec::Vec;

/// The lane of memory that anyone may have.
pub(crate) const ANYONE: u32 = 0;
/// The lane whose blocks merge with nothing: each is kept apart for a reason of its own.
pub(crate) const APART: u32 = 1;

/// How many blocks of the request's own class are looked at before a span is used further towards its end.
const LOOKS_BEFORE_THE_END: u32 = 64;
/// How many spare nodes are made when there is none.
const SPARES_AT_ONCE: usize = 16;
/// A request is small up to this part of the largest there was.
const SMALL: u32 = 20;
/// How many larger classes a small request looks at, and how much larger than it the block may be that it is placed in, as a part of the
/// largest request there was.
const LOOKS: usize = 11;
const SLACK: u32 = 8;

/// Places blocks of any size, merged again with their free neighbours when they are freed.
///
/// ```
/// use trunnion_memory_pools::placer::{PlaceError, Placer, SegregatedFit};
/// let mut placer = SegregatedFit::new();
/// placer.add_span(7, 1000);
/// let a = placer.allocate(600)?;
/// assert!(placer.allocate(600).is_err());
/// assert!(placer.free(a.key));
/// assert_eq!(placer.largest_free(), 1000, "the halves are one again");
/// assert_eq!(placer.allocate_aligned(100, 256)?.offset % 256, 0);
/// # Ok::<(), PlaceError>(())
/// ```
pub struct SegregatedFit {
    nodes: Vec<Node>,
    spare: u32,
    /// Of the block that came into use last.
    generation: u32,
    /// No remainder smaller than this is split off.
    minimal: u32,
    /// The largest request there was, the largest one that is small beside it, and how much larger than such a request its block may be.
    largest_request: u32,
    small: u32,
    slack: u32,
    /// The lists of [`ANYONE`], apart so that a bare placer finds them without a look at a table.
    anyone: Lists,
    /// The lists of the other lanes, from [`APART`].
    others: Vec<Lists>,
}

impl core::fmt::Debug for SegregatedFit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SegregatedFit")
            .field("nodes", &self.nodes.len())
            .field("lanes", &(self.others.len() + 1))
            .finish()
    }
}

impl Default for SegregatedFit {
    fn default() -> Self {
        Self::new()
    }
}

impl SegregatedFit {
    /// A placer without spans.
    pub fn new() -> Self {
        Self::with_minimal_block(1)
    }

    /// A placer that splits no remainder of fewer than `minimal` units off a block, but gives it away with the block: for spans where
    /// such a remainder would never serve a request of its own. 0 counts as 1.
    pub fn with_minimal_block(minimal: u32) -> Self {
        Self {
            nodes: alloc::vec![EMPTY],
            spare: NOBODY,
            generation: 0,
            minimal: minimal.max(1),
            largest_request: 0,
            small: 0,
            slack: 0,
            anyone: Lists::EMPTY,
            others: alloc::vec![Lists::EMPTY],
        }
    }

    // ---- lanes, for the pool

    /// Makes sure that the lane exists.
    #[inline]
    pub(crate) fn ensure_lane(&mut self, lane: u32) {
        if self.others.len() < lane as usize {
            self.others.resize(lane as usize, Lists::EMPTY);
        }
    }

    #[inline]
    pub(crate) fn lane(&self, index: u32) -> u32 {
        self.nodes[index as usize].lane()
    }

    #[inline]
    pub(crate) fn size(&self, index: u32) -> u32 {
        self.nodes[index as usize].size
    }

    #[inline]
    pub(crate) fn offset(&self, index: u32) -> u32 {
        self.nodes[index as usize].place as u32
    }

    #[inline]
    pub(crate) fn span(&self, index: u32) -> u32 {
        (self.nodes[index as usize].place >> 32) as u32
    }

    /// Whether a block of a span is in no one's use.
    pub(crate) fn is_free(&self, index: u32) -> bool {
        self.nodes[index as usize].list != USED
    }

    /// The block that ends where this one begins.
    pub(crate) fn before(&self, index: u32) -> Option<u32> {
        Some(self.nodes[index as usize].before).filter(|before| *before != NOBODY)
    }

    /// The block that begins where this one ends.
    pub(crate) fn after(&self, index: u32) -> Option<u32> {
        Some(self.nodes[index as usize].after).filter(|after| *after != NOBODY)
    }

    #[inline(always)]
    fn listed(&self, index: u32) -> Option<&Node> {
        if index == NOBODY { None } else { self.nodes.get(index as usize) }
    }

    /// How many nodes there are, spare ones included.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The blocks of a span in the order of their offsets: index, size, and whether the block is free.
    pub(crate) fn blocks(&self, span: &SpanKey) -> impl Iterator<Item = (u32, u32, bool)> + '_ {
        let mut at = span.0;
        core::iter::from_fn(move || {
            // A key of another placer may name a node that holds no block.
            let node = self.listed(at).filter(|node| node.list != SPARE)?;
            let index = core::mem::replace(&mut at, node.after);
            Some((index, node.size, node.list != USED))
        })
    }

    /// The last block of a span. Takes time with the number of its blocks.
    pub(crate) fn last(&self, span: &SpanKey) -> Option<u32> {
        self.blocks(span).last().map(|(index, ..)| index)
    }

    /// A free block of the lane that holds `size`, in constant time: the first one of the size's class or, where that is shorter, of the
    /// next larger class. For a request that is small beside others it is the lowest of the first ones of a few classes that are not
    /// much larger. So small blocks gather in the small holes at low places, and the large holes stay whole.
    pub(crate) fn find(&self, lane: u32, size: u32) -> Option<u32> {
        let lists = self.lists(lane);
        if size <= self.small { self.find_small(lists, size) } else { self.find_large(lists, size) }
    }

    #[inline(always)]
    fn find_large(&self, lists: &Lists, size: u32) -> Option<u32> {
        let own = class_of(size);
        let first = lists.first_from(self.first_holding(lists, own, size));
        match first {
            Some(class) if lists.rank(class) != LAST => Some(lists.head(class)),
            _ => self.find_at_last(lists, own, size, first),
        }
    }

    #[inline(always)]
    fn find_small(&self, lists: &Lists, size: u32) -> Option<u32> {
        let own = class_of(size);
        let from = self.first_holding(lists, own, size);
        let lowest = lists.lowest::<LOOKS>(from, class_of(size + self.slack));
        if lists.rank(lowest) != LAST {
            return Some(lists.head(lowest));
        }
        let first = lists.first_from(from);
        match first {
            Some(class) if lists.rank(class) != LAST => Some(lists.head(class)),
            _ => self.find_at_last(lists, own, size, first),
        }
    }

    /// The first class of whose blocks, as far as a request looks at them, each holds `size`: the size's own, `own`, where the first
    /// block of that does, else the one above. Without a branch: which it is can't be foreseen.
    #[inline(always)]
    fn first_holding(&self, lists: &Lists, own: u32, size: u32) -> u32 {
        own + u32::from(self.nodes[lists.head(own) as usize].size < size)
    }

    /// Where the first class with a block has none but behind the last of a span: that is left whole while anything else holds the size.
    #[inline(always)]
    fn find_at_last(&self, lists: &Lists, own: u32, size: u32, first: Option<u32>) -> Option<u32> {
        let above = if first == Some(own) { lists.first_from(own + 1) } else { first };
        match above {
            Some(class) if lists.rank(class) != LAST => Some(lists.head(class)),
            _ => self.find_in_class(lists, size, LOOKS_BEFORE_THE_END).or(above.map(|class| lists.head(class))),
        }
    }

    /// A free block of the lane that holds `size`, if there is any. Takes time with the number of free blocks of the size's class.
    pub(crate) fn find_any(&self, lane: u32, size: u32) -> Option<u32> {
        self.find(lane, size).or_else(|| self.find_in_class(self.lists(lane), size, u32::MAX))
    }

    #[inline(always)]
    fn find_in_class(&self, lists: &Lists, size: u32, looks: u32) -> Option<u32> {
        let mut at = lists.head(class_of(size));
        for _ in 0..looks {
            let node = self.listed(at)?;
            if node.size >= size {
                return Some(at);
            }
            at = node.next;
        }
        None
    }

    /// False where no block of the lane holds `size`. Constant time; true where one of the size's class is shorter, too.
    pub(crate) fn may_hold(&self, lane: u32, size: u32) -> bool {
        self.lists(lane).last_class().is_some_and(|class| class >= class_of(size))
    }

    /// The largest free block of the lane.
    pub(crate) fn largest(&self, lane: u32) -> u32 {
        let Some(class) = self.lists(lane).last_class() else { return 0 };
        self.in_class(lane, class).map(|index| self.size(index)).max().unwrap_or(0)
    }

    /// Takes `size` units of a free block, which has as many: the block itself or its end, so that what is left is the same node, and
    /// stays where it is in its lane. Of what lies behind the last block of a span it takes the begin. The answer is the block in use.
    #[inline]
    pub(crate) fn take(&mut self, index: u32, lane: u32, size: u32) -> u32 {
        // Each with the lane known, which is what most of the work with lists turns on.
        if self.is_unprepared(size) {
            self.prepare(size);
        }
        match lane {
            ANYONE => self.take_from::<false>(index, ANYONE, size).0,
            _ => self.take_from::<false>(index, lane, size).0,
        }
    }

    /// Where sizes differ much, most requests are small, and whether what one leaves comes first in its class can't be foreseen. So what is
    /// left by one that is known to be small is listed as `UNFORESEEN`, without a branch. That takes some 20 instructions
    /// more, which others are spared.
    #[inline(always)]
    fn take_from<const UNFORESEEN: bool>(&mut self, index: u32, lane: u32, size: u32) -> (u32, &Node) {
        let minimal = self.minimal;
        let (nodes, lists, spare, generation) = self.parts(lane);
        let node = &mut nodes[index as usize];
        let (rest, after) = (node.size - size, node.after);
        if rest >= minimal && (after != NOBODY || lane != ANYONE) {
            let (place, class) = (node.place, class_of(rest));
            node.size = rest;
            // Something comes after it now.
            if node.list != list_of(lane, class) || after == NOBODY {
                unlink_found(nodes, lists, index);
                if UNFORESEEN {
                    link_unforeseen(nodes, lists, index, lane, (class, place));
                } else {
                    link(nodes, lists, index, lane, (class, place));
                }
            }
            let taken = insert_after(nodes, spare, index, after, place + u64::from(rest), size);
            return occupy(nodes, generation, taken);
        }
        unlink_found(nodes, lists, index);
        if rest >= minimal {
            let node = &mut nodes[index as usize];
            node.size = size;
            let place = node.place + u64::from(size);
            let rest = insert_after(nodes, spare, index, after, place, rest);
            list(nodes, lists, rest, lane);
        }
        occupy(nodes, generation, index)
    }

    /// The nodes, a lane's lists, the first spare node, and the generation of the block that came into use last.
    #[inline(always)]
    fn parts(&mut self, lane: u32) -> (&mut [Node], &mut Lists, &mut u32, &mut u32) {
        let lists = if lane == ANYONE { &mut self.anyone } else { &mut self.others[lane as usize - 1] };
        (&mut self.nodes, lists, &mut self.spare, &mut self.generation)
    }

    #[cold]
    fn add_spares(&mut self) {
        for _ in 0..SPARES_AT_ONCE {
            let next = core::mem::replace(&mut self.spare, self.nodes.len() as u32);
            self.nodes.push(Node { next, ..EMPTY });
        }
    }

    /// Whether a request of this size can't be met before [`prepare`](Self::prepare); so for one of 0, which is none.
    #[inline(always)]
    fn is_unprepared(&self, size: u32) -> bool {
        self.spare == NOBODY || size.wrapping_sub(1) >= self.largest_request
    }

    /// Notes how large a request is that is about to be met, and makes spare nodes.
    #[cold]
    #[inline(never)]
    fn prepare(&mut self, size: u32) {
        if size > self.largest_request {
            (self.largest_request, self.small, self.slack) = (size, size / SMALL, size / SLACK);
        }
        if self.spare == NOBODY {
            self.add_spares();
        }
    }

    /// A free block of [`ANYONE`] that holds `size` at a multiple of `alignment`, and that multiple.
    fn find_aligned(&self, size: u32, alignment: u32) -> Option<(u32, u32)> {
        let fits = |index: u32| {
            let node = &self.nodes[index as usize];
            let begin = node.place as u32;
            let offset = begin.checked_next_multiple_of(alignment)?;
            (node.size.checked_sub(offset - begin)? >= size).then_some((index, offset))
        };
        // A block of this many units has an aligned piece wherever it begins.
        let ample = size.checked_add(alignment - 1);
        if let Some(fit) = ample.and_then(|ample| self.find(ANYONE, ample)).and_then(fits) {
            return Some(fit);
        }
        let last = class_of(ample.unwrap_or(MAX_SPAN));
        (class_of(size)..=last).find_map(|class| self.in_class(ANYONE, class).find_map(fits))
    }

    /// The free blocks of a class.
    fn in_class(&self, lane: u32, class: u32) -> impl Iterator<Item = u32> + '_ {
        let mut at = self.lists(lane).head(class);
        core::iter::from_fn(move || {
            let node = self.listed(at)?;
            Some(core::mem::replace(&mut at, node.next))
        })
    }

    /// A prepared request that is small beside the largest one.
    #[inline(never)]
    fn allocate_small(&mut self, size: u32) -> Result<Block, PlaceError> {
        match self.find_small(&self.anyone, size) {
            Some(free) => Ok(placed(self.take_from::<true>(free, ANYONE, size))),
            None => self.allocate_after_all(size),
        }
    }

    /// Any other prepared request.
    #[inline(never)]
    fn allocate_large(&mut self, size: u32) -> Result<Block, PlaceError> {
        match self.find_large(&self.anyone, size) {
            Some(free) => Ok(placed(self.take_from::<false>(free, ANYONE, size))),
            None => self.allocate_after_all(size),
        }
    }

    /// What [`allocate`](Placer::allocate) seldom comes to: it refuses only after a look at each free block of the size's class. On
    /// its own and last there, so that what it calls costs the rest no registers.
    #[cold]
    #[inline(never)]
    fn allocate_after_all(&mut self, size: u32) -> Result<Block, PlaceError> {
        if size == 0 {
            return Err(PlaceError::Empty);
        }
        let free = self.find_any(ANYONE, size).ok_or(PlaceError::Full { size, alignment: 1 })?;
        self.prepare(size);
        Ok(placed(self.take_from::<false>(free, ANYONE, size)))
    }

    /// Takes `size` units at `offset` of a free block of [`ANYONE`] that has them there. The answer is the block in use.
    fn take_at(&mut self, index: u32, offset: u32, size: u32) -> Block {
        self.prepare(size);
        // Two spare nodes, for what comes before it and for what comes after.
        while self.listed(self.spare).is_none_or(|first| first.next == NOBODY) {
            self.add_spares();
        }
        let minimal = self.minimal;
        let (nodes, lists, spare, generation) = self.parts(ANYONE);
        unlink(nodes, lists, index);
        let Node { place, size: whole, after, .. } = nodes[index as usize];
        let gap = offset - place as u32;
        let (mut taken, have) = (index, whole - gap);
        let place = place + u64::from(gap);
        if gap > 0 {
            nodes[index as usize].size = gap;
            taken = insert_after(nodes, spare, index, after, place, have);
            list(nodes, lists, index, ANYONE);
        }
        if have - size >= minimal {
            nodes[taken as usize].size = size;
            let rest = insert_after(nodes, spare, taken, after, place + u64::from(size), have - size);
            list(nodes, lists, rest, ANYONE);
        }
        placed(occupy(nodes, generation, taken))
    }

    /// Frees a used block into a lane and merges it with neighbours there. The answer is the block it became part of, which is the
    /// neighbour before it where that merged, and the neighbour after it where that was absorbed.
    #[inline]
    pub(crate) fn put(&mut self, index: u32, lane: u32) -> (u32, u32) {
        if lane == ANYONE { self.put_into(index, ANYONE) } else { self.put_into(index, lane) }
    }

    #[inline(always)]
    fn put_into(&mut self, index: u32, lane: u32) -> (u32, u32) {
        let lists = if lane == ANYONE { &mut self.anyone } else { &mut self.others[lane as usize - 1] };
        let (nodes, spare) = (self.nodes.as_mut_slice(), &mut self.spare);
        let Node { before, after, mut size, .. } = nodes[index as usize];
        let (mut end, mut absorbed) = (after, NOBODY);
        if lane != APART {
            let node = &nodes[after as usize];
            if node.lane() == lane {
                (size, end, absorbed) = (size + node.size, node.after, after);
                unlink(nodes, lists, after);
                to_spare(nodes, spare, after);
                nodes[index as usize].after = end;
                nodes[end as usize].before = index;
            }
            let node = &mut nodes[before as usize];
            if node.lane() == lane {
                size += node.size;
                (node.size, node.after) = (size, end);
                let (class, place) = (class_of(size), node.place);
                // Where it stays in its class, it stays in its place there too, unless it became what lies behind the last block.
                let stays = class == node.class() && end != NOBODY;
                to_spare(nodes, spare, index);
                nodes[end as usize].before = before;
                if !stays {
                    unlink(nodes, lists, before);
                    link(nodes, lists, before, lane, (class, if end == NOBODY { LAST } else { place }));
                }
                return (before, absorbed);
            }
        }
        let node = &mut nodes[index as usize];
        node.size = size;
        let listed = (class_of(size), if end == NOBODY { LAST } else { node.place });
        link(nodes, lists, index, lane, listed);
        (index, absorbed)
    }

    /// Moves a free block to another lane. The answer is as of [`put`](Self::put).
    pub(crate) fn move_to(&mut self, index: u32, lane: u32) -> (u32, u32) {
        let (nodes, lists, ..) = self.parts(self.lane(index));
        unlink(nodes, lists, index);
        self.put(index, lane)
    }

    #[inline(always)]
    fn lists(&self, lane: u32) -> &Lists {
        if lane == ANYONE { &self.anyone } else { &self.others[lane as usize - 1] }
    }
}

#[inline(always)]
fn placed((index, node): (u32, &Node)) -> Block {
    Block {
        key: BlockKey { index, generation: node.previous },
        span: (node.place >> 32) as u32,
        offset: node.place as u32,
        size: node.size,
    }
}

impl Placer for SegregatedFit {
    fn add_span(&mut self, tag: u32, size: u32) -> SpanKey {
        self.prepare(0);
        let (nodes, lists, spare, _) = self.parts(ANYONE);
        let root = insert_after(nodes, spare, NOBODY, NOBODY, u64::from(tag) << 32, size);
        list(nodes, lists, root, ANYONE);
        SpanKey(root)
    }

    /// Takes time with the number of blocks in the span.
    fn grow_span(&mut self, span: &SpanKey, size: u32) {
        let Some(last) = self.last(span) else { return };
        let Node { place, size: length, list: listed, .. } = self.nodes[last as usize];
        let Some(more) = size.checked_sub(place as u32 + length).filter(|more| *more > 0) else { return };
        self.prepare(0);
        // Something comes after it now: so a free one is listed anew, in any lane.
        let lane = self.lane(last);
        if listed != USED {
            let (nodes, lists, ..) = self.parts(lane);
            unlink(nodes, lists, last);
        }
        if lane == ANYONE {
            self.nodes[last as usize].size += more;
        } else {
            let place = place + u64::from(length);
            let added = insert_after(&mut self.nodes, &mut self.spare, last, NOBODY, place, more);
            list(&mut self.nodes, &mut self.anyone, added, ANYONE);
        }
        if listed != USED {
            let (nodes, lists, ..) = self.parts(lane);
            list(nodes, lists, last, lane);
        }
    }

    fn remove_span(&mut self, span: SpanKey) -> Result<(), SpanKey> {
        if !self.is_span_free(&span) {
            return Err(span);
        }
        let (nodes, lists, spare, _) = self.parts(ANYONE);
        unlink(nodes, lists, span.0);
        to_spare(nodes, spare, span.0);
        Ok(())
    }

    /// Constant time.
    fn is_span_free(&self, span: &SpanKey) -> bool {
        self.nodes
            .get(span.0 as usize)
            .is_some_and(|root| root.lane() == ANYONE && (root.before, root.after) == (NOBODY, NOBODY))
    }

    /// Constant time where a piece of the size and alignment together is free; else a look at each free block of the classes between
    /// them and the size alone.
    fn allocate_aligned(&mut self, size: u32, alignment: u32) -> Result<Block, PlaceError> {
        if !alignment.is_power_of_two() {
            return Err(PlaceError::Alignment { alignment, limit: 1 << 31 });
        }
        if alignment == 1 || size == 0 {
            return self.allocate(size);
        }
        let (index, offset) = self.find_aligned(size, alignment).ok_or(PlaceError::Full { size, alignment })?;
        Ok(self.take_at(index, offset, size))
    }

    /// Constant time on a hit. Before it refuses a request it looks at each free block of the size's class.
    #[inline]
    fn allocate(&mut self, size: u32) -> Result<Block, PlaceError> {
        // Only the choice is the caller's: each of the three is a function on its own, and called once.
        if self.is_unprepared(size) {
            return self.allocate_after_all(size);
        }
        if size <= self.small { self.allocate_small(size) } else { self.allocate_large(size) }
    }

    /// Constant time.
    fn free(&mut self, key: BlockKey) -> bool {
        match self.nodes.get(key.index as usize) {
            Some(node) if node.previous == key.generation && node.list == USED => {
                self.put_into(key.index, ANYONE);
                true
            }
            _ => false,
        }
    }

    fn block(&self, key: BlockKey) -> Option<Block> {
        let node = self.nodes.get(key.index as usize)?;
        (node.previous == key.generation && node.list == USED).then(|| placed((key.index, node)))
    }

    /// Takes time with the number of free blocks of the largest class.
    fn largest_free(&self) -> u32 {
        self.largest(ANYONE)
    }
}

#[cfg(test)]
#[path = "segregated_tests.rs"]
mod tests;
