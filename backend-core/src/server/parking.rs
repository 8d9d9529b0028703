//! Streams whose next operation waits for something only the host will signal, or for such a stream: they are parked, never the device.
//!
//! What is parked was resolved, so whoever touches the same bytes later waits for it, and is parked behind it.

use super::DriverServer;
use super::flight::Writes;
use super::tasks::{Data, Task, Uses, Work};
use crate::driver::Driver;
use core::task::Poll;
use trunnion_resource_tracker::Use;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::failure::Failure;
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

/// An operation that is put aside.
pub(super) struct Parked {
    pub(super) at: Moment,
    pub(super) waits: Frontier,
    /// The operation of its own stream that a barrier must lie behind, or 0.
    pub(super) hazard: u64,
    pub(super) uses: Uses,
    pub(super) work: Work,
    /// A failure that reached its input while it was parked.
    pub(super) skip: Option<Failure>,
}

impl Parked {
    /// Whether an operation with these uses, which waits for an epoch this one belongs to, waits for this one.
    pub(super) fn holds_up(&self, uses: &[Use]) -> bool {
        // What settles a batch stands for all bytes the batch used.
        let is_batch = matches!(self.work, Work::Settle) && self.uses.is_empty();
        is_batch || self.uses.iter().any(|own| uses.iter().any(|other| conflict(own, other)))
    }
}

/// Whether both use a byte, and one of them writes it.
fn conflict(a: &Use, b: &Use) -> bool {
    a.memory == b.memory
        && a.range.start.max(b.range.start) < a.range.end.min(b.range.end)
        && (a.access.writes() || b.access.writes())
}

/// What of a parked operation must be kept to its end if it panics on its way to the driver.
pub(super) struct Hand {
    pub(super) at: Moment,
    pub(super) waits: Frontier,
    pub(super) writes: Writes,
    pub(super) is_counted: bool,
}

impl<D: Driver> DriverServer<D> {
    /// Puts a resolved operation aside.
    pub(super) fn park(&mut self, lane: usize, at: Moment, waits: &Frontier, hazard: u64, uses: &[Use], work: Work) {
        let limit = self.settings.park_limit;
        // Without bytes it is a wait, which must not be lost.
        if self.parked >= limit && work.is_counted() && !uses.is_empty() {
            let what = alloc::format!("{limit} operations wait for the host already");
            return self.refuse(at, uses, &Failure::new(at, Error::Busy { what: what.into() }));
        }
        self.tracker.landed(at);
        self.note_waits(at, waits);
        self.parked += usize::from(work.is_counted());
        let (waits, uses) = (waits.clone(), Uses::from(uses));
        self.lanes.slots[lane].queue.push_back(Parked { at, waits, hazard, uses, work, skip: None });
    }

    /// Goes on with every stream that can.
    pub(super) fn unpark(&mut self) {
        let mut went_on = false;
        loop {
            self.stirred = false;
            let mut moved = false;
            for lane in 0..self.lanes.slots.len() {
                while !self.lanes.slots[lane].queue.is_empty() && self.release_oldest(lane) {
                    moved = true;
                }
            }
            went_on |= moved;
            if !moved && !self.stirred {
                break;
            }
        }
        // Who waits asked when this could not be with the driver yet. A driver that finishes what it is asked about must be asked again.
        if went_on && self.lanes.slots.iter().any(|lane| !lane.waiters.is_empty()) {
            self.waker.wake_by_ref();
        }
    }

    /// Goes on with the oldest parked operation of a stream, if it can.
    fn release_oldest(&mut self, lane: usize) -> bool {
        let Some(mut parked) = self.lanes.slots[lane].queue.pop_front() else { return false };
        self.current = Some(parked.at);
        self.tainted = None;
        let at = parked.at;
        let writes = parked.uses.iter().filter(|u| u.access.writes()).cloned().collect();
        let is_counted = parked.work.is_counted();
        self.hand = Some(Hand { at, waits: parked.waits.clone(), writes, is_counted });
        if let Work::Access { promise: Some(promise), .. } = &parked.work {
            self.granting = Some(promise.clone());
        }
        let gone = self.release(lane, &mut parked);
        self.hand = None;
        self.granting = None;
        if self.ended.is_some() {
            self.answer_parked(parked);
            self.current = None;
            return false;
        }
        if let Some(failure) = self.tainted.take() {
            parked.skip.get_or_insert(failure);
        }
        if gone {
            self.parked -= usize::from(is_counted);
            self.submit_when_due(lane);
        } else {
            // A batch of this stream may have failed meanwhile; what settles it comes first.
            let queue = &mut self.lanes.slots[lane].queue;
            let place = queue.partition_point(|other| other.at.seq < at.seq);
            queue.insert(place, parked);
        }
        self.end(lane);
        gone
    }

    /// Whether the operation is over or with the driver now.
    fn release(&mut self, lane: usize, parked: &mut Parked) -> bool {
        let mut data: Option<Result<Bytes>> = None;
        match &parked.work {
            Work::Settle => return self.is_settled(lane, &parked.waits, &parked.uses),
            Work::Access { .. } => {
                self.try_grant(lane, parked);
                return false;
            }
            Work::Promised(promise) => return promise.poll(&self.waker).is_ready(),
            Work::PromisedWrite { target, data: promise } => match promise.poll(&self.waker) {
                Poll::Pending => return false,
                Poll::Ready(given) => {
                    data = Some(given.and_then(|all| super::operations::first_of(all, target)));
                }
            },
            _ => {}
        }
        let Some(way) = self.way(lane, parked.at, &parked.waits, &parked.uses) else { return false };
        if self.ended.is_some() {
            return false;
        }
        if let Some(failure) = self.tainted.take() {
            parked.skip.get_or_insert(failure);
        }
        let (at, hazard) = (parked.at, parked.hazard);
        let mut lost = None;
        let failed = match (&parked.skip, data) {
            // What it was to write carries the failure already.
            (Some(failure), _) => Some((failure.clone(), false)),
            (None, Some(Err(error))) => Some((Failure::new(at, error), true)),
            (None, given) => {
                let task = match (&parked.work, &given) {
                    (Work::PromisedWrite { target, .. }, Some(Ok(data))) => {
                        Task::Write { target, data: Data::Bytes(data) }
                    }
                    (work, _) => work.task(),
                };
                let encoded = self.enqueue(lane, at, &way, &parked.waits, hazard, &parked.uses, &task);
                lost = encoded.as_ref().err().filter(|error| error.is_device_lost()).cloned();
                encoded.err().map(|error| (Failure::new(at, error), true))
            }
        };
        if let Some((failure, is_new)) = failed {
            self.leave_marker(lane, parked, &failure, is_new);
        }
        if let Some(error) = lost {
            self.lose(error);
        }
        true
    }

    /// A parked operation is not carried out. It keeps its place, so that its moment is done only when what it waited for is.
    fn leave_marker(&mut self, lane: usize, parked: &Parked, failure: &Failure, is_new: bool) {
        self.fail_read(parked.at.seq, failure);
        if is_new {
            self.failed_late(parked.at, &parked.uses, failure);
        }
        if self.ended.is_none() && !parked.waits.is_empty() {
            self.settle_later(lane, parked.at, parked.waits.clone());
        }
    }

    /// The moment `at` is done when `waits` is, whatever the driver does.
    pub(super) fn settle_later(&mut self, lane: usize, at: Moment, waits: Frontier) {
        let settle = Parked { at, waits, hazard: 0, uses: Uses::new(), work: Work::Settle, skip: None };
        self.lanes.slots[lane].queue.push_front(settle);
        self.stirred = true;
    }

    /// Whether all of `waits` is done as the host sees it; what is not is at least submitted.
    pub(super) fn is_settled(&mut self, lane: usize, waits: &Frontier, uses: &[Use]) -> bool {
        let mut settled = true;
        for on in waits.moments() {
            if !self.timeline.is_done(*on) {
                settled = false;
                if let Some(other) = self.lanes.find(on.stream) {
                    self.submit_up_to(other, on.seq);
                }
            }
        }
        if waits.epoch() > 0 && !self.timeline.is_epoch_done(waits.epoch()) {
            for other in (0..self.lanes.slots.len()).filter(|other| *other != lane) {
                self.submit_up_to(other, waits.epoch());
                let slot = &self.lanes.slots[other];
                let in_flight = slot.flight.newest_within(waits.epoch()).is_some();
                let mut parked = slot.queue.iter().take_while(|parked| parked.at.seq <= waits.epoch());
                if in_flight || parked.any(|parked| parked.holds_up(uses)) {
                    settled = false;
                }
            }
        }
        settled
    }
}
