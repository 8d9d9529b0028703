//! How things end: a panic, the device's fault, shutdown, drop.

use super::DriverServer;
use crate::driver::Driver;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::mem;
use core::task::Waker;
use core::time::Duration;
use trunnion_memory_pools::MemoryPools;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::executor::Notifier;
use trunnion_runtime_core::failure::Failure;
use trunnion_runtime_core::id::ServiceId;
use trunnion_runtime_core::platform::Deadline;

struct Ringing(Notifier);

impl Wake for Ringing {
    fn wake(self: Arc<Self>) {
        self.0.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify();
    }
}

/// A waker that rings the notifier, for promises that parked operations wait for.
pub(super) fn ringing(notifier: Notifier) -> Waker {
    Waker::from(Arc::new(Ringing(notifier)))
}

impl<D: Driver> DriverServer<D> {
    /// The device is gone: everything is answered with the same error from here on.
    #[cold]
    pub(super) fn lose(&mut self, error: Error) {
        if self.ended.is_some() {
            return;
        }
        let error = match error.root() {
            lost @ Error::DeviceLost { .. } => lost.clone(),
            other => Error::DeviceLost { cause: other.to_string() },
        };
        log::error!("{error}");
        self.lost = true;
        self.end_with(error);
    }

    /// Answers everything that is pending, and everything that comes, with the error. How many operations are abandoned by this.
    fn end_with(&mut self, error: Error) -> usize {
        self.ended = Some(error.clone());
        let mut abandoned = 0;
        for lane in 0..self.lanes.slots.len() {
            let slot = &mut self.lanes.slots[lane];
            abandoned += slot.flight.len();
            slot.flight.clear();
            slot.encoded = 0;
            let queue = mem::take(&mut slot.queue);
            for parked in queue {
                abandoned += usize::from(parked.work.is_counted());
                self.answer_parked(parked);
            }
            let slot = &mut self.lanes.slots[lane];
            slot.done = slot.issued;
            self.timeline.complete(slot.id, slot.issued);
            for (_, waiter) in slot.waiters.drain(..) {
                match waiter {
                    // Who is woken asks again and is told.
                    super::lanes::Waiter::Waker(waker) => self.wakers.push(waker),
                    super::lanes::Waiter::Promise(promise) => promise.fulfil(Err(error.clone()), &mut self.wakers),
                }
            }
        }
        self.answer_reads(&error);
        if let Some(promise) = self.granting.take() {
            promise.fulfil(Err(error), &mut self.wakers);
        }
        self.parked = 0;
        self.stirred = false;
        self.completions += 1;
        abandoned
    }

    /// A call of this server panicked, and what was under way is what the fields say.
    #[cold]
    pub(super) fn clean_up_after_panic(&mut self, seq: u64, message: &str) {
        let error = Error::Panicked { what: "the device's server".into(), message: message.into() };
        if mem::take(&mut self.polling) {
            // Nobody knows what is finished any more.
            self.lose(Error::DeviceLost { cause: alloc::format!("the driver panicked: {message}") });
        }
        if let Some(lane) = self.submitting.take() {
            self.batch_failed(lane, error.clone());
        }
        let Some(at) = self.current.take() else {
            log::error!("operation {seq}: {error}");
            return;
        };
        let failure = Failure::new(at, error.clone());
        if let Some(request) = self.reserving.take() {
            self.leave_unplaced(at, &request, error.clone());
        }
        if let Some(promise) = self.granting.take() {
            promise.fulfil(Err(error), &mut self.wakers);
        }
        // Of an operation that was accepted just now the tracker knows the bytes.
        self.tracker.failed(at, &[], &failure);
        let lane = self.lanes.find(at.stream);
        if let Some(hand) = self.hand.take() {
            self.parked = self.parked.saturating_sub(usize::from(hand.is_counted));
            self.failed_late(hand.at, &hand.writes, &failure);
            if let Some(lane) = lane.filter(|_| !hand.waits.is_empty() && self.ended.is_none()) {
                self.settle_later(lane, hand.at, hand.waits);
            }
        }
        self.fail_read(at.seq, &failure);
        if let Some(lane) = lane {
            self.complete(lane);
        }
        self.stirred = true;
    }

    /// Ends the server. How many operations were abandoned.
    pub(super) fn shut_down(&mut self, deadline: &Deadline) -> usize {
        let mut drained = self.drain(deadline);
        let mut abandoned = 0;
        if self.ended.is_none() {
            let service = self.service.unwrap_or(ServiceId::from_raw(0));
            abandoned = self.end_with(Error::ShutDown { service });
        } else if !drained {
            // A lost device may never answer, and uses no memory any more where its driver says that it is idle.
            drained = self.hardware.driver.drain(deadline);
        }
        // What is live now is so to the end of the recording.
        self.recording.end();
        self.give_back(drained);
        // What would not end in time is left to itself: the drop does not wait for it again.
        self.settings.drop_wait = Duration::ZERO;
        abandoned
    }

    /// Waits for what the driver has and for what that lets go on. Whether the driver has nothing more.
    fn drain(&mut self, deadline: &Deadline) -> bool {
        loop {
            if self.ended.is_some() {
                return false;
            }
            for lane in 0..self.lanes.slots.len() {
                self.submit(lane);
            }
            let before = self.completions;
            let drained = self.hardware.driver.drain(deadline);
            self.collect();
            self.unpark();
            let is_busy = self.lanes.slots.iter().any(|lane| !lane.flight.is_empty());
            // A driver that has nothing more and still owes something will not come up with it.
            let is_over = !is_busy || (drained && self.completions == before) || deadline.expired();
            if is_over && self.ended.is_none() {
                return drained && !is_busy;
            }
        }
    }

    /// Gives streams, code and memory back to the driver. Memory that somebody may still use is leaked instead.
    fn give_back(&mut self, drained: bool) {
        for stream in self.lanes.take_streams() {
            if drained {
                self.hardware.driver.close_stream(stream);
            } else {
                mem::forget(stream);
            }
        }
        if drained {
            self.code.clear();
        }
        let events = mem::take(&mut self.events).into_iter().map(|(_, event)| event);
        if drained {
            events.for_each(|event| event.let_go(&mut self.wakers));
        } else {
            events.for_each(mem::forget);
        }
        if drained && self.granted.is_empty() {
            self.pools.drain(&mut self.hardware);
            self.let_go_of_memory();
            if let Some(page) = self.nothing.take() {
                self.hardware.driver.release(page);
            }
            return;
        }
        let usage = self.pools.usage();
        if usage.reserved > 0 {
            log::warn!("{} bytes of device memory are not given back: something still uses them", usage.reserved);
        }
        let config = self.pools.config().clone();
        mem::forget(mem::replace(&mut self.pools, MemoryPools::new(config)));
        mem::forget(self.nothing.take());
        if !drained {
            let code = super::code::CodeCache::new(&self.settings, &self.hardware.driver);
            mem::forget(mem::replace(&mut self.code, code));
        }
    }
}

impl<D: Driver> Drop for DriverServer<D> {
    fn drop(&mut self) {
        let deadline = Deadline::after(self.settings.drop_wait);
        self.shut_down(&deadline);
        // Nobody holds the device any more, and nobody will ask for them.
        mem::take(&mut self.wakers).into_iter().for_each(Waker::wake);
    }
}
