//! What went wrong so far, for whoever made the plan.

use super::plan::Fault;
use crate::operation::Operation;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use trunnion_runtime_core::timeline::Moment;

/// A fault that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// What the plan says.
    pub fault: Fault,
    /// The operation it came to.
    pub operation: Operation,
    /// When that was issued.
    pub at: Moment,
}

#[derive(Default)]
struct Inner {
    operations: u64,
    fired: Vec<Fired>,
}

/// What a [`FaultInjector`](super::FaultInjector) has seen and done so far. A clone shows the same.
#[derive(Clone, Default)]
pub struct FaultRecord(Arc<spin::Mutex<Inner>>);

impl FaultRecord {
    /// Operations counted, of all names.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// The faults that have come, in order.
    pub fn fired(&self) -> Vec<Fired> {
        self.0.lock().fired.clone()
    }

    pub(super) fn counted(&self, operations: u64) {
        self.0.lock().operations = operations;
    }

    pub(super) fn came(&self, fired: Fired) {
        self.0.lock().fired.push(fired);
    }
}

impl fmt::Debug for FaultRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.0.lock();
        f.debug_struct("FaultRecord").field("operations", &inner.operations).field("fired", &inner.fired).finish()
    }
}
