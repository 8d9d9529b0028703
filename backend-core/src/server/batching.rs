//! When a batch is submitted, and waits between streams.
//!
//! A stream's batch is submitted at once when nothing submitted is unfinished on it, else when it is full, when somebody asks for a
//! moment in it, when another stream must wait for it, or when what was submitted before is finished. A wait is handed to the driver
//! only while nothing is encoded on the waiting stream, and only for what is submitted on the other: so two open batches never wait
//! for each other.

use super::DriverServer;
use super::flight::{Entry, Writes};
use super::tasks::Task;
use crate::driver::Driver;
use alloc::vec::Vec;
use smallvec::SmallVec;
use trunnion_resource_tracker::Use;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::failure::Failure;
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

/// What the driver is to wait for: streams by their place, and the operation of each.
pub(super) type Way = SmallVec<[(usize, u64); 4]>;

impl<D: Driver> DriverServer<D> {
    /// What an operation of `lane` that waits for `waits` must wait for on the device. Everything it needs of other streams is
    /// submitted by then, and nothing is encoded on its own stream when it has to wait. `None` when something of it is parked.
    pub(super) fn way(&mut self, lane: usize, at: Moment, waits: &Frontier, uses: &[Use]) -> Option<Way> {
        let mut way = Way::new();
        if waits.is_empty() {
            return Some(way);
        }
        for on in waits.moments() {
            if self.timeline.is_done(*on) {
                continue;
            }
            let Some(other) = self.lanes.find(on.stream).filter(|other| *other != lane) else { continue };
            self.submit_up_to(other, on.seq);
            let slot = &self.lanes.slots[other];
            if slot.is_parked_at(on.seq) {
                return None;
            }
            way.extend(slot.flight.newest_within(on.seq).map(|seq| (other, seq)));
        }
        if waits.epoch() > 0 && !self.timeline.is_epoch_done(waits.epoch()) {
            for other in (0..self.lanes.slots.len()).filter(|other| *other != lane) {
                self.submit_up_to(other, waits.epoch());
                let slot = &self.lanes.slots[other];
                // An epoch stands for operations that use the same bytes. The others need not be waited for, and may never end.
                if slot
                    .queue
                    .iter()
                    .take_while(|parked| parked.at.seq <= waits.epoch())
                    .any(|parked| parked.holds_up(uses))
                {
                    return None;
                }
                way.extend(slot.flight.newest_within(waits.epoch()).map(|seq| (other, seq)));
            }
        }
        if !way.is_empty() {
            self.submit(lane);
            if self.lanes.slots[lane].is_parked_at(at.seq) {
                return None;
            }
        }
        Some(way)
    }

    /// Hands an operation to the driver, behind what it waits for. `hazard` is the operation of its own stream that a barrier must lie
    /// behind, or 0.
    #[allow(clippy::too_many_arguments, reason = "an operation, resolved")]
    pub(super) fn enqueue(
        &mut self,
        lane: usize,
        at: Moment,
        way: &[(usize, u64)],
        waits: &Frontier,
        hazard: u64,
        uses: &[Use],
        task: &Task<'_>,
    ) -> Result<()> {
        self.open_stream(lane)?;
        for (other, seq) in way {
            if let Ok([own, other]) = self.lanes.slots.get_disjoint_mut([lane, *other])
                && let (Some(own), Some(other)) = (&mut own.stream, &mut other.stream)
            {
                self.hardware.driver.wait(own, other, *seq);
            }
        }
        self.note_waits(at, waits);
        if waits.epoch() > 0 {
            // Not the whole epoch was waited for, but this.
            for (other, seq) in way {
                self.timeline.waited(at, Moment { stream: self.lanes.slots[*other].id, seq: *seq });
            }
        }
        let slot = &mut self.lanes.slots[lane];
        if !way.is_empty() {
            slot.waited = at.seq;
        }
        if !waits.is_empty() {
            slot.waits.join(waits);
        }
        if hazard > 0
            && hazard >= slot.barrier
            && !self.timeline.is_done(Moment { stream: at.stream, seq: hazard })
            && let Some(stream) = &mut slot.stream
        {
            self.hardware.driver.barrier(stream);
            slot.barrier = at.seq;
        }
        self.encode(lane, at, task)?;
        let slot = &mut self.lanes.slots[lane];
        slot.flight.push(at.seq, uses, matches!(task, Task::Read { .. }));
        slot.encoded += 1;
        Ok(())
    }

    /// What the operation at `at` and all that follow it on its stream come after. Of an epoch nothing is noted: what only the host will
    /// signal and uses other bytes is left out of it.
    pub(super) fn note_waits(&mut self, at: Moment, waits: &Frontier) {
        for on in waits.moments() {
            self.timeline.waited(at, *on);
        }
    }

    pub(super) fn open_stream(&mut self, lane: usize) -> Result<()> {
        if self.lanes.slots[lane].stream.is_none() {
            let stream = match self.lanes.take_spare() {
                Some(stream) => stream,
                None => self.hardware.driver.open_stream()?,
            };
            self.lanes.slots[lane].stream = Some(stream);
        }
        Ok(())
    }

    /// After something was encoded.
    #[inline]
    pub(super) fn submit_when_due(&mut self, lane: usize) {
        let slot = &self.lanes.slots[lane];
        if !slot.is_busy() || slot.encoded >= self.settings.batch_limit {
            self.submit(lane);
        }
    }

    /// Submits what is encoded on the stream if the operation `seq`, or one before it, is in it.
    pub(super) fn submit_up_to(&mut self, lane: usize, seq: u64) {
        let slot = &self.lanes.slots[lane];
        if slot.encoded > 0 && slot.flight.newest_within(seq).is_some_and(|newest| newest > slot.submitted) {
            self.submit(lane);
        }
    }

    /// Submits what is encoded on the stream.
    pub(super) fn submit(&mut self, lane: usize) {
        let slot = &mut self.lanes.slots[lane];
        let (Some(seq), Some(stream)) = (slot.flight.newest(), &mut slot.stream) else { return };
        if slot.encoded == 0 {
            return;
        }
        self.submitting = Some(lane);
        let submitted = self.hardware.driver.submit(stream, seq);
        self.submitting = None;
        match submitted {
            Ok(()) => {
                slot.submitted = seq;
                slot.encoded = 0;
                slot.waits = Frontier::new();
            }
            Err(error) => self.batch_failed(lane, error),
        }
    }

    /// The batch that was being submitted is gone.
    #[cold]
    pub(super) fn batch_failed(&mut self, lane: usize, error: Error) {
        if error.is_device_lost() {
            return self.lose(error);
        }
        let slot = &mut self.lanes.slots[lane];
        let id = slot.id;
        let mut gone = Vec::new();
        for _ in 0..core::mem::take(&mut slot.encoded) {
            gone.extend(slot.flight.take_newest());
        }
        gone.reverse();
        let Some(first) = gone.first().map(|(entry, _): &(Entry, Writes)| entry.seq) else { return };
        let first = Moment { stream: id, seq: first };
        let failure = Failure::new(first, error);
        // The driver forgot what the batch waited for: its moments are done when that is.
        let waits = core::mem::take(&mut slot.waits);
        if !waits.is_done(&self.timeline) {
            self.settle_later(lane, first, waits);
        }
        for (entry, writes) in gone {
            self.failed_late(Moment { stream: id, seq: entry.seq }, &writes, &failure);
            if entry.is_read {
                self.complete_read(entry.seq);
            }
        }
        self.complete(lane);
    }
}
