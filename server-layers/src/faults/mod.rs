//! [`FaultInjector`]: a server whose operations fail when a plan says so, as those of a server would that failed there.
//!
//! What an operation that fails would have written is marked by the server inside, which is handed a write of bytes that somebody
//! promised and that never come: so marks, chains and what is skipped are the server's own. A launch that writes several buffers
//! becomes as many writes with its number. What fails late is promised until the next look at the device, what never completes until
//! the end. Of a lost device nothing reaches the server inside but what lets it come to rest.
//!
//! | file | job |
//! |---|---|
//! | `plan.rs` | what is to go wrong, as data and as text |
//! | `record.rs` | what went wrong so far |
//! | `contract.rs` | the `Server` trait, call by call |
//! | `failing.rs` | an operation that fails |
//! | `owed.rs` | promises on their way to whoever waits |
//! | `pace.rs` | completions that are told late and in another order |
//! | `alarm.rs` | who looks when it is time |

mod alarm;
mod contract;
mod failing;
mod foreign;
mod owed;
mod pace;
mod plan;
mod record;

pub use plan::{Fault, FaultKind, FaultPlan};
pub use record::{FaultRecord, Fired};

use crate::operation::Operation;
use alarm::Alarm;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::task::Waker;
use hashbrown::HashMap;
use owed::{Owed, Owing};
use pace::Pace;
use trunnion_runtime_core::bytes::Bytes;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::executor::{Notifier, Wakers};
use trunnion_runtime_core::failure::Failure;
use trunnion_runtime_core::id::{MemoryId, ServiceId};
use trunnion_runtime_core::promise::Promise;
use trunnion_runtime_core::server::{Opened, Server};
use trunnion_runtime_core::timeline::Moment;

/// A server around a server whose operations fail as a [`FaultPlan`] says. See the list of [`FaultKind`] for how.
///
/// Operations are counted from 1 in the order in which they are accepted. A mark or a wait writes nothing: one that finds no memory, is
/// refused or fails late does its work all the same. An operation that the server would skip, since a failure lies on what it reads,
/// is skipped. Memory whose reservation fails is taken from the device until it is freed.
pub struct FaultInjector<S: Server + ?Sized> {
    plan: FaultPlan,
    /// Which of the plan's faults have come.
    fired: Vec<bool>,
    counts: [u64; Operation::ALL.len()],
    record: FaultRecord,
    /// Reservations that failed, and why.
    unplaced: HashMap<MemoryId, Failure>,
    /// What will fail at the next look.
    late: Vec<Late>,
    /// What never completes.
    stuck: Vec<Held>,
    /// Accesses the server inside does not know of.
    unopened: Vec<Moment>,
    /// Accesses that fail as they are closed.
    failing_accesses: Vec<(Moment, Error)>,
    owing: Owing,
    pace: Option<Pace>,
    alarm: Alarm,
    /// Who waits for a moment that is not done.
    waiters: Vec<Waker>,
    lost: Option<Error>,
    /// The memory of a lost device.
    gone: contract::Gone,
    service: Option<ServiceId>,
    notifier: Option<Notifier>,
    /// Rings the notifier.
    ringing: Waker,
    wakers: Wakers,
    /// The panic under way is the plan's.
    panicking: bool,
    inside: Box<S>,
}

/// What holds an operation up inside, until it is given.
enum Held {
    /// The bytes it writes.
    Write(Promise<Vec<Bytes>>),
    /// What its stream waits for.
    Wait(Promise<()>),
}

impl Held {
    fn give(&self, error: &Error, wakers: &mut Wakers) {
        match self {
            Self::Write(promise) => promise.fulfil(Err(error.clone()), wakers),
            // Whatever it is given, the stream goes on.
            Self::Wait(promise) => promise.fulfil(Ok(()), wakers),
        }
    }
}

/// An operation that fails at the next look.
struct Late {
    held: Held,
    /// What its caller waits for, where that is not its bytes.
    owed: Option<Owed>,
    error: Error,
}

impl<S: Server + ?Sized> FaultInjector<S> {
    /// Puts a plan around a server that was not started.
    pub fn new(inside: Box<S>, plan: FaultPlan) -> Self {
        Self {
            fired: plan.faults().iter().map(|_| false).collect(),
            pace: plan.pace().map(Pace::new),
            plan,
            counts: [0; Operation::ALL.len()],
            record: FaultRecord::default(),
            unplaced: HashMap::new(),
            late: Vec::new(),
            stuck: Vec::new(),
            unopened: Vec::new(),
            failing_accesses: Vec::new(),
            owing: Owing::default(),
            alarm: Alarm::new(),
            waiters: Vec::new(),
            lost: None,
            gone: contract::Gone::default(),
            service: None,
            notifier: None,
            ringing: Waker::noop().clone(),
            wakers: Wakers::new(),
            panicking: false,
            inside,
        }
    }

    /// What has gone wrong, to be asked for while the server is in use.
    pub fn record(&self) -> FaultRecord {
        self.record.clone()
    }
}

impl FaultInjector<dyn Server> {
    /// Puts a plan around a server as a backend opened it.
    pub fn around(opened: Opened, plan: FaultPlan) -> (Opened, FaultRecord) {
        let layer = Self::new(opened.server, plan);
        let record = layer.record();
        (Opened { server: Box::new(layer), ..opened }, record)
    }
}

impl<S: Server + ?Sized> fmt::Debug for FaultInjector<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultInjector")
            .field("plan", &self.plan)
            .field("counts", &self.counts)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}
