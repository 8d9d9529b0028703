//! Running entries under the lock, and admission to the ring: what every way into the executor shares.
//!
//! Invariant the unsafe code rests on: `state.consumer` and `ring` are made together in [`Shared::new`] and never parted.

#![allow(unsafe_code)]

use alloc::sync::Arc;
use core::time::Duration;

use super::atomic::{AtomicBool, AtomicUsize, Ordering};
use super::bell::{ABANDON, Bell, NOTIFIED};
use super::config::{Config, Execution};
use super::error::{CallError, StartError, SubmitError};
use super::guarded::{Guarded, Held, word_of};
use super::reservation::Desk;
use super::resident::{Resident, Wakers};
use super::ring::{Admit, Claim, Consumer, Refusal, Ring};
use super::slot::Slots;
use super::unwind::{Panic, contain};
use crate::platform::{Backoff, Deadline, ThreadToken};

/// How many bytes of entries are run before the resident may have wakers woken, and a helper looks at its deadline.
const BATCH: u64 = 16 << 10;

/// How long a caller that would rather run something itself waits for the lock: about what it costs to have it run.
const MOMENTS: Duration = Duration::from_micros(2);

/// What the lock guards.
pub(super) struct State<T> {
    resident: T,
    consumer: Consumer<T>,
    /// The thread that ran entries last.
    last: usize,
    ended: bool,
}

pub(super) struct Shared<T: Resident> {
    pub(super) ring: Ring<T>,
    pub(super) state: Guarded<State<T>>,
    pub(super) bell: Arc<Bell>,
    pub(super) desk: Desk,
    pub(super) slots: Slots,
    pub(super) has_runner: bool,
    pub(super) spin: Duration,
    full_timeout: Duration,
    /// No entry runs any more: everything has been run, or dropped.
    ended: AtomicBool,
    /// How many entries were dropped unrun.
    abandoned: AtomicUsize,
    #[cfg(feature = "std")]
    pub(super) runner: super::runner::Runner,
}

/// How long a submitter waits for room, or for the end of a reservation.
#[derive(Clone, Copy)]
pub(super) enum Patience<'a> {
    /// Not at all, nor does it run entries: the caller may be an interrupt handler.
    None,
    /// As configured, counted from when the wait begins.
    Configured,
    /// Until then.
    Until(&'a Deadline),
    /// A blocking caller's own; it runs its entry itself.
    Caller(&'a Deadline),
}

impl<T: Resident> Shared<T> {
    pub(super) fn new(resident: T, config: &Config) -> Result<Self, StartError> {
        if config.ring_bytes > Config::MAX_RING_BYTES {
            return Err(StartError::RingTooLarge { asked: config.ring_bytes, limit: Config::MAX_RING_BYTES });
        }
        let bytes = config.ring_bytes.max(Config::MIN_RING_BYTES).next_power_of_two();
        Self::with_ring(resident, config, bytes)
    }

    pub(super) fn with_ring(resident: T, config: &Config, bytes: usize) -> Result<Self, StartError> {
        let (ring, consumer) = Ring::new(bytes).ok_or(StartError::OutOfMemory { bytes })?;
        let has_runner = config.execution == Execution::Runner;
        if !has_runner {
            ring.sleep_for_good();
        }
        Ok(Self {
            ring,
            state: Guarded::new(State { resident, consumer, last: 0, ended: false }),
            bell: Arc::new(Bell::new()),
            desk: Desk::new(),
            slots: Slots::new(),
            has_runner,
            spin: config.spin,
            full_timeout: config.full_timeout,
            ended: AtomicBool::new(false),
            abandoned: AtomicUsize::new(0),
            #[cfg(feature = "std")]
            runner: super::runner::Runner::new(),
        })
    }

    /// Puts an entry that fits into the ring; its ticket.
    #[inline(always)]
    pub(super) fn push<F>(&self, make: impl FnOnce() -> F, patience: Patience<'_>) -> Result<u64, SubmitError>
    where
        F: FnOnce(&mut T, u64) + Send + 'static,
    {
        let length = const { Ring::<T>::length::<F>() };
        let claim = match self.ring.try_claim(length) {
            Some(claim) => claim,
            None => self.admit(length, patience)?,
        };
        let ticket = self.ring.ticket(&claim);
        let wake = claim.wake;
        // SAFETY: the claim is of this length; every caller asks `fits` first.
        unsafe { self.ring.publish(claim, make) };
        if wake {
            self.awaken();
        }
        Ok(ticket)
    }

    /// A claim where there is something to see to first: a flag, the end of a lap, a full ring, another producer.
    #[cold]
    #[inline(never)]
    fn admit(&self, length: usize, patience: Patience<'_>) -> Result<Claim, SubmitError> {
        let keep_sleeping = !self.has_runner || matches!(patience, Patience::Caller(_));
        match self.ring.claim(length, Admit { reserved: false, keep_sleeping }) {
            Ok(claim) => return Ok(self.for_inline(claim, patience)),
            Err(Refusal::Closed) => return Err(SubmitError::Closed),
            Err(Refusal::Full | Refusal::Reserved) => {}
        }
        let me = word_of(ThreadToken::current());
        let own;
        let deadline = match patience {
            Patience::None => None,
            Patience::Configured => {
                own = Deadline::after(self.full_timeout);
                Some(&own)
            }
            Patience::Until(deadline) | Patience::Caller(deadline) => Some(deadline),
        };
        let mut backoff = Backoff::default();
        loop {
            // Who runs entries acts for the reservation's owner, or for what came before it.
            let inside = self.state.is_held_by(me);
            let reserved = inside || self.desk.is_owned_by(me);
            let refusal = match self.ring.claim(length, Admit { reserved, keep_sleeping }) {
                Ok(claim) => return Ok(self.for_inline(claim, patience)),
                Err(Refusal::Closed) => return Err(SubmitError::Closed),
                Err(refusal) => refusal,
            };
            let Some(deadline) = deadline.filter(|_| !inside) else {
                return Err(SubmitError::Busy);
            };
            if deadline.expired() {
                return Err(SubmitError::Busy);
            }
            if refusal == Refusal::Reserved {
                self.desk.wait(&self.ring, deadline);
            } else if !self.help(me, u64::MAX) {
                self.awaken_runner();
                backoff.wait();
            }
        }
    }

    /// Where there is no runner every submitter is told to run entries, unless it will anyway, or must not.
    fn for_inline(&self, mut claim: Claim, patience: Patience<'_>) -> Claim {
        if !self.has_runner {
            claim.wake = matches!(patience, Patience::Configured | Patience::Until(_));
        }
        claim
    }

    /// The sleeping flag was seen: has what is queued run.
    #[cold]
    #[inline(never)]
    fn awaken(&self) {
        if self.has_runner {
            self.bell.rouse();
        } else {
            self.drain(word_of(ThreadToken::current()));
        }
    }

    /// Wakes the runner if it sleeps.
    pub(super) fn awaken_runner(&self) {
        if self.has_runner && self.ring.is_sleeping() && self.ring.end_sleep() {
            self.bell.rouse();
        }
    }

    /// Runs what is queued, if the lock is free; leaves a note otherwise, so that its holder does.
    pub(super) fn drain(&self, me: usize) {
        loop {
            let Some(held) = self.state.try_enter(me) else {
                if self.state.note() {
                    return;
                }
                continue;
            };
            if !self.work(held, me, u64::MAX) || self.leave_to_runner() {
                return;
            }
        }
    }

    /// Runs a batch, up to the position `until`, if the lock is free; whether an entry was run.
    pub(super) fn help(&self, me: usize, until: u64) -> bool {
        let Some(held) = self.state.try_enter(me) else {
            return false;
        };
        let from = held.consumer.position();
        let until = until.min(from.saturating_add(BATCH));
        let ready = self.ring.is_ready();
        if self.work(held, me, until) {
            self.answer_note(me);
        }
        ready
    }

    /// Runs this on the resident here, after what is queued, if the lock is to be had within moments; `None` otherwise.
    pub(super) fn try_run<R>(&self, run: impl FnOnce(&mut T, u64) -> R) -> Option<Result<R, CallError>> {
        let me = word_of(ThreadToken::current());
        let mut held = self.state.try_enter(me).or_else(|| {
            (!self.state.is_held_by(me) && self.spin_until(MOMENTS, || self.state.is_free())).then_some(())?;
            self.state.try_enter(me)
        })?;
        let state = &mut *held;
        state.enter(me);
        if self.ring.is_ready() || !self.bell.is_quiet() {
            self.run_batch(state, u64::MAX);
        }
        let result = state.consumer.take_turn(&self.ring, self.desk.is_owned_by(me)).map(|ticket| {
            let result = contain(|| run(&mut state.resident, ticket)).map_err(|panic| {
                let message = panic.message();
                state.report(ticket, panic);
                CallError::Panicked { message }
            });
            state.consumer.end_turn(&self.ring);
            result
        });
        let mut wakers = Wakers::new();
        state.tell(|resident| wakers = resident.leave());
        if self.release(held, wakers) {
            self.answer_note(me);
        }
        result
    }

    /// Somebody came by while the lock was held: sees to it that what they queued is run.
    fn answer_note(&self, me: usize) {
        if !self.leave_to_runner() {
            self.drain(me);
        }
    }

    /// Leaves a note's answer to the runner, which may be who left it; `false` where there is none, or none for long.
    fn leave_to_runner(&self) -> bool {
        if self.has_runner && !self.lull_runner() {
            self.ring.end_sleep();
            self.bell.rouse();
        }
        self.has_runner && !self.has_ended()
    }

    /// Where it was the runner that came by and there is nothing for it to do, it is as good as asleep: whoever queues next wakes it.
    #[cfg(feature = "std")]
    fn lull_runner(&self) -> bool {
        self.ring.try_sleep() == super::ring::Sleep::Asleep && self.bell.is_quiet()
    }

    #[cfg(not(feature = "std"))]
    fn lull_runner(&self) -> bool {
        false
    }

    /// Runs entries up to the position `until` and releases the lock; `true` where a note was left meanwhile.
    #[must_use]
    pub(super) fn work(&self, mut held: Held<'_, State<T>>, me: usize, until: u64) -> bool {
        let state = &mut *held;
        state.enter(me);
        let mut wakers = Wakers::new();
        loop {
            self.run_batch(state, until);
            state.tell(|resident| wakers = resident.leave());
            // With nobody to wake the lock is kept while there is work: handing it over costs more than a batch.
            if !wakers.is_empty() || state.consumer.position() >= until || !self.ring.is_ready() {
                break;
            }
        }
        self.release(held, wakers)
    }

    /// Releases the lock, after the end where that has come, and wakes; `true` where a note was left meanwhile.
    fn release(&self, mut held: Held<'_, State<T>>, mut wakers: Wakers) -> bool {
        if self.ring.is_closed() && self.ring.is_empty() {
            self.end(&mut held);
            // What the end answered is to be woken too.
            held.tell(|resident| wakers.extend(resident.leave()));
        }
        let noted = held.release();
        for waker in wakers {
            if let Err(panic) = contain(|| waker.wake()) {
                log::error!("a waker panicked: {}", panic.message());
                panic.discard();
            }
        }
        noted
    }

    fn run_batch(&self, state: &mut State<T>, until: u64) {
        let until = until.min(state.consumer.position() + BATCH);
        loop {
            if !self.bell.is_quiet() {
                self.attend(state);
            }
            match contain(|| state.run(&self.ring, &self.bell, until)) {
                Ok(()) if self.bell.is_quiet() || state.ended => return,
                Ok(()) => {}
                Err(panic) => {
                    let ticket = state.consumer.ticket();
                    state.consumer.retire(&self.ring);
                    state.report(ticket, panic);
                }
            }
        }
    }

    fn attend(&self, state: &mut State<T>) {
        let bits = self.bell.answer();
        if bits & ABANDON != 0 {
            self.end(state);
        } else if bits & NOTIFIED != 0 {
            state.tell(Resident::progress);
        }
    }

    /// The end: tells the resident once, and drops what is queued.
    fn end(&self, state: &mut State<T>) {
        if !state.ended {
            state.ended = true;
            state.tell(Resident::closing);
        }
        let dropped = state.drop_queued(&self.ring);
        self.abandoned.fetch_add(dropped, Ordering::Relaxed);
        self.ended.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// How many entries were dropped unrun.
    pub(super) fn abandoned(&self) -> usize {
        self.abandoned.load(Ordering::Relaxed)
    }
}

impl<T: Resident> State<T> {
    /// The thread that runs what follows.
    #[inline]
    fn enter(&mut self, me: usize) {
        if self.last != me {
            self.last = me;
            self.tell(Resident::enter);
        }
    }

    /// Runs published entries until `until`, or until the bell rings.
    #[inline]
    fn run(&mut self, ring: &Ring<T>, bell: &Bell, until: u64) {
        while self.consumer.position() < until && bell.is_quiet() {
            // SAFETY: the ring is this consumer's, by the invariant above.
            if !unsafe { self.consumer.run(ring, Some(&mut self.resident)) } {
                return;
            }
        }
    }

    fn drop_queued(&mut self, ring: &Ring<T>) -> usize {
        let mut dropped = 0;
        loop {
            // SAFETY: the ring is this consumer's, by the invariant above.
            match contain(|| unsafe { self.consumer.run(ring, None) }) {
                Ok(true) => {}
                Ok(false) => return dropped,
                Err(panic) => {
                    panic.discard();
                    self.consumer.retire(ring);
                }
            }
            dropped += 1;
        }
    }

    /// Calls a method of the resident; its panic is reported with ticket 0.
    fn tell(&mut self, call: impl FnOnce(&mut T)) {
        if let Err(panic) = contain(|| call(&mut self.resident)) {
            self.report(0, panic);
        }
    }

    #[cold]
    fn report(&mut self, ticket: u64, panic: Panic) {
        let message = panic.message();
        panic.discard();
        if let Err(again) = contain(|| self.resident.panicked(ticket, &message)) {
            log::error!("the report of a panic panicked: {}", again.message());
            again.discard();
        }
    }
}
