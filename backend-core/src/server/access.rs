//! Use of device memory in place, by somebody outside: an operation that begins when it is granted and ends when it is closed.
//!
//! It stands at the head of a stream of its own, parked until it is closed: whoever touches its bytes later is parked behind it, and
//! nobody else is.

use super::DriverServer;
use super::operations::Label;
use super::parking::Parked;
use super::tasks::{Uses, Work, use_handle};
use crate::driver::Driver;
use trunnion_resource_tracker::Verdict;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::failure::{Failure, Failures};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{AccessServer, Grant};
use trunnion_runtime_core::timeline::Moment;

impl<D: Driver> AccessServer for DriverServer<D> {
    fn open(&mut self, at: Moment, target: &Handle, access: Access, granted: Promise<Grant>) {
        if let Some(error) = &self.ended {
            return granted.fulfil(Err(error.clone()), &mut self.wakers);
        }
        let mut uses = Uses::new();
        use_handle(&mut uses, target, access);
        let mut failures = Failures::new();
        if access.reads() {
            uses.iter().for_each(|u| self.tracker.check(u.memory, u.range.clone(), &mut failures));
        }
        let label = Label { name: self.names.access, text: "access" };
        let lane = self.begin(at);
        self.granting = Some(granted.clone());
        let resolved = self.tracker.resolve(at, label.name, &uses, &self.timeline);
        let unplaced = uses.iter().find_map(|u| self.unplaced.get(&u.memory)).cloned();
        if let Verdict::Skip(failure) = resolved.verdict {
            failures.add(&failure);
        } else if let Some(failure) = unplaced {
            failures.add(&failure);
            self.tracker.failed(at, &uses, &failure.through(label.text, at));
        } else {
            let promise = Some(granted.clone());
            let work = Work::Access { target: target.clone(), access, promise };
            self.park(lane, at, &resolved.waits, 0, &uses, work);
            self.stirred = true;
        }
        if let Err(error) = failures.into_result() {
            granted.fulfil(Err(error), &mut self.wakers);
        }
        self.granting = None;
        self.end(lane);
        self.settle();
    }

    fn close(&mut self, at: Moment, failure: Option<Error>) {
        self.granted.retain(|open| *open != at);
        let Some(lane) = self.lanes.find(at.stream) else { return };
        let queue = &mut self.lanes.slots[lane].queue;
        let Ok(i) = queue.binary_search_by_key(&at.seq, |parked| parked.at.seq) else { return };
        let Some(parked) = queue.get_mut(i).filter(|parked| matches!(parked.work, Work::Access { .. })) else { return };
        // From here on it only keeps its place until what it waited for is done.
        if let Work::Access { promise: Some(promise), .. } = core::mem::replace(&mut parked.work, Work::Settle) {
            let closed = Error::Busy { what: "the access was closed before it was granted".into() };
            promise.fulfil(Err(closed), &mut self.wakers);
        }
        if let Some(error) = failure {
            let uses = parked.uses.clone();
            self.failed_late(at, &uses, &Failure::new(at, error));
        }
        self.stirred = true;
        self.settle();
    }
}

impl<D: Driver> DriverServer<D> {
    /// Grants an access once everything it must come after is done.
    pub(super) fn try_grant(&mut self, lane: usize, parked: &mut Parked) {
        let settled = self.is_settled(lane, &parked.waits, &parked.uses);
        if let Some(failure) = self.tainted.take() {
            parked.skip.get_or_insert(failure);
        }
        if !settled || !self.lanes.slots[lane].flight.is_empty() || self.ended.is_some() {
            return;
        }
        let Work::Access { target, access, promise } = &mut parked.work else { return };
        let Some(promise) = promise.take() else { return };
        let grant = match &parked.skip {
            Some(failure) => Err(failure.to_error()),
            None => {
                let grant = self.encode_grant(target, *access);
                self.granted.extend(grant.is_ok().then_some(parked.at));
                grant
            }
        };
        promise.fulfil(grant, &mut self.wakers);
    }

    /// Answers what was put aside and will not be carried out.
    pub(super) fn answer_parked(&mut self, parked: Parked) {
        if let (Work::Access { promise: Some(promise), .. }, Some(error)) = (parked.work, &self.ended) {
            promise.fulfil(Err(error.clone()), &mut self.wakers);
        }
    }
}
