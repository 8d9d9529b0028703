//! Accepting an operation: the tracker resolves it, then it is encoded, parked or refused.

use super::DriverServer;
use super::tasks::{Data, Task, Uses, Work, use_handle, use_region};
use crate::driver::Driver;
use alloc::vec::Vec;
use core::task::Poll;
use trunnion_resource_tracker::{Name, Resolved, Tracker, Use, Verdict};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::failure::Failure;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::server::{Launch, Pattern, Payload, Region, Until};
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

/// Bytes of a dynamic grid: three `u32`.
pub(super) const GRID_BYTES: u64 = 12;

/// What an operation is called, for the tracker and for failures that come through it.
#[derive(Clone, Copy)]
pub(super) struct Label<'a> {
    pub(super) name: Name,
    pub(super) text: &'a str,
}

/// The names of what is no launch.
pub(super) struct Names {
    write: Name,
    pub(super) read: Name,
    copy: Name,
    fill: Name,
    pub(super) access: Name,
}

impl Names {
    pub(super) fn new(tracker: &mut Tracker) -> Self {
        Self {
            write: tracker.name("write"),
            read: tracker.name("read"),
            copy: tracker.name("copy"),
            fill: tracker.name("fill"),
            access: tracker.name("access"),
        }
    }
}

/// What is to happen once the tracker has resolved an operation.
pub(super) enum Go<'a> {
    Now(Task<'a>),
    /// Only when the host has given something.
    Later(Work),
    /// It cannot be carried out.
    Fail(Error),
}

impl<D: Driver> DriverServer<D> {
    pub(super) fn write_op(&mut self, at: Moment, target: &Region, data: Payload<'_>) {
        match data {
            Payload::Bytes(bytes) => self.write_data(at, target, Ok(Data::Bytes(&bytes))),
            Payload::Slice(slice) => self.write_data(at, target, Ok(Data::Slice(slice))),
            Payload::Promised(promise) => match promise.poll(&self.waker) {
                Poll::Ready(given) => {
                    let bytes = given.and_then(|all| first_of(all, target));
                    self.write_data(at, target, bytes.as_ref().map(Data::Bytes).map_err(Error::clone));
                }
                Poll::Pending => {
                    let work = Work::PromisedWrite { target: target.clone(), data: promise };
                    self.write_work(at, target, Go::Later(work));
                }
            },
        }
    }

    fn write_data(&mut self, at: Moment, target: &Region, data: Result<Data<'_>, Error>) {
        let go = match data.and_then(|data| fitting(data.len(), target).map(|()| data)) {
            Ok(data) => Go::Now(Task::Write { target, data }),
            Err(error) => Go::Fail(error),
        };
        self.write_work(at, target, go);
    }

    fn write_work(&mut self, at: Moment, target: &Region, go: Go<'_>) {
        let mut uses = Uses::new();
        use_region(&mut uses, target, Access::Overwrite);
        if uses.is_empty() {
            return self.pass(at);
        }
        self.operate(at, Label { name: self.names.write, text: "write" }, &uses, go);
    }

    pub(super) fn copy_op(&mut self, at: Moment, source: &Region, target: &Region) {
        let mut uses = Uses::new();
        use_region(&mut uses, source, Access::Read);
        if uses.is_empty() {
            return self.pass(at);
        }
        use_region(&mut uses, target, Access::Overwrite);
        let label = Label { name: self.names.copy, text: "copy" };
        self.operate(at, label, &uses, Go::Now(Task::Copy { source, target }));
    }

    pub(super) fn fill_op(&mut self, at: Moment, target: &Handle, pattern: Pattern) {
        let mut uses = Uses::new();
        use_handle(&mut uses, target, Access::Overwrite);
        if uses.is_empty() {
            return self.pass(at);
        }
        let label = Label { name: self.names.fill, text: "fill" };
        self.operate(at, label, &uses, Go::Now(Task::Fill { target, pattern }));
    }

    pub(super) fn launch_op(&mut self, at: Moment, launch: &Launch<'_>) {
        if launch.grid.is_empty() {
            return self.pass(at);
        }
        let mut uses = Uses::new();
        for (buffer, handle) in launch.kernel.interface().buffers.iter().zip(launch.buffers) {
            use_handle(&mut uses, handle, buffer.access);
        }
        if let Grid::Dynamic(counts) = launch.grid {
            let range = counts.range().start..counts.range().start.saturating_add(GRID_BYTES);
            uses.push(Use { memory: counts.memory(), range, access: Access::Read });
        }
        let name = self.code.name(launch.kernel, &mut self.tracker);
        let label = Label { name, text: launch.kernel.name() };
        self.operate(at, label, &uses, Go::Now(Task::Launch(*launch)));
    }

    pub(super) fn wait_op(&mut self, at: Moment, until: Until) {
        match until {
            Until::Moment(mut on) => {
                // What has no number yet cannot be waited for: it may come after this on the same stream.
                on.seq = on.seq.min(at.seq.saturating_sub(1));
                if self.is_past(on) || self.timeline.is_ordered_after(at.stream, on) {
                    return self.pass(at);
                }
                let mut waits = Frontier::new();
                waits.add(on);
                let lane = self.begin(at);
                self.go_after(lane, at, waits);
                self.end(lane);
            }
            Until::Promised(promise) => {
                if promise.poll(&self.waker).is_ready() {
                    return self.pass(at);
                }
                let lane = self.begin(at);
                self.park(lane, at, &Frontier::new(), 0, &[], Work::Promised(promise));
                self.end(lane);
            }
        }
    }

    /// Takes a place in the stream behind `waits`, and does nothing.
    pub(super) fn go_after(&mut self, lane: usize, at: Moment, waits: Frontier) {
        let resolved = Resolved { waits, barrier: false, hazard: 0, verdict: Verdict::Run };
        self.go(lane, at, &resolved, &[], Task::Nothing);
    }

    /// An operation with nothing to do: done when the stream's work before it is.
    pub(super) fn pass(&mut self, at: Moment) {
        let lane = self.begin(at);
        self.end(lane);
    }

    /// The operation's stream; from here on its moment is known.
    #[inline]
    pub(super) fn begin(&mut self, at: Moment) -> usize {
        if self.lanes.is_crowded() {
            let keep = self.lanes.sweep(&mut self.hardware.driver);
            self.timeline.retire_idle(keep);
        }
        let lane = self.lanes.place(at.stream);
        let slot = &mut self.lanes.slots[lane];
        slot.issued = slot.issued.max(at.seq);
        self.timeline.issue(at);
        self.current = Some(at);
        self.tainted = None;
        lane
    }

    /// Nothing of the operation is under way any more.
    #[inline]
    pub(super) fn end(&mut self, lane: usize) {
        self.current = None;
        self.complete(lane);
    }

    /// Carries an operation through: resolved in the order of its number, then encoded, parked or refused.
    pub(super) fn operate(&mut self, at: Moment, label: Label<'_>, uses: &[Use], go: Go<'_>) {
        let lane = self.begin(at);
        let resolved = self.tracker.resolve(at, label.name, uses, &self.timeline);
        if let Verdict::Skip(failure) = &resolved.verdict {
            self.fail_read(at.seq, failure);
        } else if let Some(failure) = self.unplaced_among(uses) {
            self.refuse(at, uses, &failure.through(label.text, at));
        } else {
            match go {
                Go::Now(task) => self.go(lane, at, &resolved, uses, task),
                Go::Later(work) => self.park(lane, at, &resolved.waits, barrier_after(&resolved), uses, work),
                Go::Fail(error) => self.refuse(at, uses, &Failure::new(at, error)),
            }
        }
        self.end(lane);
    }

    /// Encodes a resolved operation, or parks it when something before it, here or on another stream, is parked.
    fn go(&mut self, lane: usize, at: Moment, resolved: &Resolved, uses: &[Use], task: Task<'_>) {
        if let Task::Launch(launch) = &task
            && let Err(error) = self.compiled(launch.kernel, launch.bounds)
        {
            return self.refuse(at, uses, &Failure::new(at, error));
        }
        let hazard = barrier_after(resolved);
        if !self.lanes.slots[lane].queue.is_empty() {
            return self.park(lane, at, &resolved.waits, hazard, uses, task.keep());
        }
        let way = self.way(lane, at, &resolved.waits, uses);
        if self.ended.is_some() {
            return;
        }
        if let Some(failure) = self.tainted.take() {
            return self.refuse(at, uses, &failure);
        }
        let Some(way) = way else { return self.park(lane, at, &resolved.waits, hazard, uses, task.keep()) };
        if way.is_empty() && !resolved.barrier && self.write_at_once(lane, &task) {
            return self.tracker.landed(at);
        }
        match self.enqueue(lane, at, &way, &resolved.waits, hazard, uses, &task) {
            Ok(()) => {
                self.tracker.landed(at);
                self.submit_when_due(lane);
            }
            // Without a stream of the driver a wait is the host's.
            Err(error) if matches!(task, Task::Nothing) && !error.is_device_lost() => {
                self.park(lane, at, &resolved.waits, 0, uses, Work::Settle);
                self.stirred = true;
            }
            Err(error) => {
                self.refuse(at, uses, &Failure::new(at, error.clone()));
                if error.is_device_lost() {
                    return self.lose(error);
                }
                // The stream waits for it by now: nothing on it is done before that is.
                if !resolved.waits.is_empty() {
                    self.settle_later(lane, at, resolved.waits.clone());
                }
            }
        }
    }

    /// The operation, resolved just now, is not carried out.
    pub(super) fn refuse(&mut self, at: Moment, uses: &[Use], failure: &Failure) {
        self.tracker.failed(at, uses, failure);
        self.fail_read(at.seq, failure);
    }

    /// The failure of a reservation whose memory is used here.
    fn unplaced_among(&self, uses: &[Use]) -> Option<Failure> {
        if self.unplaced.is_empty() {
            return None;
        }
        uses.iter().find_map(|u| self.unplaced.get(&u.memory)).cloned()
    }
}

/// The latest operation of the own stream that a barrier must lie after; 0 for none.
fn barrier_after(resolved: &Resolved) -> u64 {
    if resolved.barrier { resolved.hazard } else { 0 }
}

/// The first of the promised bytes, where they are as many as what they are written to.
pub(super) fn first_of(all: Vec<Bytes>, target: &Region) -> Result<Bytes, Error> {
    let none = || Error::WrongLength { what: "promised bytes".into(), got: 0, expected: target.size() };
    let bytes = all.into_iter().next().ok_or_else(none)?;
    fitting(bytes.len(), target).map(|()| bytes)
}

fn fitting(bytes: usize, target: &Region) -> Result<(), Error> {
    let (got, expected) = (bytes as u64, target.size());
    if got == expected { Ok(()) } else { Err(Error::WrongLength { what: "bytes of a write".into(), got, expected }) }
}
