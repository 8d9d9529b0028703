//! What a recording says of the device's progress: of all that is done, what the next user of freed memory depends on.

use super::writer::Writer;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;
use hashbrown::HashMap;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::sink::Sink;
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

/// The moments that frees were written with and that were unfinished when the device was last looked at.
#[derive(Debug, Default)]
pub(super) struct Watch {
    moments: BTreeMap<StreamId, Unfinished>,
    /// What a frontier may be rounded up to where the pools join several: the number of any moment.
    epochs: BTreeSet<u64>,
    /// The first streams that were named, at most one more than a frontier keeps apart.
    streams: Vec<StreamId>,
    /// Whether a frontier may be rounded up.
    rounded: bool,
}

/// Those of one stream.
#[derive(Debug, Default)]
struct Unfinished {
    numbers: BTreeSet<u64>,
    /// Up to where another stream is known to come after them.
    ordered: HashMap<StreamId, u64>,
}

impl Watch {
    /// A free was written with these.
    pub(super) fn add(&mut self, frontier: &Frontier) {
        for at in frontier.moments() {
            self.moments.entry(at.stream).or_default().numbers.insert(at.seq);
            self.epochs.insert(at.seq);
            if self.streams.len() <= Frontier::INLINE && !self.streams.contains(&at.stream) {
                self.streams.push(at.stream);
            }
        }
        if frontier.epoch() > 0 {
            self.epochs.insert(frontier.epoch());
        }
        self.rounded |= frontier.epoch() > 0 || self.streams.len() > Frontier::INLINE;
    }

    /// Writes what was done since the last look. Takes time with the number of streams that something waits for.
    pub(super) fn look_done<K: Sink>(&mut self, writer: &mut Writer<K>, timeline: &(impl Timeline + ?Sized)) {
        self.moments.retain(|stream, unfinished| {
            let at = |seq| Moment { stream: *stream, seq };
            let done = take_while(&mut unfinished.numbers, |seq| timeline.is_done(at(seq)));
            if let Some(seq) = done {
                writer.done(at(seq));
            }
            !unfinished.numbers.is_empty()
        });
        let done = take_while(&mut self.epochs, |epoch| timeline.is_epoch_done(epoch));
        if let Some(epoch) = done.filter(|_| self.rounded) {
            writer.all_done(epoch);
        }
    }

    /// Writes what a stream newly comes after.
    pub(super) fn look_ordered<K: Sink>(
        &mut self,
        writer: &mut Writer<K>,
        stream: StreamId,
        timeline: &(impl Timeline + ?Sized),
    ) {
        for (on, unfinished) in self.moments.iter_mut().filter(|(on, _)| **on != stream) {
            let at = |seq| Moment { stream: *on, seq };
            let known = unfinished.ordered.get(&stream).copied().unwrap_or(0);
            let new = unfinished.numbers.range((Bound::Excluded(known), Bound::Unbounded)).copied();
            if let Some(seq) = new.take_while(|seq| timeline.is_ordered_after(stream, at(*seq))).last() {
                writer.ordered(stream, at(seq));
                unfinished.ordered.insert(stream, seq);
            }
        }
    }
}

/// Takes out the first ones for which this is so; the last of them.
fn take_while(numbers: &mut BTreeSet<u64>, is_so: impl Fn(u64) -> bool) -> Option<u64> {
    let mut last = None;
    while let Some(first) = numbers.first().copied()
        && is_so(first)
    {
        last = numbers.pop_first();
    }
    last
}
