//! The one notion of time: points, frontiers, and what can be asked about them.
//!
//! Every operation a device accepts takes the next number of one counter of that device. A stream's operations carry increasing
//! numbers from it, so a [`Point`] orders a stream, and a single number, an *epoch*, bounds everything the device had accepted.

use crate::id::{ServiceId, StreamId};
use arrayvec::ArrayVec;
use core::fmt;

/// A moment of a stream: done when the stream's operations up to `seq` are.
///
/// Equivalent to: a CUDA event recorded on a stream; a value of a Vulkan timeline semaphore; a `wgpu` submission index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Point {
    /// The server the stream belongs to.
    pub service: ServiceId,
    /// The stream.
    pub stream: StreamId,
    /// The operation's number, from the device's one counter; never 0.
    pub seq: u64,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} of {}", self.stream, self.seq, self.service)
    }
}

/// A moment of a stream of a device that is known from the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Moment {
    /// The stream.
    pub stream: StreamId,
    /// The operation's number, from the device's one counter.
    pub seq: u64,
}

impl From<Point> for Moment {
    fn from(point: Point) -> Self {
        Self { stream: point.stream, seq: point.seq }
    }
}

/// What is known about the progress of one device.
pub trait Timeline {
    /// Whether `stream`'s operations up to `seq` are done. True for a stream the device does not know.
    fn is_done(&self, at: Moment) -> bool;

    /// Whether everything the device accepted up to the number `epoch` is done, on every stream.
    fn is_epoch_done(&self, epoch: u64) -> bool;

    /// Whether what `stream` does next is already ordered after `at`: it is on that stream, or that stream waited for it.
    fn is_ordered_after(&self, stream: StreamId, at: Moment) -> bool;
}

/// A set of moments: done when all of them are. Four are kept one by one; beyond that the set is rounded up to everything the
/// device had accepted when the latest of them was, its epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    moments: ArrayVec<Moment, { Frontier::INLINE }>,
    epoch: u64,
}

impl Frontier {
    /// How many moments are kept one by one.
    pub const INLINE: usize = 4;

    /// The empty set, which is done.
    pub const fn new() -> Self {
        Self { moments: ArrayVec::new_const(), epoch: 0 }
    }

    /// Adds a moment. A later moment of a stream replaces an earlier one.
    pub fn add(&mut self, at: Moment) {
        if at.seq <= self.epoch {
            return;
        }
        if let Some(known) = self.moments.iter_mut().find(|m| m.stream == at.stream) {
            known.seq = known.seq.max(at.seq);
        } else if self.moments.len() < Self::INLINE {
            self.moments.push(at);
        } else {
            self.add_epoch(self.moments.iter().map(|m| m.seq).fold(at.seq, u64::max));
        }
    }

    /// Adds everything the device accepted up to the number `epoch`.
    pub fn add_epoch(&mut self, epoch: u64) {
        self.epoch = self.epoch.max(epoch);
        self.moments.retain(|m| m.seq > self.epoch);
    }

    /// Adds all moments of another set.
    pub fn join(&mut self, other: &Frontier) {
        if other.epoch > 0 {
            self.add_epoch(other.epoch);
        }
        for at in &other.moments {
            self.add(*at);
        }
    }

    /// The moments kept one by one.
    #[inline]
    pub fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// The number up to which everything the device accepted belongs to the set; 0 when there is none.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.epoch == 0 && self.moments.is_empty()
    }

    /// Whether every moment of the set is done.
    pub fn is_done(&self, timeline: &(impl Timeline + ?Sized)) -> bool {
        (self.epoch == 0 || timeline.is_epoch_done(self.epoch)) && self.moments.iter().all(|m| timeline.is_done(*m))
    }

    /// Whether `stream` may go on without waiting: every moment is done, or what the stream does next is ordered after it already.
    pub fn is_free_for(&self, stream: StreamId, timeline: &(impl Timeline + ?Sized)) -> bool {
        (self.epoch == 0 || timeline.is_epoch_done(self.epoch))
            && self.moments.iter().all(|m| timeline.is_done(*m) || timeline.is_ordered_after(stream, *m))
    }

    /// Forgets what is done.
    pub fn prune(&mut self, timeline: &(impl Timeline + ?Sized)) {
        if self.epoch > 0 && timeline.is_epoch_done(self.epoch) {
            self.epoch = 0;
        }
        self.moments.retain(|m| !timeline.is_done(*m));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(stream: u64, seq: u64) -> Moment {
        Moment { stream: StreamId::from_raw(stream), seq }
    }

    struct Done(u64);
    impl Timeline for Done {
        fn is_done(&self, at: Moment) -> bool {
            at.seq <= self.0
        }
        fn is_epoch_done(&self, epoch: u64) -> bool {
            epoch <= self.0
        }
        fn is_ordered_after(&self, stream: StreamId, at: Moment) -> bool {
            stream == at.stream
        }
    }

    #[test]
    fn a_later_moment_of_a_stream_replaces_the_earlier_one() {
        let mut f = Frontier::new();
        f.add(at(1, 3));
        f.add(at(1, 9));
        f.add(at(1, 5));
        assert_eq!(f.moments(), [at(1, 9)]);
    }

    #[test]
    fn the_fifth_stream_rounds_up_to_the_epoch() {
        let mut f = Frontier::new();
        for s in 1..=5 {
            f.add(at(s, 10 + s));
        }
        assert_eq!((f.moments().len(), f.epoch()), (0, 15));
        f.add(at(9, 14));
        assert!(f.moments().is_empty(), "the epoch covers it");
        f.add(at(9, 20));
        assert_eq!(f.moments(), [at(9, 20)]);
        assert!(!f.is_done(&Done(19)));
        assert!(f.is_done(&Done(20)));
    }

    #[test]
    fn a_stream_need_not_wait_for_itself_but_for_the_epoch() {
        let mut f = Frontier::new();
        f.add(at(1, 5));
        assert!(f.is_free_for(StreamId::from_raw(1), &Done(0)));
        assert!(!f.is_free_for(StreamId::from_raw(2), &Done(0)));
        f.add_epoch(7);
        assert!(!f.is_free_for(StreamId::from_raw(1), &Done(6)));
        f.prune(&Done(7));
        assert!(f.is_empty());
    }
}
