//! What the hardware has finished: moments become done, who waits for them is woken, failures that come to light late are marked.
//!
//! A failure must be marked before anything that depends on it counts as done, and the two may be on different streams that are asked
//! one after the other. So what a stream reports as finished counts only after all streams were asked once more: whatever it
//! depended on had finished before, and has told of its failures by then.

use super::DriverServer;
use super::lanes::Waiter;
use crate::driver::Driver;
use alloc::vec::Vec;
use core::task::{Poll, Waker};
use trunnion_resource_tracker::Use;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::failure::Failure;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::timeline::Moment;

impl<D: Driver> DriverServer<D> {
    /// Asks the driver what is finished, and does what follows from it.
    pub(super) fn collect(&mut self) {
        loop {
            let (busy, news) = self.ask();
            if self.ended.is_some() {
                return;
            }
            for lane in 0..self.lanes.slots.len() {
                let slot = &mut self.lanes.slots[lane];
                // A stream alone depends on nothing but itself.
                let finished = if busy <= 1 { slot.reported } else { slot.seen };
                slot.seen = slot.reported;
                if finished > slot.finished {
                    self.finished(lane, finished);
                }
            }
            if !news {
                self.tracker.retire(&self.timeline);
                return;
            }
        }
    }

    /// Asks every stream that has something submitted. How many there are, and whether one has news.
    fn ask(&mut self) -> (usize, bool) {
        let (mut busy, mut news) = (0, false);
        let mut failed: Vec<(usize, u64, trunnion_runtime_core::error::Error)> = Vec::new();
        for lane in 0..self.lanes.slots.len() {
            let slot = &mut self.lanes.slots[lane];
            if !slot.is_busy() {
                continue;
            }
            let Some(stream) = &mut slot.stream else { continue };
            busy += 1;
            self.polling = true;
            let polled = self.hardware.driver.poll(stream, &mut self.outcome);
            self.polling = false;
            match polled {
                Ok(seq) if seq > slot.reported => {
                    slot.reported = seq;
                    news = true;
                }
                Ok(_) => {}
                Err(error) => {
                    self.lose(error);
                    return (busy, false);
                }
            }
            failed.extend(self.outcome.failed.drain(..).map(|(seq, error)| (lane, seq, error)));
            let mut read = core::mem::take(&mut self.outcome.read);
            for (seq, index, bytes) in read.drain(..) {
                self.piece_read(seq, index, bytes);
            }
            self.outcome.read = read;
        }
        // In order, so that a failure is followed through what came after it before that is looked at.
        failed.sort_by_key(|(_, seq, _)| *seq);
        for (lane, seq, error) in failed {
            if error.is_device_lost() {
                self.lose(error);
                return (busy, false);
            }
            let slot = &self.lanes.slots[lane];
            let at = Moment { stream: slot.id, seq };
            if let Some(writes) = slot.flight.writes_of(seq) {
                self.failed_late(at, &writes, &Failure::new(at, error));
            }
        }
        (busy, news)
    }

    /// The stream has finished everything up to `seq`.
    fn finished(&mut self, lane: usize, seq: u64) {
        self.lanes.slots[lane].finished = seq;
        while let Some(entry) = self.lanes.slots[lane].flight.take_finished(seq) {
            self.completions += 1;
            if entry.is_read {
                self.complete_read(entry.seq);
            }
        }
        self.complete(lane);
        if !self.lanes.slots[lane].is_busy() {
            self.submit(lane);
        }
        self.stirred = true;
    }

    /// Finds out up to where the stream's moments are done, and wakes who waits for them.
    #[inline]
    pub(super) fn complete(&mut self, lane: usize) {
        let slot = &mut self.lanes.slots[lane];
        let unfinished = slot.flight.oldest().or_else(|| slot.queue.front().map(|parked| parked.at.seq));
        let done = unfinished.map_or(slot.issued, |seq| seq - 1);
        if done <= slot.done {
            return;
        }
        slot.done = done;
        self.timeline.complete(slot.id, done);
        self.completions += u64::from(slot.flight.is_empty());
        let mut i = 0;
        while i < slot.waiters.len() {
            if slot.waiters[i].0 > done {
                i += 1;
                continue;
            }
            match slot.waiters.swap_remove(i).1 {
                Waiter::Waker(waker) => self.wakers.push(waker),
                Waiter::Promise(promise) => promise.fulfil(Ok(()), &mut self.wakers),
            }
        }
    }

    /// The operation at `at`, which was accepted, did not write its bytes after all.
    pub(super) fn failed_late(&mut self, at: Moment, writes: &[Use], failure: &Failure) {
        self.taint_read(at.seq, failure);
        let mut told = Vec::new();
        self.tracker.failed_telling(at, writes, failure, |at, failure| told.push((at, failure.clone())));
        for (at, failure) in told {
            self.taint_read(at.seq, &failure);
            if self.current == Some(at) {
                self.tainted.get_or_insert(failure);
            } else if let Some(lane) = self.lanes.find(at.stream) {
                let queue = &mut self.lanes.slots[lane].queue;
                if let Ok(i) = queue.binary_search_by_key(&at.seq, |parked| parked.at.seq) {
                    queue[i].skip.get_or_insert(failure);
                }
            }
        }
    }

    /// Whether nothing of the stream is unfinished up to a moment. A number it was never given counts as its latest.
    pub(super) fn is_past(&self, at: Moment) -> bool {
        self.lanes.find(at.stream).is_none_or(|lane| {
            let slot = &self.lanes.slots[lane];
            slot.done >= at.seq.min(slot.issued)
        })
    }

    /// Looks whether a moment is done; hands everything before it to the driver first.
    fn look(&mut self, at: Moment) -> Poll<Result<()>> {
        if let Some(error) = &self.ended {
            return Poll::Ready(Err(error.clone()));
        }
        if self.is_past(at) {
            return Poll::Ready(Ok(()));
        }
        if let Some(lane) = self.lanes.find(at.stream) {
            self.submit_up_to(lane, at.seq);
        }
        self.collect();
        self.settle();
        match &self.ended {
            Some(error) => Poll::Ready(Err(error.clone())),
            None if self.is_past(at) => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }

    pub(super) fn poll_moment(&mut self, at: Moment, waker: &Waker) -> Poll<Result<()>> {
        let looked = self.look(at);
        if looked.is_pending()
            && let Some(lane) = self.lanes.find(at.stream)
        {
            let slot = &mut self.lanes.slots[lane];
            let seq = at.seq.min(slot.issued);
            let known = slot
                .waiters
                .iter()
                .any(|(of, waiter)| *of == seq && matches!(waiter, Waiter::Waker(known) if known.will_wake(waker)));
            if !known {
                slot.waiters.push((seq, Waiter::Waker(waker.clone())));
            }
        }
        looked
    }

    pub(super) fn signal_moment(&mut self, at: Moment, promise: Promise<()>) {
        match (self.look(at), self.lanes.find(at.stream)) {
            (Poll::Ready(result), _) => promise.fulfil(result, &mut self.wakers),
            (Poll::Pending, Some(lane)) => {
                let slot = &mut self.lanes.slots[lane];
                slot.waiters.push((at.seq.min(slot.issued), Waiter::Promise(promise)));
            }
            // Pending only where the stream is known.
            (Poll::Pending, None) => promise.fulfil(Ok(()), &mut self.wakers),
        }
    }

    /// Goes on with what could not go on before, if there may be something.
    #[inline]
    pub(super) fn settle(&mut self) {
        if self.stirred {
            self.unpark();
        }
    }
}
