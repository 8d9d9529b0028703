//! The resident's lock: taken or not, never waited for, with a note for its holder that somebody came by.
//!
//! Waiting is left to who waits, because everybody waits for something else. A passer-by that finds the lock taken may
//! leave a note ([`Guarded::note`]); the holder learns of it as it releases, and sees to what was queued meanwhile.
//! The note and the release are read-modify-writes of one word, so one of the two always sees the other.
//!
//! Invariant the unsafe code rests on: a [`Held`] exists only between a successful exchange of `FREE` (or a lone note)
//! for `HELD` with acquire, and its swap back to `FREE` with release. So there is at most one.

#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use super::atomic::{AtomicU32, AtomicUsize, Line, Ordering};
use crate::platform::ThreadToken;

const FREE: u32 = 0;
const HELD: u32 = 1;
const NOTED: u32 = 2;

pub(super) struct Guarded<S> {
    /// Apart from the value, which the holder writes all the time: who waits looks at this.
    lock: Line<Lock>,
    value: Line<UnsafeCell<S>>,
}

struct Lock {
    word: AtomicU32,
    /// The holder's token, folded into a word; 0 where there is none. Written by the holder only.
    holder: AtomicUsize,
}

// SAFETY: the value is reached through the one `Held` there is at a time, on whichever thread has it.
unsafe impl<S: Send> Sync for Guarded<S> {}

/// A thread's token in a word, never 0. On 32-bit targets the halves are folded: exact for the first 2^32 threads.
pub(super) fn word_of(token: ThreadToken) -> usize {
    let number = token.get().get();
    if usize::BITS >= 64 { number as usize } else { ((number ^ (number >> 32)) as usize).max(1) }
}

impl<S> Guarded<S> {
    pub(super) fn new(value: S) -> Self {
        Self {
            lock: Line(Lock { word: AtomicU32::new(FREE), holder: AtomicUsize::new(0) }),
            value: Line(UnsafeCell::new(value)),
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(super) fn try_enter(&self, me: usize) -> Option<Held<'_, S>> {
        if self.lock.0.word.load(Ordering::Relaxed) != FREE {
            return None;
        }
        self.lock.0.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
        self.lock.0.holder.store(me, Ordering::Relaxed);
        Some(Held { guarded: self })
    }

    /// Leaves a note for the holder; `false` where the lock is free, and can be taken instead.
    pub(super) fn note(&self) -> bool {
        let mut word = self.lock.0.word.load(Ordering::Relaxed);
        while word != FREE {
            match self.lock.0.word.compare_exchange_weak(word, HELD | NOTED, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.lock.0.word.load(Ordering::Relaxed) == FREE
    }

    /// The calling thread, whose token this is, holds the lock: it is inside an entry.
    #[inline]
    pub(super) fn is_held_by(&self, me: usize) -> bool {
        self.lock.0.holder.load(Ordering::Relaxed) == me
    }
}

pub(super) struct Held<'a, S> {
    guarded: &'a Guarded<S>,
}

impl<S> Held<'_, S> {
    /// Releases the lock; `true` where somebody left a note.
    #[inline]
    pub(super) fn release(self) -> bool {
        let noted = self.unlock();
        core::mem::forget(self);
        noted
    }

    #[inline]
    fn unlock(&self) -> bool {
        self.guarded.lock.0.holder.store(0, Ordering::Relaxed);
        self.guarded.lock.0.word.swap(FREE, Ordering::AcqRel) & NOTED != 0
    }
}

impl<S> Drop for Held<'_, S> {
    fn drop(&mut self) {
        self.unlock();
    }
}

impl<S> Deref for Held<'_, S> {
    type Target = S;

    #[inline]
    fn deref(&self) -> &S {
        // SAFETY: this is the one `Held` there is.
        unsafe { &*self.guarded.value.0.get() }
    }
}

impl<S> DerefMut for Held<'_, S> {
    #[inline]
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: this is the one `Held` there is, borrowed mutably.
        unsafe { &mut *self.guarded.value.0.get() }
    }
}
