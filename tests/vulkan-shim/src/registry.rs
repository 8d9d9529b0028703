//! Which shim a dispatchable handle belongs to: the one thing that is of the process.
//!
//! A driver's handles are unique while they live, so one table a kind suffices for all shims. A handle that was destroyed stays known
//! until it is given out again, so that a call with it is a complaint and not a crash.

use std::sync::{PoisonError, RwLock};

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use ash::vk::Handle;

use crate::state::{CommandState, DeviceState, InstanceState, QueueState, State};

/// Something behind a dispatchable handle.
pub(crate) trait Owned {
    /// The shim it belongs to.
    fn state(&self) -> &State;
}

/// Dispatchable handles of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    rows: RwLock<BTreeMap<u64, Row<T>>>,
}

#[derive(Debug)]
struct Row<T> {
    of: Arc<T>,
    alive: bool,
}

/// Instances.
pub(crate) static INSTANCES: Table<InstanceState> = Table::new();
/// Physical devices, each with its instance.
pub(crate) static PHYSICALS: Table<InstanceState> = Table::new();
/// Devices.
pub(crate) static DEVICES: Table<DeviceState> = Table::new();
/// Queues.
pub(crate) static QUEUES: Table<QueueState> = Table::new();
/// Command buffers.
pub(crate) static COMMANDS: Table<CommandState> = Table::new();

impl<T: Owned> Table<T> {
    const fn new() -> Self {
        Self { rows: RwLock::new(BTreeMap::new()) }
    }

    /// A handle that was given out.
    pub(crate) fn put(&self, handle: impl Handle, of: Arc<T>) {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        rows.insert(handle.as_raw(), Row { of, alive: true });
    }

    /// A handle that is destroyed.
    pub(crate) fn end(&self, handle: impl Handle) {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = rows.get_mut(&handle.as_raw()) {
            row.alive = false;
        }
    }

    /// What is behind a handle. `None`, and a complaint where it is known whose it was, if it is not one that lives.
    pub(crate) fn find<H: Handle + Copy>(&self, handle: H, call: &'static str) -> Option<Arc<T>> {
        let rows = self.rows.read().unwrap_or_else(PoisonError::into_inner);
        let row = rows.get(&handle.as_raw())?;
        if !row.alive {
            row.of.state().complain(format!("{call} with a {:?} that was destroyed", H::TYPE));
            return None;
        }
        Some(Arc::clone(&row.of))
    }
}
