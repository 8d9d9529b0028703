//! The search: a depth-first walk that places buffers in the order of their offsets.
//!
//! Every plan can be pushed down until each buffer lies at 0 or on another, and then be built from below: buffer by buffer in the order of
//! offset and, of equals, of rank, each on the highest of those it overlaps that are placed already, which is its *floor*. A step of the walk
//! takes the lowest floor; where that comes to nothing the buffer is *passed over*: it will lie on something that is not placed yet, hence
//! no lower than the lowest top one of its neighbours can have. That is its *bound* from there on.
//!
//! Three things keep the walk short. In any section the bytes not placed yet lie above the lowest bound of them; where that exceeds the
//! cap the step is taken back. A buffer whose floor is no lower than the lowest top anyone could have is not tried yet, since that one
//! could lie below it. And where nothing that is left reaches across a point in time, the two sides are walked one after the other, and what
//! fails on one does not vary the other.
//!
//! Floors, bounds, what is left of a section and its lowest bound are kept as the walk goes and taken back from a trail. The stack is a
//! vector, so that depth is no danger.

use super::shape::Shape;
use alloc::vec;
use alloc::vec::Vec;

const NONE: u32 = u32::MAX;
/// How many buffers a step looks at before it counts as two: some twenty microseconds.
const LOOKS_A_NODE: u64 = 32_768;
/// In place of a bound: the buffer is placed.
const PLACED: u64 = u64::MAX;

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every buffer is placed below the cap.
    Solved,
    /// No plan is below the cap.
    Exhausted,
    /// The nodes are used up.
    OutOfNodes,
}

/// A step: one of the buffers `order[start..end]`, which hang together, is placed.
#[derive(Clone, Copy, Debug)]
struct Frame {
    start: u32,
    end: u32,
    /// The frame whose step left these buffers on their own.
    parent: u32,
    /// What to do when these are placed: an entry of the agenda.
    after: u32,
    chosen: u32,
    /// How long trail and agenda were before the step.
    trail: u32,
    agenda: u32,
}

/// Buffers to be walked later.
#[derive(Clone, Copy, Debug)]
struct Later {
    start: u32,
    end: u32,
    parent: u32,
    after: u32,
}

/// What a change took away.
#[derive(Clone, Copy, Debug)]
enum Undo {
    /// A buffer was placed; its bound was this.
    Place(u32, u64),
    Floor(u32, u64),
    Bound(u32, u64),
    Low(u32, u64),
}

/// The walk over one shape, used again for every cap and ranking.
#[derive(Debug)]
pub(crate) struct Search {
    cap: u64,
    /// The highest top of the placed buffers a buffer overlaps.
    floor: Vec<u64>,
    /// The lowest offset a buffer can still have; the floor, unless it was passed over.
    bound: Vec<u64>,
    /// Of a section: the bytes not placed yet, and the lowest bound of them.
    left: Vec<u64>,
    low: Vec<u64>,
    /// A buffer of the section that had the lowest bound when that was looked for the last time.
    lowest: Vec<u32>,
    /// Of the border before each section: how many buffers not placed yet reach across.
    across: Vec<u32>,
    order: Vec<u32>,
    frames: Vec<Frame>,
    agenda: Vec<Later>,
    trail: Vec<Undo>,
    /// How often each section was too full: what the next ranking learns from.
    pub(crate) heat: Vec<u32>,
    /// Steps tried since the search was made; one that looked at very many buffers counts as several.
    pub(crate) nodes: u64,
    /// Buffers looked at since the last step.
    looks: u64,
}

impl Search {
    pub(crate) fn new(shape: &Shape) -> Self {
        let (n, sections) = (shape.buffers.len(), shape.load.len());
        Self {
            cap: 0,
            floor: vec![0; n],
            bound: vec![0; n],
            left: vec![0; sections],
            low: vec![0; sections],
            lowest: (0..sections).map(|section| shape.members.of(section).first().copied().unwrap_or(0)).collect(),
            across: vec![0; sections + 1],
            order: Vec::with_capacity(n),
            frames: Vec::with_capacity(n),
            agenda: Vec::new(),
            trail: Vec::new(),
            heat: vec![0; sections],
            nodes: 0,
            looks: 0,
        }
    }

    /// The offsets of a walk that ended `Solved`.
    pub(crate) fn offsets(&self) -> &[u64] {
        &self.floor
    }

    /// Walks from the beginning, with `ranks` to choose among equals, for at most so many steps, and for about so many nodes.
    pub(crate) fn run(&mut self, shape: &Shape, ranks: &[u32], cap: u64, steps: u64, nodes: u64) -> Outcome {
        self.restart(shape, cap);
        let limit = self.nodes.saturating_add(nodes);
        let mut left = steps;
        let n = shape.buffers.len() as u32;
        if n == 0 {
            return Outcome::Solved;
        }
        if shape.load.iter().any(|load| *load > cap) {
            return Outcome::Exhausted;
        }
        self.enter(Later { start: 0, end: n, parent: NONE, after: NONE });
        loop {
            let Some(frame) = self.frames.last().copied() else { return Outcome::Exhausted };
            let at = self.frames.len() - 1;
            if frame.chosen != NONE && !self.pass_over(shape, frame.chosen) {
                self.give_up(shape, frame.parent);
                continue;
            }
            let Some(chosen) = self.choose(shape, ranks, &frame) else {
                self.give_up(shape, frame.parent);
                continue;
            };
            // Where a step looks at very many buffers it counts as several, so that nodes bound the time in every shape.
            let more = core::mem::take(&mut self.looks) / LOOKS_A_NODE;
            self.nodes = self.nodes.saturating_add(more).min(limit);
            if left == 0 || self.nodes == limit {
                return Outcome::OutOfNodes;
            }
            left -= 1;
            self.nodes += 1;
            self.frames[at].chosen = chosen;
            self.frames[at].trail = self.trail.len() as u32;
            if !self.place(shape, chosen) {
                self.take_back(shape, at);
                continue;
            }
            let next = self.split(shape, &frame, chosen, at as u32);
            match self.agenda.get(next as usize).copied() {
                None => return Outcome::Solved,
                Some(next) => self.enter(next),
            }
        }
    }

    fn restart(&mut self, shape: &Shape, cap: u64) {
        self.cap = cap;
        self.floor.fill(0);
        self.bound.fill(0);
        self.left.copy_from_slice(&shape.load);
        self.low.fill(0);
        self.across.fill(0);
        for buffer in &shape.buffers {
            self.across[buffer.first as usize + 1..buffer.end as usize].iter_mut().for_each(|across| *across += 1);
        }
        self.order.clear();
        self.order.extend(0..shape.buffers.len() as u32);
        self.frames.clear();
        self.agenda.clear();
        self.trail.clear();
    }

    fn enter(&mut self, Later { start, end, parent, after }: Later) {
        let (trail, agenda) = (self.trail.len() as u32, self.agenda.len() as u32);
        self.frames.push(Frame { start, end, parent, after, chosen: NONE, trail, agenda });
    }

    /// What a frame's buffers need is not to be had: back to the step that left them so.
    fn give_up(&mut self, shape: &Shape, parent: u32) {
        if parent == NONE {
            self.frames.clear();
            return;
        }
        self.frames.truncate(parent as usize + 1);
        self.take_back(shape, parent as usize);
    }

    fn take_back(&mut self, shape: &Shape, frame: usize) {
        let Frame { trail, agenda, .. } = self.frames[frame];
        self.agenda.truncate(agenda as usize);
        while self.trail.len() > trail as usize {
            match self.trail.pop() {
                Some(Undo::Floor(buffer, was)) => self.floor[buffer as usize] = was,
                Some(Undo::Bound(buffer, was)) => self.bound[buffer as usize] = was,
                Some(Undo::Low(section, was)) => self.low[section as usize] = was,
                Some(Undo::Place(index, was)) => {
                    self.bound[index as usize] = was;
                    let buffer = &shape.buffers[index as usize];
                    self.left[buffer.sections()].iter_mut().for_each(|left| *left += buffer.size);
                    let inner = buffer.first as usize + 1..buffer.end as usize;
                    self.across[inner].iter_mut().for_each(|across| *across += 1);
                }
                None => break,
            }
        }
    }

    /// The buffer to try next: the lowest floor, and of those the first rank, if anyone should be tried at all.
    #[inline]
    fn choose(&mut self, shape: &Shape, ranks: &[u32], frame: &Frame) -> Option<u32> {
        let mut lowest_top = u64::MAX;
        let mut best = (u64::MAX, u32::MAX, NONE);
        self.looks += u64::from(frame.end - frame.start);
        for &index in &self.order[frame.start as usize..frame.end as usize] {
            let i = index as usize;
            let floor = self.floor[i];
            lowest_top = lowest_top.min(floor + shape.buffers[i].size);
            if floor <= best.0 && self.bound[i] == floor && (floor, ranks[i]) < (best.0, best.1) {
                best = (floor, ranks[i], index);
            }
        }
        (best.2 != NONE && best.0 < lowest_top).then_some(best.2)
    }

    /// Places a buffer on its floor; false where something then exceeds the cap.
    #[inline]
    fn place(&mut self, shape: &Shape, index: u32) -> bool {
        let buffer = shape.buffers[index as usize];
        let top = self.floor[index as usize] + buffer.size;
        self.trail.push(Undo::Place(index, self.bound[index as usize]));
        self.bound[index as usize] = PLACED;
        self.left[buffer.sections()].iter_mut().for_each(|left| *left -= buffer.size);
        self.across[buffer.first as usize + 1..buffer.end as usize].iter_mut().for_each(|across| *across -= 1);
        self.looks += shape.neighbours.of(index as usize).len() as u64;
        let mut fits = true;
        let (mut first, mut end) = (buffer.first, buffer.end);
        for &other in shape.neighbours.of(index as usize) {
            let j = other as usize;
            let bound = self.bound[j];
            if bound == PLACED || self.floor[j] >= top {
                continue;
            }
            self.trail.push(Undo::Floor(other, self.floor[j]));
            self.floor[j] = top;
            if bound < top {
                self.trail.push(Undo::Bound(other, bound));
                self.bound[j] = top;
                first = first.min(shape.buffers[j].first);
                end = end.max(shape.buffers[j].end);
                if top + shape.buffers[j].size > self.cap {
                    fits = false;
                    break;
                }
            }
        }
        fits && self.raise(shape, first as usize..end as usize)
    }

    /// Finds the lowest bounds of sections again; false where what is left of one exceeds the cap.
    #[inline]
    fn raise(&mut self, shape: &Shape, sections: core::ops::Range<usize>) -> bool {
        self.looks += sections.len() as u64;
        for section in sections {
            let left = self.left[section];
            // Bounds only rise on the way: as long as one is the lowest there was, none is lower.
            if left == 0 || self.bound[self.lowest[section] as usize] == self.low[section] {
                continue;
            }
            let members = shape.members.of(section);
            self.looks += members.len() as u64;
            let mut low = u64::MAX;
            for &j in members {
                let bound = self.bound[j as usize];
                if bound < low {
                    (low, self.lowest[section]) = (bound, j);
                }
            }
            if low != self.low[section] {
                self.trail.push(Undo::Low(section as u32, self.low[section]));
                self.low[section] = low;
                if low + left > self.cap {
                    self.heat[section] = self.heat[section].saturating_add(1);
                    return false;
                }
            }
        }
        true
    }

    /// The buffer is not to lie on its present floor; false where it then can lie nowhere, or need not.
    #[inline]
    fn pass_over(&mut self, shape: &Shape, index: u32) -> bool {
        let i = index as usize;
        let mut bound = u64::MAX;
        self.looks += shape.neighbours.of(i).len() as u64;
        for &other in shape.neighbours.of(i) {
            let j = other as usize;
            if self.bound[j] != PLACED {
                bound = bound.min(self.bound[j] + shape.buffers[j].size);
            }
        }
        // With nobody left to lie on, or to lie on it, it was in nobody's way.
        if bound == u64::MAX || bound + shape.buffers[i].size > self.cap {
            return false;
        }
        self.trail.push(Undo::Bound(index, self.bound[i]));
        self.bound[i] = bound;
        self.raise(shape, shape.buffers[i].sections())
    }

    /// What is to be walked after a step, as an entry of the agenda: the rest of the frame's buffers, in as many parts as do not reach
    /// across to each other, and then what came after the frame.
    #[inline]
    fn split(&mut self, shape: &Shape, frame: &Frame, chosen: u32, at: u32) -> u32 {
        let (start, end) = (frame.start as usize, frame.end as usize);
        let mut after = frame.after;
        if let Some(position) = self.order[start..end].iter().position(|index| *index == chosen) {
            self.order.swap(start, start + position);
        }
        let rest = start + 1..end;
        if rest.is_empty() {
            return after;
        }
        let buffer = &shape.buffers[chosen as usize];
        let mut add = |search: &mut Self, start: usize, end: usize| {
            search.agenda.push(Later { start: start as u32, end: end as u32, parent: at, after });
            after = search.agenda.len() as u32 - 1;
        };
        let inner = buffer.first as usize + 1..buffer.end as usize;
        if self.across[inner.clone()].iter().all(|across| *across > 0) {
            add(self, rest.start, rest.end);
            return after;
        }
        let mut from = rest.start;
        for border in inner {
            if self.across[border] > 0 {
                continue;
            }
            // Whoever is left lies on one side of the border.
            let mut middle = from;
            for k in from..rest.end {
                if shape.buffers[self.order[k] as usize].end as usize <= border {
                    self.order.swap(middle, k);
                    middle += 1;
                }
            }
            if middle > from && middle < rest.end {
                add(self, from, middle);
                from = middle;
            } else if middle == rest.end {
                break;
            }
        }
        add(self, from, rest.end);
        after
    }
}
