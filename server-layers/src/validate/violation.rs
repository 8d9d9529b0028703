//! What a breach of the contract is, and where breaches are kept.

use crate::operation::Operation;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::id::{MemoryId, ServiceId};
use trunnion_runtime_core::timeline::Moment;

/// Whose part of the contract it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// Whoever calls the server.
    Caller,
    /// The server.
    Server,
}

/// A breach of the contract of [`Server`](trunnion_runtime_core::server::Server).
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Violation {
    // ---- the caller
    /// `start` came a second time.
    #[error("the server was started a second time")]
    StartedTwice,
    /// Something came before `start`.
    #[error("{operation} before the server was started")]
    NotStarted {
        /// What came.
        operation: Operation,
    },
    /// A number that does not increase.
    #[error("{operation} with number {} of {}, after number {last}", at.seq, at.stream)]
    NotIncreasing {
        /// The operation.
        operation: Operation,
        /// Its moment.
        at: Moment,
        /// The latest number before.
        last: u64,
    },
    /// Memory that was not reserved, or that is free.
    #[error("{operation} at {} uses {memory}, which is {}", at.seq, if *freed { "free" } else { "not reserved" })]
    NotReserved {
        /// The operation.
        operation: Operation,
        /// Its moment.
        at: Moment,
        /// The memory.
        memory: MemoryId,
        /// Whether it was reserved once.
        freed: bool,
    },
    /// Memory that was reserved again without being freed.
    #[error("{memory} was reserved a second time, at {}", at.seq)]
    ReservedTwice {
        /// The moment of the second reservation.
        at: Moment,
        /// The memory.
        memory: MemoryId,
    },
    /// Memory that was freed again.
    #[error("{memory} was freed a second time")]
    FreedTwice {
        /// The memory.
        memory: MemoryId,
    },
    /// A handle of another server.
    #[error("{operation} at {} was given a handle of {got}, the server is {expected}", at.seq)]
    AnotherService {
        /// The operation.
        operation: Operation,
        /// Its moment.
        at: Moment,
        /// Whose handle it is.
        got: ServiceId,
        /// The server of the first handle.
        expected: ServiceId,
    },
    /// Rows that leave their handle.
    #[error("{operation} at {}: rows of {extent} bytes in a handle of {size}", at.seq)]
    OutsideHandle {
        /// The operation.
        operation: Operation,
        /// Its moment.
        at: Moment,
        /// From the first to the last byte of the rows.
        extent: u64,
        /// The bytes of the handle.
        size: u64,
    },
    /// Arguments the caller should have refused, with the error it should have answered.
    #[error("{operation} at {}: {error}", at.seq)]
    BadArguments {
        /// The operation.
        operation: Operation,
        /// Its moment.
        at: Moment,
        /// What is wrong with them.
        error: Error,
    },
    /// An access that is closed and not open.
    #[error("the access at {} is closed and was not open", at.seq)]
    NotOpen {
        /// The access.
        at: Moment,
    },

    // ---- the server
    /// A promise that was not answered when it had to be.
    #[error("the promise of {operation} at {} is not answered, and {when}", at.seq)]
    Unanswered {
        /// What was asked; a signal counts as a mark.
        operation: Operation,
        /// Its moment.
        at: Moment,
        /// What has happened by which it had to be.
        when: &'static str,
    },
    /// A read that brought other bytes than were asked for.
    #[error("the read at {} brought {got:?} bytes, not {expected:?}", at.seq)]
    WrongBytes {
        /// The read.
        at: Moment,
        /// Bytes of each region that came.
        got: Vec<u64>,
        /// Bytes of each region that was asked for.
        expected: Vec<u64>,
    },
    /// A read that brought bytes which carry a failure.
    #[error("the read at {} brought bytes that carry a failure", at.seq)]
    FailureLost {
        /// The read.
        at: Moment,
    },
    /// An operation over bytes that carry a failure, whose outputs carry none.
    #[error("{operation} at {} used bytes that carry a failure, and {memory} carries none after it", at.seq)]
    NotHandedOn {
        /// The operation.
        operation: Operation,
        /// Its moment.
        at: Moment,
        /// An output.
        memory: MemoryId,
    },
    /// A moment that was done and is not any more.
    #[error("number {} of {} is not done, and number {done} was", at.seq, at.stream)]
    Undone {
        /// What was asked for.
        at: Moment,
        /// Up to where the stream was done.
        done: u64,
    },
    /// More is unfinished up to a number than before.
    #[error("{to} operations up to number {up_to} are unfinished, {from} were")]
    UnfinishedRose {
        /// The number.
        up_to: u64,
        /// What was answered before.
        from: usize,
        /// What was answered now.
        to: usize,
    },
    /// A call that answered an error which is not the device's fault, or another one.
    #[error("{call} answers `{error}`; the fault of the device is {fault:?}")]
    NotTheFault {
        /// The call.
        call: &'static str,
        /// What it answered.
        error: Error,
        /// The device's fault, if it has one.
        fault: Option<Error>,
    },
    /// A compilation of several kernels that answered for none, or for more than were given.
    #[error("{answered} answers for {asked} kernels that were to be compiled")]
    CompiledCount {
        /// The kernels given.
        asked: usize,
        /// The answers.
        answered: usize,
    },
    /// A device whose fault is another one than before, or none any more.
    #[error("the fault of the device was `{from}`, and is {to:?}")]
    FaultChanged {
        /// The first one.
        from: Error,
        /// The one now.
        to: Option<Error>,
    },
    /// A moment that is pending although the device has a fault.
    #[error("number {} of {} is pending, and the device has a fault", at.seq, at.stream)]
    PendingAfterFault {
        /// The moment.
        at: Moment,
    },
    /// Two accesses that were granted at the same time, one of which writes bytes of the other.
    #[error("the accesses at {} and {} are granted at the same time, and one writes bytes of the other", first.seq, second.seq)]
    GrantsConflict {
        /// The one granted first.
        first: Moment,
        /// The other.
        second: Moment,
    },
    /// Memory that is in use though everything reserved was freed.
    #[error("{live} bytes are live, and nobody holds any")]
    LiveWithoutHandles {
        /// What the server says.
        live: u64,
    },
    /// A report whose sums are not the usage.
    #[error("the report has {reported} live bytes, the usage {used}")]
    ReportDisagrees {
        /// The report's.
        reported: u64,
        /// The usage's.
        used: u64,
    },
    /// An end that took longer than it was given.
    #[error("the end was given {given:?}, and took {took:?}")]
    EndedLate {
        /// What was given.
        given: Duration,
        /// What it took.
        took: Duration,
    },
}

impl Violation {
    /// Who did not keep the contract.
    pub const fn party(&self) -> Party {
        match self {
            Self::StartedTwice
            | Self::NotStarted { .. }
            | Self::NotIncreasing { .. }
            | Self::NotReserved { .. }
            | Self::ReservedTwice { .. }
            | Self::FreedTwice { .. }
            | Self::AnotherService { .. }
            | Self::OutsideHandle { .. }
            | Self::BadArguments { .. }
            | Self::NotOpen { .. } => Party::Caller,
            _ => Party::Server,
        }
    }
}

#[derive(Default)]
struct Inner {
    kept: Vec<Violation>,
    count: u64,
}

/// The breaches a [`Validate`](super::Validate) has seen so far. A clone shows the same.
#[derive(Clone, Default)]
pub struct Violations(Arc<spin::Mutex<Inner>>);

impl Violations {
    /// How many are kept, and logged; later ones are counted.
    pub const KEPT: usize = 256;

    /// Those that are kept, in the order in which they were seen.
    pub fn all(&self) -> Vec<Violation> {
        self.0.lock().kept.clone()
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.0.lock().count
    }

    pub(super) fn add(&self, violation: Violation) {
        let mut inner = self.0.lock();
        inner.count += 1;
        if inner.kept.len() < Self::KEPT {
            let who = match violation.party() {
                Party::Caller => "caller",
                Party::Server => "server",
            };
            log::error!("the {who} breaks the contract: {violation}");
            inner.kept.push(violation);
        }
    }
}

impl fmt::Debug for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}
