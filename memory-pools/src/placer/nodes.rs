//! The nodes of a segregated fit: each a block, linked to those beside it in its span and, while free, to those in its list.

use super::classes::{CLASSES, LAST, Lists, class_of};
use core::hint::select_unpredictable;

/// In place of a node: there is none. It is a node nevertheless, which belongs to no lane and is in no list, so that whoever links others
/// may write into it instead of asking whether there is a neighbour, which can't be foreseen.
pub(crate) const NOBODY: u32 = 0;
/// In place of a list: the block is in use.
pub(super) const USED: u32 = u32::MAX;
/// In place of a list: the node holds no block.
pub(super) const SPARE: u32 = u32::MAX - 1;

#[derive(Clone, Copy)]
pub(super) struct Node {
    /// The span's tag and the offset in it, so that one comparison orders blocks.
    pub(super) place: u64,
    pub(super) size: u32,
    /// Neighbours by offset.
    pub(super) before: u32,
    pub(super) after: u32,
    /// Neighbours in its list, while free. `next` also links spare nodes; in `previous` is the generation, while in use.
    pub(super) previous: u32,
    pub(super) next: u32,
    /// The lane and the class it is listed in, while free: the class in the low bits, so that in lane 0 it is the class.
    pub(super) list: u32,
}

/// A node that holds no block, and what [`NOBODY`] names: its place ranks last.
pub(super) const EMPTY: Node =
    Node { place: LAST, size: 0, before: NOBODY, after: NOBODY, previous: NOBODY, next: NOBODY, list: SPARE };

impl Node {
    #[inline(always)]
    pub(super) fn lane(&self) -> u32 {
        self.list / CLASSES as u32
    }

    #[inline(always)]
    pub(super) fn class(&self) -> u32 {
        self.list % CLASSES as u32
    }

    /// Whose turn comes first in its list: by place, and what lies behind the last block of a span comes last.
    #[inline(always)]
    pub(super) fn rank(&self) -> u64 {
        if self.after == NOBODY { LAST } else { self.place }
    }
}

// These have nodes and lists apart, lest a change of one make the other be looked up again.

/// Puts a block between one and what comes after it: the first spare node, of which there is one.
#[inline(always)]
pub(super) fn insert_after(nodes: &mut [Node], spare: &mut u32, index: u32, after: u32, place: u64, size: u32) -> u32 {
    let inserted = *spare;
    let node = &mut nodes[inserted as usize];
    *spare = node.next;
    (node.place, node.size) = (place, size);
    (node.before, node.after) = (index, after);
    nodes[index as usize].after = inserted;
    nodes[after as usize].before = inserted;
    inserted
}

#[inline(always)]
pub(super) fn to_spare(nodes: &mut [Node], spare: &mut u32, index: u32) {
    let node = &mut nodes[index as usize];
    node.list = SPARE;
    node.next = core::mem::replace(spare, index);
}

/// A block is in use from here on. Its generation is none of the 2³² before it, so that keys of former blocks stay stale.
#[inline(always)]
pub(super) fn occupy<'a>(nodes: &'a mut [Node], generation: &mut u32, index: u32) -> (u32, &'a Node) {
    *generation = generation.wrapping_add(1);
    let node = &mut nodes[index as usize];
    (node.list, node.previous) = (USED, *generation);
    (index, node)
}

#[inline(always)]
pub(super) fn list_of(lane: u32, class: u32) -> u32 {
    lane * CLASSES as u32 + class
}

/// Lists a block, as one of a lane.
#[inline(always)]
pub(super) fn list(nodes: &mut [Node], lists: &mut Lists, index: u32, lane: u32) {
    let node = &nodes[index as usize];
    let listed = (class_of(node.size), node.rank());
    link(nodes, lists, index, lane, listed);
}

/// Lists a block whose class and rank are known.
#[inline(always)]
pub(super) fn link(nodes: &mut [Node], lists: &mut Lists, index: u32, lane: u32, (class, rank): (u32, u64)) {
    let node = &mut nodes[index as usize];
    node.list = list_of(lane, class);
    let head = lists.head(class);
    // One comparison keeps a low place at the head, which is what a request looks at; the others needn't be in order.
    if rank <= lists.rank(class) {
        (node.previous, node.next) = (NOBODY, head);
        nodes[head as usize].previous = index;
        lists.set_head(class, index, rank);
        return;
    }
    let next = core::mem::replace(&mut nodes[head as usize].next, index);
    let node = &mut nodes[index as usize];
    (node.previous, node.next) = (head, next);
    nodes[next as usize].previous = index;
}

/// As [`link`], without a branch: for where it can't be foreseen whether the block comes first, which costs less than it takes more.
#[inline(always)]
pub(super) fn link_unforeseen(nodes: &mut [Node], lists: &mut Lists, index: u32, lane: u32, (class, rank): (u32, u64)) {
    let (head, lowest) = (lists.head(class), lists.rank(class));
    let first = rank <= lowest;
    let node = &mut nodes[head as usize];
    let second = node.next;
    node.next = select_unpredictable(first, second, index);
    let next = select_unpredictable(first, head, second);
    nodes[next as usize].previous = index;
    let node = &mut nodes[index as usize];
    node.list = list_of(lane, class);
    (node.previous, node.next) = (select_unpredictable(first, NOBODY, head), next);
    lists.set_head(class, select_unpredictable(first, index, head), select_unpredictable(first, rank, lowest));
}

/// Takes a block out of its list, wherever it is in that: without a branch, as that can't be foreseen.
#[inline(always)]
pub(super) fn unlink(nodes: &mut [Node], lists: &mut Lists, index: u32) {
    let node = &nodes[index as usize];
    let (class, previous, next) = (node.class(), node.previous, node.next);
    nodes[previous as usize].next = next;
    let second = &mut nodes[next as usize];
    second.previous = previous;
    lists.replace_head(class, previous == NOBODY, next, second.rank());
}

/// Takes a block out of its list that was found there, and so is the first one nearly always.
#[inline(always)]
pub(super) fn unlink_found(nodes: &mut [Node], lists: &mut Lists, index: u32) {
    let node = &nodes[index as usize];
    let (class, previous, next) = (node.class(), node.previous, node.next);
    let second = &mut nodes[next as usize];
    second.previous = previous;
    if previous == NOBODY {
        lists.replace_head(class, true, next, second.rank());
    } else {
        nodes[previous as usize].next = next;
    }
}
