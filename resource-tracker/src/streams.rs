//! The progress of a device's streams: what each was handed, what is done, and what each waited for.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use hashbrown::HashMap;
use smallvec::SmallVec;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

/// That a stream waited for another one.
#[derive(Clone, Copy, Debug)]
struct Wait {
    on: Moment,
    /// The operation that waited: it and what follows on its stream is ordered after `on`, what came before it is not.
    since: u64,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    /// The latest number handed in.
    issued: u64,
    /// The numbers that are not done, in order.
    unfinished: VecDeque<u64>,
    waited: SmallVec<[Wait; Streams::WAITS]>,
    /// The epoch the stream waited for, and since when.
    waited_epoch: (u64, u64),
}

impl Stream {
    const fn new(id: StreamId) -> Self {
        Self { id, issued: 0, unfinished: VecDeque::new(), waited: SmallVec::new_const(), waited_epoch: (0, 0) }
    }

    fn is_done(&self, seq: u64) -> bool {
        seq <= self.issued && self.unfinished.front().is_none_or(|oldest| seq < *oldest)
    }
}

/// The streams of a device that have, or lately had, something to do.
///
/// The numbers handed in come from one counter of the device: those of a stream increase. Within a stream operations are done in
/// order. A stream that is not in the table has nothing unfinished.
///
/// Equivalent to: the timeline semaphores of a Vulkan device's queues with their values.
#[derive(Debug, Default)]
pub struct Streams {
    streams: Vec<Stream>,
    /// Where in `streams` each one is.
    places: HashMap<StreamId, usize>,
    /// Where the stream is that was handed an operation last: most questions are about that one.
    recent: usize,
}

impl Streams {
    /// How many other streams a stream remembers to have waited for. When there are more, what is done is forgotten first, then the
    /// oldest; what was forgotten is waited for once more.
    pub const WAITS: usize = 8;

    /// No streams.
    pub fn new() -> Self {
        Self::default()
    }

    /// An operation was handed in. A number that is not above the stream's latest changes nothing.
    pub fn issue(&mut self, at: Moment) {
        let place = self.place_or_new(at.stream);
        self.recent = place;
        let stream = &mut self.streams[place];
        if at.seq > stream.issued {
            stream.issued = at.seq;
            stream.unfinished.push_back(at.seq);
        }
    }

    /// The stream's operations up to `seq` are done.
    pub fn complete(&mut self, stream: StreamId, seq: u64) {
        if let Some(place) = self.place(stream) {
            let stream = &mut self.streams[place];
            while stream.unfinished.front().is_some_and(|oldest| *oldest <= seq) {
                stream.unfinished.pop_front();
            }
        }
    }

    /// The operation at `at`, and so what follows it on its stream, waits for `on`, and by that for what the stream of `on` had waited
    /// for until then.
    pub fn waited(&mut self, at: Moment, on: Moment) {
        if on.stream == at.stream || self.is_done(on) {
            return;
        }
        let (inherited, epoch) = match self.stream(on.stream) {
            Some(other) => {
                let known = other.waited.iter().filter(|w| w.since <= on.seq).map(|w| w.on);
                (known.collect::<SmallVec<[Moment; Self::WAITS]>>(), other.waited_epoch)
            }
            None => return,
        };
        self.remember(at, on);
        for m in inherited {
            self.remember(at, m);
        }
        if epoch.0 > 0 && epoch.1 <= on.seq {
            self.waited_epoch(at, epoch.0);
        }
    }

    /// The operation at `at` waits for everything the device accepted up to `epoch`.
    pub fn waited_epoch(&mut self, at: Moment, epoch: u64) {
        let place = self.place_or_new(at.stream);
        let stream = &mut self.streams[place];
        if epoch > stream.waited_epoch.0 {
            stream.waited_epoch = (epoch, at.seq);
        }
    }

    /// The operation at `at` waits for everything in `frontier`.
    pub fn waited_for(&mut self, at: Moment, frontier: &Frontier) {
        if frontier.epoch() > 0 {
            self.waited_epoch(at, frontier.epoch());
        }
        for m in frontier.moments() {
            self.waited(at, *m);
        }
    }

    /// The stream's latest number that was handed in; `None` for a stream that is not in the table.
    pub fn issued(&self, stream: StreamId) -> Option<u64> {
        self.stream(stream).map(|s| s.issued)
    }

    /// The stream's oldest operation that is not done; `None` when all are.
    pub fn oldest_unfinished(&self, stream: StreamId) -> Option<u64> {
        self.stream(stream)?.unfinished.front().copied()
    }

    /// How many streams are in the table.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Drops streams that have nothing unfinished, those used longest ago first, until at most `keep` such are left. What a dropped
    /// stream had waited for is forgotten with it.
    pub fn retire_idle(&mut self, keep: usize) {
        let mut idle: Vec<u64> = self.streams.iter().filter(|s| s.unfinished.is_empty()).map(|s| s.issued).collect();
        let Some(surplus) = idle.len().checked_sub(keep).filter(|n| *n > 0) else { return };
        let (_, newest_to_go, _) = idle.select_nth_unstable(surplus - 1);
        let newest_to_go = *newest_to_go;
        self.streams.retain(|s| !s.unfinished.is_empty() || s.issued > newest_to_go);
        self.places.clear();
        self.places.extend(self.streams.iter().enumerate().map(|(place, s)| (s.id, place)));
        self.recent = 0;
    }

    #[inline]
    fn place(&self, stream: StreamId) -> Option<usize> {
        match self.streams.get(self.recent) {
            Some(recent) if recent.id == stream => Some(self.recent),
            _ => self.places.get(&stream).copied(),
        }
    }

    #[inline]
    fn stream(&self, stream: StreamId) -> Option<&Stream> {
        self.streams.get(self.place(stream)?)
    }

    #[inline]
    fn place_or_new(&mut self, stream: StreamId) -> usize {
        self.place(stream).unwrap_or_else(|| {
            let place = self.streams.len();
            self.places.insert(stream, place);
            self.streams.push(Stream::new(stream));
            place
        })
    }

    fn remember(&mut self, at: Moment, on: Moment) {
        if on.stream == at.stream {
            return;
        }
        let place = self.place_or_new(at.stream);
        if self.streams[place].waited.len() >= Self::WAITS {
            let waited = &self.streams[place].waited;
            let open = waited.iter().filter(|w| !self.is_done(w.on)).copied().collect();
            self.streams[place].waited = open;
        }
        let waited = &mut self.streams[place].waited;
        let new = Wait { on, since: at.seq };
        if let Some(known) = waited.iter_mut().find(|w| w.on.stream == on.stream) {
            if on.seq > known.on.seq {
                *known = new;
            }
        } else if waited.len() < Self::WAITS {
            waited.push(new);
        } else if let Some(oldest) = waited.iter_mut().min_by_key(|w| w.on.seq) {
            *oldest = new;
        }
    }
}

impl Timeline for Streams {
    #[inline]
    fn is_done(&self, at: Moment) -> bool {
        self.stream(at.stream).is_none_or(|s| s.is_done(at.seq))
    }

    fn is_epoch_done(&self, epoch: u64) -> bool {
        self.streams.iter().all(|s| s.unfinished.front().is_none_or(|oldest| *oldest > epoch))
    }

    fn is_ordered_after(&self, stream: StreamId, at: Moment) -> bool {
        stream == at.stream
            || self.stream(stream).is_some_and(|s| {
                at.seq <= s.waited_epoch.0 || s.waited.iter().any(|w| w.on.stream == at.stream && at.seq <= w.on.seq)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(stream: u64, seq: u64) -> Moment {
        Moment { stream: StreamId::from_raw(stream), seq }
    }

    fn issued(moments: &[(u64, u64)]) -> Streams {
        let mut streams = Streams::new();
        moments.iter().for_each(|(stream, seq)| streams.issue(at(*stream, *seq)));
        streams
    }

    #[test]
    fn a_moment_is_done_when_nothing_up_to_it_is_unfinished_and_not_before_it_was_issued() {
        let mut s = issued(&[(1, 2), (1, 9)]);
        assert!(s.is_done(at(1, 1)) && !s.is_done(at(1, 2)) && !s.is_done(at(1, 9)));
        s.complete(StreamId::from_raw(1), 2);
        assert!(s.is_done(at(1, 2)) && s.is_done(at(1, 8)) && !s.is_done(at(1, 9)));
        s.complete(StreamId::from_raw(1), 9);
        assert!(s.is_done(at(1, 9)) && !s.is_done(at(1, 10)));
        assert!(s.is_done(at(7, 1000)), "a stream that is not in the table is done");
    }

    #[test]
    fn an_epoch_is_done_when_no_stream_has_anything_unfinished_up_to_it() {
        let mut s = issued(&[(1, 2), (2, 5), (1, 9)]);
        assert!(s.is_epoch_done(1) && !s.is_epoch_done(2));
        s.complete(StreamId::from_raw(1), 2);
        assert!(s.is_epoch_done(4) && !s.is_epoch_done(5));
        s.complete(StreamId::from_raw(2), 5);
        assert!(s.is_epoch_done(8), "the next unfinished one is 9, whatever lies between");
        assert!(!s.is_epoch_done(9));
    }

    #[test]
    fn a_wait_hands_on_what_the_other_stream_had_waited_for_by_then() {
        let mut s = issued(&[(3, 1), (4, 2), (2, 3)]);
        s.waited(at(2, 3), at(3, 1));
        s.issue(at(2, 5));
        s.waited(at(2, 5), at(4, 2));
        s.issue(at(1, 6));
        s.waited(at(1, 6), at(2, 3));
        let one = StreamId::from_raw(1);
        assert!(s.is_ordered_after(one, at(2, 3)) && s.is_ordered_after(one, at(3, 1)));
        assert!(!s.is_ordered_after(one, at(4, 2)), "stream 2 waited for it only later");
        assert!(!s.is_ordered_after(one, at(2, 5)));
        s.waited(at(1, 6), at(2, 5));
        assert!(s.is_ordered_after(one, at(4, 2)));
    }

    #[test]
    fn an_epoch_that_was_waited_for_orders_after_everything_up_to_it() {
        let mut s = issued(&[(3, 1), (2, 2), (1, 3)]);
        s.waited_epoch(at(2, 2), 1);
        s.waited(at(1, 3), at(2, 2));
        assert!(s.is_ordered_after(StreamId::from_raw(1), at(3, 1)), "by way of stream 2");
        assert!(!s.is_ordered_after(StreamId::from_raw(1), at(4, 4)));
        s.issue(at(2, 5));
        s.waited_epoch(at(2, 5), 4);
        s.issue(at(6, 6));
        s.waited(at(6, 6), at(2, 2));
        assert!(!s.is_ordered_after(StreamId::from_raw(6), at(4, 4)), "stream 2 waited for that only later");
    }

    #[test]
    fn what_a_stream_remembers_is_bounded_and_keeps_what_is_not_done() {
        let mut s = Streams::new();
        (1..=30).for_each(|k| s.issue(at(k, k)));
        s.issue(at(99, 31));
        for k in 1..=30 {
            s.waited(at(99, 31), at(k, k));
        }
        let late = (1..=30).filter(|k| s.is_ordered_after(StreamId::from_raw(99), at(*k, *k))).collect::<Vec<_>>();
        assert_eq!(late, (23..=30).collect::<Vec<_>>());
        for k in 24..=30 {
            s.complete(StreamId::from_raw(k), k);
        }
        s.waited(at(99, 31), at(1, 1));
        assert!(
            s.is_ordered_after(StreamId::from_raw(99), at(23, 23))
                && s.is_ordered_after(StreamId::from_raw(99), at(1, 1))
        );
    }

    #[test]
    fn a_thousand_short_streams_leave_as_many_entries_as_asked_for() {
        let mut s = Streams::new();
        for k in 1..=1000 {
            s.issue(at(k, k));
            if k != 500 {
                s.complete(StreamId::from_raw(k), k);
            }
        }
        s.retire_idle(16);
        assert_eq!(s.len(), 17, "16 idle ones and the one that has work");
        assert_eq!(
            (s.oldest_unfinished(StreamId::from_raw(500)), s.issued(StreamId::from_raw(1000))),
            (Some(500), Some(1000))
        );
        assert!(s.is_done(at(1, 1)) && !s.is_done(at(500, 500)));
        s.retire_idle(0);
        s.issue(at(1, 1001));
        assert!(s.is_done(at(1, 1000)) && !s.is_done(at(1, 1001)), "a stream may come back");
        s.issue(at(1, 7));
        assert_eq!(
            s.issued(StreamId::from_raw(1)),
            Some(1001),
            "a number that is not above the latest changes nothing"
        );
    }
}
