//! Reads under way: the pieces that arrived, and the failures that reached their bytes meanwhile.

use super::DriverServer;
use super::operations::{Go, Label};
use super::tasks::{Task, Uses, use_region};
use crate::driver::Driver;
use alloc::vec::Vec;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::failure::{Failure, Failures};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::Region;
use trunnion_runtime_core::timeline::Moment;

pub(super) struct PendingRead {
    pieces: Vec<Option<Bytes>>,
    at: Moment,
    failures: Failures,
    promise: Promise<Vec<Bytes>>,
}

impl PendingRead {
    /// What is on the bytes is named, not that it came to this read.
    fn taint(&mut self, failure: &Failure) {
        self.failures.add(&failure.before(self.at));
    }

    /// What the promise is given.
    fn result(&mut self) -> Result<Vec<Bytes>> {
        core::mem::take(&mut self.failures).into_result()?;
        let missing = || Error::Driver { call: "read".into(), code: 0, message: "the bytes never came".into() };
        self.pieces.iter_mut().map(|piece| piece.take().ok_or_else(missing)).collect()
    }
}

impl<D: Driver> DriverServer<D> {
    pub(super) fn read_op(&mut self, at: Moment, sources: &[Region], into: Promise<Vec<Bytes>>) {
        if let Some(error) = &self.ended {
            return into.fulfil(Err(error.clone()), &mut self.wakers);
        }
        let mut uses = Uses::new();
        for region in sources {
            use_region(&mut uses, region, Access::Read);
        }
        let mut failures = Failures::new();
        for u in &uses {
            if self.tracker.memory_size(u.memory).is_none() {
                failures.add(&Failure::new(at, Error::StaleHandle { memory: u.memory }));
            }
            self.tracker.check(u.memory, u.range.clone(), &mut failures);
        }
        if !failures.is_empty() || uses.is_empty() {
            let empty = || sources.iter().map(|_| Bytes::from_vec(Vec::new())).collect();
            into.fulfil(failures.into_result().map(|()| empty()), &mut self.wakers);
            return self.pass(at);
        }
        let pieces = sources.iter().map(|region| (region.size() == 0).then(|| Bytes::from_vec(Vec::new()))).collect();
        self.reads.insert(at.seq, PendingRead { pieces, at, failures, promise: into });
        let label = Label { name: self.names.read, text: "read" };
        self.operate(at, label, &uses, Go::Now(Task::Read { sources }));
        // Somebody waits for it.
        if let Some(lane) = self.lanes.find(at.stream) {
            self.submit_up_to(lane, at.seq);
        }
    }

    /// The failures that lie on bytes now.
    pub(super) fn check_bytes(&self, targets: &[Handle]) -> Result<()> {
        if let Some(error) = &self.ended {
            return Err(error.clone());
        }
        let mut failures = Failures::new();
        for target in targets.iter().filter(|target| !target.is_empty()) {
            let memory = target.memory();
            if self.tracker.memory_size(memory).is_none() {
                return Err(Error::StaleHandle { memory });
            }
            self.tracker.check(memory, target.range(), &mut failures);
        }
        failures.into_result()
    }

    /// A piece arrived. For a read that failed meanwhile it is dropped.
    pub(super) fn piece_read(&mut self, seq: u64, index: usize, bytes: HostBuffer) {
        if let Some(piece) = self.reads.get_mut(&seq).and_then(|read| read.pieces.get_mut(index)) {
            *piece = Some(Bytes::from_buffer(bytes));
        }
    }

    /// A failure reached bytes that a read under way is for.
    pub(super) fn taint_read(&mut self, seq: u64, failure: &Failure) {
        if let Some(read) = self.reads.get_mut(&seq) {
            read.taint(failure);
        }
    }

    /// The read, if it is one, will not come to its end.
    #[inline]
    pub(super) fn fail_read(&mut self, seq: u64, failure: &Failure) {
        if let Some(mut read) = self.reads.remove(&seq) {
            read.taint(failure);
            let result = read.result();
            read.promise.fulfil(result, &mut self.wakers);
        }
    }

    /// The stream has finished the read.
    pub(super) fn complete_read(&mut self, seq: u64) {
        if let Some(mut read) = self.reads.remove(&seq) {
            let result = read.result();
            read.promise.fulfil(result, &mut self.wakers);
        }
    }

    /// Answers every read under way.
    pub(super) fn answer_reads(&mut self, error: &Error) {
        for (_, read) in core::mem::take(&mut self.reads) {
            read.promise.fulfil(Err(error.clone()), &mut self.wakers);
        }
    }
}
