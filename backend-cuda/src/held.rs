//! Who waits on the host for an event of a device that no stream was told to record yet: lanes of the device, which whoever records the event
//! goes on with, and lanes of other devices, whose own threads are called for that.
//!
//! A lane puts itself on the list and looks once more, and whoever changes something about an event looks at the list afterwards: so either the
//! one sees the change, or the other the lane.

use crate::device::Device;
use crate::lane::Lane;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

/// The lanes that wait for events of a device.
#[derive(Default)]
pub(crate) struct Held(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    lanes: Vec<Weak<Lane>>,
    /// Of lanes of other devices, each with a context of its own.
    others: Vec<Arc<Call>>,
}

impl Held {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out the device's own lanes; those of others are called.
    pub(crate) fn take(&self) -> Vec<Weak<Lane>> {
        let lists = mem::take(&mut *self.lists());
        lists.others.iter().for_each(|call| call.make());
        lists.lanes
    }

    /// Calls lanes of others, which can be done wherever something is seen of the device: it locks nothing else.
    pub(crate) fn call_others(&self) {
        let others = mem::take(&mut self.lists().others);
        others.iter().for_each(|call| call.make());
    }

    /// How many of the device's own lanes are on the list.
    #[cfg(test)]
    pub(crate) fn lanes(&self) -> usize {
        self.lists().lanes.len()
    }
}

impl Device {
    /// Puts a lane, which may be of another device, on the list of those that wait for events of this one.
    pub(crate) fn hold(&self, lane: &Arc<Lane>) {
        let mut lists = self.held.lists();
        if core::ptr::eq(self, &*lane.device) {
            if !lists.lanes.iter().any(|known| known.as_ptr() == Arc::as_ptr(lane)) {
                lists.lanes.push(Arc::downgrade(lane));
            }
            return;
        }
        lane.call.await_next();
        if !lists.others.iter().any(|known| Arc::ptr_eq(known, &lane.call)) {
            lists.others.push(lane.call.clone());
        }
    }
}

/// Calls the thread of a lane that waits for an event of another device.
#[derive(Default)]
pub(crate) struct Call(Mutex<Called>);

#[derive(Default)]
struct Called {
    is_made: bool,
    /// The lane's thread, once it has looked.
    thread: Option<Thread>,
}

impl Call {
    fn called(&self) -> MutexGuard<'_, Called> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was called for until now was seen to.
    fn await_next(&self) {
        self.called().is_made = false;
    }

    /// Something may have come of the event.
    fn make(&self) {
        let mut called = self.called();
        called.is_made = true;
        if let Some(thread) = &called.thread {
            thread.unpark();
        }
    }

    /// Whether the lane's thread, which asks, was called. If not, it may sleep: it is woken by the call.
    pub(crate) fn is_made(&self) -> bool {
        let mut called = self.called();
        called.thread.get_or_insert_with(thread::current);
        called.is_made
    }
}
