//! A component as the search sees it: buffers over sections, the times between which nothing changes.
//!
//! Only sections whose set of buffers is no part of a neighbour's are kept: whatever holds there holds in the others. Two buffers overlap in
//! time exactly where they share a section.

use super::lifetime::Lifetime;
use alloc::vec;
use alloc::vec::Vec;

/// A buffer of a component: the sections from `first` until before `end`, and its size rounded up to the alignment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    pub(crate) first: u32,
    pub(crate) end: u32,
    pub(crate) size: u64,
}

impl Buffer {
    /// The sections it lives in.
    #[inline]
    pub(crate) fn sections(&self) -> core::ops::Range<usize> {
        self.first as usize..self.end as usize
    }
}

/// Lists of numbers, one after another.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    #[inline]
    pub(crate) fn of(&self, index: usize) -> &[u32] {
        &self.items[self.starts[index] as usize..self.starts[index + 1] as usize]
    }
}

/// Buffers that hang together in time, and who meets whom.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) buffers: Vec<Buffer>,
    /// The bytes that live in each section.
    pub(crate) load: Vec<u64>,
    /// The buffers of each section.
    pub(crate) members: Lists,
    /// The buffers that share a section with each.
    pub(crate) neighbours: Lists,
}

/// How many pairs of a buffer and a section, or of two buffers, a shape may have: 64 MiB of tables.
const MAX_PAIRS: usize = 8 << 20;

impl Shape {
    /// The shape of these lifetimes, none of them empty, in their order; `None` where its tables would be too large to be of use.
    pub(crate) fn new(lifetimes: &[Lifetime]) -> Option<Self> {
        let buffers = place_in_sections(lifetimes);
        let sections = buffers.iter().map(|buffer| buffer.end as usize).max().unwrap_or(0);
        let mut load = vec![0; sections];
        let mut pairs = 0usize;
        for buffer in &buffers {
            pairs += buffer.sections().len();
            if pairs > MAX_PAIRS {
                return None;
            }
            buffer.sections().for_each(|section| load[section] += buffer.size);
        }
        let mut members = Lists { starts: vec![0; sections + 1], items: vec![0; pairs] };
        fill(
            &mut members,
            buffers.iter().enumerate().flat_map(|(index, b)| b.sections().map(move |s| (s, index as u32))),
        );
        let neighbours = neighbours(&buffers, &members)?;
        Some(Self { buffers, load, members, neighbours })
    }
}

/// Sorts `(list, item)` pairs into lists whose number is known; the items of a list keep their order.
fn fill(lists: &mut Lists, pairs: impl Iterator<Item = (usize, u32)> + Clone) {
    for (list, _) in pairs.clone() {
        lists.starts[list + 1] += 1;
    }
    for list in 1..lists.starts.len() {
        lists.starts[list] += lists.starts[list - 1];
    }
    let mut next = lists.starts.clone();
    for (list, item) in pairs {
        lists.items[next[list] as usize] = item;
        next[list] += 1;
    }
}

/// Whom each buffer meets: who is there when it begins, and who begins while it is there.
fn neighbours(buffers: &[Buffer], members: &Lists) -> Option<Lists> {
    let mut begins = Lists { starts: vec![0; members.starts.len()], items: vec![0; buffers.len()] };
    fill(&mut begins, buffers.iter().enumerate().map(|(index, buffer)| (buffer.first as usize, index as u32)));
    let mut lists = Lists { starts: Vec::with_capacity(buffers.len() + 1), items: Vec::new() };
    lists.starts.push(0);
    for (index, buffer) in buffers.iter().enumerate() {
        let others = buffer.sections().skip(1).flat_map(|section| begins.of(section));
        let met = members.of(buffer.first as usize).iter().chain(others).copied();
        lists.items.extend(met.filter(|other| *other as usize != index));
        if lists.items.len() > MAX_PAIRS {
            return None;
        }
        lists.starts.push(lists.items.len() as u32);
    }
    Some(lists)
}

/// Numbers the sections. A new one opens where a buffer begins after another has ended.
fn place_in_sections(lifetimes: &[Lifetime]) -> Vec<Buffer> {
    let mut buffers: Vec<_> = lifetimes.iter().map(|l| Buffer { first: 0, end: 0, size: l.size }).collect();
    // At one time what ends comes before what begins.
    let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * lifetimes.len());
    for (index, lifetime) in lifetimes.iter().enumerate() {
        events.push((lifetime.lower, true, index as u32));
        events.push((lifetime.upper, false, index as u32));
    }
    events.sort_unstable();
    let (mut section, mut ended) = (0, false);
    for (_, begins, index) in events {
        if begins {
            section += u32::from(ended);
            ended = false;
            buffers[index as usize].first = section;
        } else {
            ended = true;
            buffers[index as usize].end = section + 1;
        }
    }
    buffers
}
