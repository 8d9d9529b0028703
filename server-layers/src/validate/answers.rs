//! What a server must keep: promises are answered in time, what is done stays done, there is one fault.

use super::violation::{Violation, Violations};
use crate::operation::Operation;
use alloc::vec::Vec;
use core::cell::Cell;
use core::task::Poll;
use hashbrown::HashMap;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::id::StreamId;
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::Grant;
use trunnion_runtime_core::timeline::Moment;

/// Streams whose progress is remembered.
const STREAMS: usize = 1024;

/// Answers of `unfinished` that are remembered.
const COUNTS: usize = 8;

enum Promised {
    Read {
        promise: Promise<Vec<Bytes>>,
        sizes: Vec<u64>,
        /// A failure lies on the bytes.
        must_fail: bool,
    },
    Signal(Promise<()>),
}

struct Debt {
    at: Moment,
    promised: Promised,
}

struct Open {
    at: Moment,
    target: Handle,
    access: Access,
    promise: Promise<Grant>,
    is_granted: bool,
}

pub(super) struct Answers {
    violations: Violations,
    debts: Vec<Debt>,
    accesses: Vec<Open>,
    done: HashMap<StreamId, u64>,
    /// What was answered to `unfinished`, by number.
    counts: Cell<[(u64, usize); COUNTS]>,
    next_count: Cell<usize>,
    fault: Option<Error>,
    pub(super) ended: bool,
}

impl Answers {
    pub(super) fn new(violations: Violations) -> Self {
        Self {
            violations,
            debts: Vec::new(),
            accesses: Vec::new(),
            done: HashMap::new(),
            counts: Cell::new([(0, 0); COUNTS]),
            next_count: Cell::new(0),
            fault: None,
            ended: false,
        }
    }

    // ---- promises

    pub(super) fn read(&mut self, at: Moment, promise: Promise<Vec<Bytes>>, sizes: Vec<u64>, must_fail: bool) {
        self.debts.push(Debt { at, promised: Promised::Read { promise, sizes, must_fail } });
    }

    pub(super) fn signal(&mut self, at: Moment, promise: Promise<()>) {
        self.debts.push(Debt { at, promised: Promised::Signal(promise) });
    }

    pub(super) fn open(&mut self, at: Moment, target: &Handle, access: Access, promise: Promise<Grant>) {
        self.accesses.push(Open { at, target: target.clone(), access, promise, is_granted: false });
    }

    pub(super) fn close(&mut self, at: Moment) {
        match self.accesses.iter().position(|open| open.at == at) {
            Some(i) => drop(self.accesses.swap_remove(i)),
            None => self.violations.add(Violation::NotOpen { at }),
        }
    }

    /// Looks at what was answered.
    pub(super) fn look(&mut self) {
        let violations = &self.violations;
        self.debts.retain(|debt| match &debt.promised {
            Promised::Signal(promise) => !promise.is_given(),
            Promised::Read { promise, sizes, must_fail } => match promise.get() {
                None => true,
                Some(Err(_)) => false,
                Some(Ok(bytes)) => {
                    let got: Vec<_> = bytes.iter().map(|bytes| bytes.len() as u64).collect();
                    if got != *sizes {
                        violations.add(Violation::WrongBytes { at: debt.at, got, expected: sizes.clone() });
                    }
                    if *must_fail {
                        violations.add(Violation::FailureLost { at: debt.at });
                    }
                    false
                }
            },
        });
        for i in 0..self.accesses.len() {
            let open = &self.accesses[i];
            if open.is_granted || open.promise.get().is_none_or(|grant| grant.is_err()) {
                continue;
            }
            self.accesses[i].is_granted = true;
            let new = &self.accesses[i];
            let conflicts = |other: &&Open| {
                other.is_granted
                    && other.at != new.at
                    && (other.access.writes() || new.access.writes())
                    && other.target.overlap(&new.target)
            };
            if let Some(other) = self.accesses.iter().find(conflicts) {
                self.violations.add(Violation::GrantsConflict { first: other.at, second: new.at });
            }
        }
    }

    /// Whatever of this is not answered had to be.
    fn must_be_answered(&mut self, when: &'static str, of: impl Fn(Moment) -> bool) {
        self.look();
        let violations = &self.violations;
        self.debts.retain(|debt| {
            let due = of(debt.at);
            if due {
                let operation = match debt.promised {
                    Promised::Read { .. } => Operation::Read,
                    Promised::Signal(_) => Operation::Mark,
                };
                violations.add(Violation::Unanswered { operation, at: debt.at, when });
            }
            !due
        });
        self.accesses.retain(|open| {
            let due = of(open.at) && !open.promise.is_given();
            if due {
                violations.add(Violation::Unanswered { operation: Operation::Access, at: open.at, when });
            }
            !due
        });
    }

    // ---- moments

    /// What `poll` answered; `last` is the latest number accepted.
    pub(super) fn polled(&mut self, at: Moment, last: u64, fault: Option<&Error>, answer: &Poll<Result<()>>) {
        match answer {
            Poll::Ready(Ok(())) => {
                self.must_be_answered("its moment is done", |of| of.stream == at.stream && of.seq <= at.seq);
                if self.done.len() >= STREAMS && !self.done.contains_key(&at.stream) {
                    self.done.clear();
                }
                // What has no number yet is not done by this.
                let done = self.done.entry(at.stream).or_insert(0);
                *done = at.seq.min(last).max(*done);
            }
            Poll::Ready(Err(error)) => self.must_be_fault("poll", error, fault),
            Poll::Pending => {
                if fault.is_some() {
                    self.violations.add(Violation::PendingAfterFault { at });
                }
                if let Some(done) = self.done.get(&at.stream).filter(|done| at.seq <= **done) {
                    self.violations.add(Violation::Undone { at, done: *done });
                }
            }
        }
    }

    /// What `unfinished` answered; `last` is the latest number accepted.
    pub(super) fn unfinished(&self, up_to: u64, last: u64, to: usize) {
        if up_to > last || up_to == 0 {
            return;
        }
        let mut counts = self.counts.get();
        let place = counts.iter().position(|(number, _)| *number == up_to).unwrap_or_else(|| {
            let place = self.next_count.get() % COUNTS;
            self.next_count.set(place + 1);
            counts[place] = (up_to, to);
            place
        });
        let from = counts[place].1;
        if to > from {
            self.violations.add(Violation::UnfinishedRose { up_to, from, to });
        }
        counts[place].1 = to;
        self.counts.set(counts);
    }

    // ---- the fault

    /// An error of a call that answers the device's fault and nothing else.
    pub(super) fn must_be_fault(&self, call: &'static str, error: &Error, fault: Option<&Error>) {
        let is_fault = match fault {
            Some(fault) => fault == error,
            None => self.ended,
        };
        if !is_fault {
            let (error, fault) = (error.clone(), fault.cloned());
            self.violations.add(Violation::NotTheFault { call, error, fault });
        }
    }

    /// The device is about to be released.
    pub(super) fn leave(&mut self, fault: Option<&Error>) {
        self.look();
        match (&self.fault, fault) {
            (None, None) => {}
            (None, Some(fault)) => {
                self.fault = Some(fault.clone());
                self.must_be_answered("the device has a fault", |_| true);
            }
            (Some(from), to) if Some(from) != to => {
                self.violations.add(Violation::FaultChanged { from: from.clone(), to: to.cloned() });
                self.fault = to.cloned();
            }
            _ if self.debts.is_empty() => {}
            _ => self.must_be_answered("the device has a fault", |_| true),
        }
    }

    /// The server has ended.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.must_be_answered("the server has ended", |_| true);
    }
}
