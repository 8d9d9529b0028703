//! The place a blocking call's answer lies in, shared by the caller and the entry that answers.
//!
//! Both own the slot (`Arc`), so that a caller may give up while its entry runs. Slots that came back are kept for the
//! next call: a warm call allocates nothing unless its answer is larger than 256 bytes.
//!
//! `state` decides who may touch what:
//! - `WAITING`: the entry owns `answer`, the caller owns `waiter`;
//! - `PARKED`: the same, and the entry may read `waiter`, which the caller has written once;
//! - `DONE`: the caller owns everything; the entry has let go;
//! - `ABANDONED`: the entry owns everything; the caller has let go, and the slot is not used again.
//!
//! Every change is one compare-exchange (release on giving away, acquire on taking).

#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;

#[cfg(feature = "std")]
use super::atomic::Thread;
#[cfg(loom)]
use super::atomic::Watched;
use super::atomic::{AtomicPtr, AtomicU32, Ordering};
use super::unwind::contain;

const WAITING: u32 = 0;
#[cfg(feature = "std")]
const PARKED: u32 = 1;
const DONE: u32 = 2;
const ABANDONED: u32 = 3;

/// What became of a call.
pub(super) enum Answer<R> {
    Returned(R),
    Panicked(String),
    /// The entry was dropped without running.
    Closed,
}

#[repr(C, align(16))]
struct Storage([u8; 256]);

struct Slot {
    state: AtomicU32,
    #[cfg(feature = "std")]
    waiter: UnsafeCell<Option<Thread>>,
    answer: UnsafeCell<MaybeUninit<Storage>>,
    #[cfg(loom)]
    watched: Watched,
}

// SAFETY: the cells are owned as `state` says; `Reply` and `Waiting` are `Send` only with an answer that is.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

impl Slot {
    fn new() -> Self {
        Self {
            state: AtomicU32::new(WAITING),
            #[cfg(feature = "std")]
            waiter: UnsafeCell::new(None),
            answer: UnsafeCell::new(MaybeUninit::uninit()),
            #[cfg(loom)]
            watched: Watched::new(),
        }
    }

    const fn is_inline<R>() -> bool {
        size_of::<Answer<R>>() <= size_of::<Storage>() && align_of::<Answer<R>>() <= align_of::<Storage>()
    }

    /// # Safety
    /// The caller owns `answer`, and it is empty.
    unsafe fn put<R>(&self, answer: Answer<R>) {
        #[cfg(loom)]
        self.watched.write();
        let storage = self.answer.get();
        if const { Self::is_inline::<R>() } {
            // SAFETY: owned by this function's contract; large and aligned enough by `is_inline`.
            unsafe { storage.cast::<Answer<R>>().write(answer) };
        } else {
            // SAFETY: as above; a pointer fits.
            unsafe { storage.cast::<*mut Answer<R>>().write(Box::into_raw(Box::new(answer))) };
        }
    }

    /// # Safety
    /// The caller owns `answer`, which was put with the same `R` and is empty after this.
    unsafe fn get<R>(&self) -> Answer<R> {
        #[cfg(loom)]
        self.watched.write();
        let storage = self.answer.get();
        if const { Self::is_inline::<R>() } {
            // SAFETY: put there as this type.
            unsafe { storage.cast::<Answer<R>>().read() }
        } else {
            // SAFETY: put there as this pointer, which came from a box.
            *unsafe { Box::from_raw(storage.cast::<*mut Answer<R>>().read()) }
        }
    }

    fn exchange(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// The entry's end of a slot. Dropped without an answer, it answers `Closed`.
pub(super) struct Reply<R> {
    slot: Arc<Slot>,
    given: bool,
    answer: PhantomData<R>,
}

impl<R> Reply<R> {
    /// Runs the call and answers with what it returns, unless the caller has given up. A panic answers and goes on.
    pub(super) fn answer(mut self, call: impl FnOnce() -> R) {
        if self.slot.state.load(Ordering::Acquire) == ABANDONED {
            return;
        }
        match contain(call) {
            Ok(value) => self.give(Answer::Returned(value)),
            Err(panic) => {
                self.give(Answer::Panicked(panic.message()));
                panic.resume();
            }
        }
    }

    fn give(&mut self, answer: Answer<R>) {
        if self.given {
            return;
        }
        self.given = true;
        let slot = &*self.slot;
        // SAFETY: not `DONE` yet, because only this end says so, once; so the answer is this end's, and empty.
        unsafe { slot.put(answer) };
        loop {
            if slot.exchange(WAITING, DONE) {
                return;
            }
            #[cfg(feature = "std")]
            if slot.state.load(Ordering::Acquire) == PARKED {
                // SAFETY: seen `PARKED`, so it was written before, once, and stays until this end lets go.
                let waiter = unsafe { (*slot.waiter.get()).clone() };
                if slot.exchange(PARKED, DONE) {
                    if let Some(waiter) = waiter {
                        waiter.unpark();
                    }
                    return;
                }
            }
            if slot.state.load(Ordering::Acquire) == ABANDONED {
                // SAFETY: the caller has let go; put above with this `R`. A panic in its drop is the entry's.
                drop(unsafe { slot.get::<R>() });
                return;
            }
        }
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        self.give(Answer::Closed);
    }
}

/// The caller's end of a slot. Dropped, it gives up.
pub(super) struct Waiting<'a, R> {
    slots: &'a Slots,
    slot: Option<Arc<Slot>>,
    #[cfg(feature = "std")]
    introduced: bool,
    answer: PhantomData<R>,
}

impl<R> Waiting<'_, R> {
    #[inline]
    pub(super) fn is_answered(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.state.load(Ordering::Acquire) == DONE)
    }

    /// The answer, if there is one; `None` too if it was taken before.
    pub(super) fn take(&mut self) -> Option<Answer<R>> {
        let slot = self.slot.take_if(|slot| slot.state.load(Ordering::Acquire) == DONE)?;
        // SAFETY: `DONE`, so the answer is the caller's; put with this `R`, and taken once because the slot leaves `self`.
        let answer = unsafe { slot.get::<R>() };
        self.slots.give_back(slot);
        Some(answer)
    }

    /// Gives up; the answer, if it came just now.
    pub(super) fn give_up(&mut self) -> Option<Answer<R>> {
        let slot = self.slot.as_ref()?;
        if slot.exchange(WAITING, ABANDONED) {
            self.slot = None;
        }
        self.take()
    }

    /// Sleeps until answered, unparked for another reason, or for `left`.
    #[cfg(feature = "std")]
    pub(super) fn park(&mut self, left: Option<core::time::Duration>) {
        let Some(slot) = self.slot.as_ref() else {
            return;
        };
        if !self.introduced {
            self.introduced = true;
            // SAFETY: never `PARKED` so far in this call, so the waiter is the caller's.
            unsafe { *slot.waiter.get() = Some(super::atomic::current()) };
        }
        if slot.exchange(WAITING, PARKED) {
            match left {
                Some(left) => super::atomic::park_timeout(left),
                None => super::atomic::park(),
            }
            slot.exchange(PARKED, WAITING);
        }
    }
}

impl<R> Drop for Waiting<'_, R> {
    fn drop(&mut self) {
        if let Some(answer) = self.give_up()
            && let Err(panic) = contain(|| drop(answer))
        {
            panic.discard();
        }
    }
}

/// Slots that came back.
pub(super) struct Slots {
    spare: [AtomicPtr<Slot>; Slots::KEPT],
}

impl Slots {
    const KEPT: usize = if cfg!(loom) { 1 } else { 8 };

    pub(super) fn new() -> Self {
        Self { spare: core::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())) }
    }

    /// The two ends of a slot.
    pub(super) fn open<R>(&self) -> (Waiting<'_, R>, Reply<R>) {
        let slot = self.spare().unwrap_or_else(|| Arc::new(Slot::new()));
        let reply = Reply { slot: slot.clone(), given: false, answer: PhantomData };
        let waiting = Waiting {
            slots: self,
            slot: Some(slot),
            #[cfg(feature = "std")]
            introduced: false,
            answer: PhantomData,
        };
        (waiting, reply)
    }

    fn spare(&self) -> Option<Arc<Slot>> {
        for place in &self.spare {
            if place.load(Ordering::Relaxed).is_null() {
                continue;
            }
            let slot = place.swap(ptr::null_mut(), Ordering::Acquire);
            if !slot.is_null() {
                // SAFETY: it came from `Arc::into_raw`, and the swap took it out.
                let slot = unsafe { Arc::from_raw(slot.cast_const()) };
                slot.state.store(WAITING, Ordering::Relaxed);
                return Some(slot);
            }
        }
        None
    }

    /// The slot was `DONE` and its answer taken: the other end has let go.
    fn give_back(&self, slot: Arc<Slot>) {
        let free = self.spare.iter().find(|place| place.load(Ordering::Relaxed).is_null());
        let Some(place) = free else {
            return;
        };
        let before = place.swap(Arc::into_raw(slot).cast_mut(), Ordering::AcqRel);
        if !before.is_null() {
            // SAFETY: it came from `Arc::into_raw`, and the swap took it out. Another caller was faster: one too many.
            drop(unsafe { Arc::from_raw(before.cast_const()) });
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        while self.spare().is_some() {}
    }
}
