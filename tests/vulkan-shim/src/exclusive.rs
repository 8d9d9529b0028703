//! Objects that only one thread may use at a time, and who uses them.

use std::sync::Mutex;
use std::thread::{self, ThreadId};

use alloc::collections::BTreeMap;
use alloc::format;
use ash::vk::Handle;

use crate::state::{State, locked};

/// Who is inside a call that must have the object to itself.
#[derive(Debug, Default)]
pub(crate) struct Busy(Mutex<BTreeMap<Key, (ThreadId, &'static str)>>);

/// An object's kind and handle.
type Key = (i32, u64);

/// Has an object to itself until it is dropped.
pub(crate) struct Exclusive<'a> {
    state: &'a State,
    key: Option<Key>,
}

impl<'a> Exclusive<'a> {
    /// Takes an object for a call, and complains where another thread is inside a call with it.
    pub(crate) fn enter<H: Handle + Copy>(state: &'a State, handle: H, call: &'static str) -> Self {
        if handle.is_null() {
            return Self { state, key: None };
        }
        let key = (H::TYPE.as_raw(), handle.as_raw());
        let me = thread::current().id();
        let other = {
            let mut busy = locked(&state.busy.0);
            let other = busy.get(&key).copied();
            if other.is_none() {
                busy.insert(key, (me, call));
            }
            other
        };
        let key = match other {
            None => Some(key),
            // A call within a call of one's own: the outer one gives it back.
            Some((thread, _)) if thread == me => None,
            Some((_, inside)) => {
                state.complain(format!("{call} while another thread is in {inside}, both with the same {:?}", H::TYPE));
                None
            }
        };
        if !state.plan.linger.is_zero() {
            thread::sleep(state.plan.linger);
        }
        Self { state, key }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            locked(&self.state.busy.0).remove(&key);
        }
    }
}
