//! Handles: numbers that stand for what the driver made, never given twice, so that a stale one is recognised.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::RwLock;

use crate::codes::{Code, Outcome};
use crate::sync::{read, write};

/// Handles look like addresses, but begin where no program has memory.
const FIRST: usize = 0x5D0_0000_0000;

const STRIDE: usize = 64;

static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

/// A new handle, of whatever kind.
pub(crate) fn fresh() -> usize {
    NEXT.fetch_add(STRIDE, Ordering::Relaxed)
}

/// Everything of one kind that has a handle.
pub(crate) struct Handles<T>(RwLock<HashMap<usize, Arc<T>>>);

impl<T> Handles<T> {
    pub(crate) fn new() -> Self {
        Self(RwLock::default())
    }

    /// Keeps what was made, under the handle it was made with.
    pub(crate) fn keep(&self, handle: usize, made: Arc<T>) {
        write(&self.0).insert(handle, made);
    }

    /// What a handle stands for; [`Code::INVALID_HANDLE`] if nothing, or nothing any more.
    pub(crate) fn get(&self, handle: usize) -> Outcome<Arc<T>> {
        read(&self.0).get(&handle).cloned().ok_or(Code::INVALID_HANDLE)
    }

    /// Something that has a handle now and is wanted.
    pub(crate) fn find(&self, is_wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        read(&self.0).values().find(|made| is_wanted(made)).cloned()
    }

    /// Ends a handle.
    pub(crate) fn remove(&self, handle: usize) -> Outcome<Arc<T>> {
        write(&self.0).remove(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Everything that has a handle now.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        read(&self.0).values().cloned().collect()
    }
}
