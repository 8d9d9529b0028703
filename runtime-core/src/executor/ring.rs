//! The byte ring: entries of any size lie in it inline, many producers claim room, one consumer runs them in place.
//!
//! The ring is `size` bytes (a power of two) in units of 64. Positions count bytes and never go back; their low six
//! bits are free, and the tail word keeps its flags there. On 32-bit targets a position is the low half of a 64-bit
//! one, which [`Ring::widen`] restores from the consumer's laps.
//!
//! Invariants the unsafe code rests on:
//! 1. Bytes between `head` and `tail` belong to whoever claimed them until that record's mark is stored (release);
//!    from then on to the consumer, until it advances `head` (release). Nobody touches bytes outside.
//! 2. A claim succeeds only if it ends at most `size` after a value `head` had at some time, read with acquire.
//! 3. A mark is non-zero only at the first unit of a published record, and says how long that is. The consumer clears it.
//! 4. A record never wraps: a claim that would takes the rest of the lap as padding too, and publishes that.
//! 5. There is one consumer at a time: [`Consumer`] is not `Clone`, is made once with its ring, and lies under the resident's lock.

#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::{MaybeUninit, size_of};

#[cfg(loom)]
use super::atomic::Watched;
use super::atomic::{AtomicU32, AtomicUsize, Line, Ordering};

/// The grain of the ring, and the largest alignment an entry may have inline.
const UNIT: usize = 64;
const FLAGS: usize = UNIT - 1;
/// The runner sleeps; who clears this wakes it. Always set where there is no runner: who sees it runs entries itself.
const SLEEPING: usize = 1;
/// One thread has the device to itself.
const RESERVED: usize = 2;
/// Nothing more is taken.
const CLOSED: usize = 4;

/// Low bits of a mark: a record to run, or padding at the end of a lap. The rest is the length in units.
const ENTRY: u32 = 1;
const PADDING: u32 = 3;
const KIND_BITS: u32 = 2;

/// Runs the entry at this address on the resident, or only drops it. Either way the record's bytes are free after it.
type Run<T> = unsafe fn(*mut u8, Option<&mut T>, u64);

#[repr(C)]
struct Record<T, F> {
    run: Run<T>,
    entry: F,
}

#[repr(C, align(64))]
struct Unit([u8; UNIT]);

struct Tail {
    word: AtomicUsize,
    /// A value `head` had: spares producers the consumer's cache line until the ring looks full.
    seen: AtomicUsize,
}

struct Head {
    position: AtomicUsize,
    /// Position / 2^31, on targets whose words are too small for positions.
    laps: AtomicUsize,
}

pub(super) struct Ring<T> {
    size: usize,
    marks: Box<[AtomicU32]>,
    bytes: Box<[UnsafeCell<MaybeUninit<Unit>>]>,
    #[cfg(loom)]
    watched: Box<[Watched]>,
    tail: Line<Tail>,
    head: Line<Head>,
    entries: PhantomData<fn(&mut T)>,
}

// SAFETY: what lies in the ring are entries, which are `Send` (bound of `publish`), and invariant 1 gives every byte one owner at a time.
unsafe impl<T> Send for Ring<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Ring<T> {}

/// Room for one record, to be published at once: what comes after it waits.
#[must_use]
pub(super) struct Claim {
    position: usize,
    /// The claim cleared the sleeping flag (or there is no runner): wake who runs entries, after publishing.
    pub(super) wake: bool,
}

/// How a claim treats the flags.
#[derive(Clone, Copy)]
pub(super) struct Admit {
    /// The claimer is the reservation's owner, or runs entries for it.
    pub(super) reserved: bool,
    /// The claimer runs its entry itself: the runner may sleep on.
    pub(super) keep_sleeping: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    Reserved,
    Closed,
}

/// What became of the runner's wish to sleep.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleep {
    /// The flag is set: whoever clears it unparks the runner.
    Asleep,
    /// Something is claimed and not run yet.
    Outstanding,
    /// The executor is being shut down.
    Closed,
}

/// A claim whose entry is being built: padding, if that panics.
struct Unmade<'a, T> {
    ring: &'a Ring<T>,
    position: usize,
    length: usize,
}

impl<T> Drop for Unmade<'_, T> {
    fn drop(&mut self) {
        let mark = ((self.length / UNIT) as u32) << KIND_BITS | PADDING;
        self.ring.mark(self.position).store(mark, Ordering::Release);
    }
}

impl<T> Ring<T> {
    /// A ring of `size` bytes, a power of two of at least four units; `None` where there is no memory for it.
    pub(super) fn new(size: usize) -> Option<(Self, Consumer<T>)> {
        debug_assert!(size.is_power_of_two() && size >= 4 * UNIT);
        let units = size / UNIT;
        let mut bytes: Vec<UnsafeCell<MaybeUninit<Unit>>> = Vec::new();
        bytes.try_reserve_exact(units).ok()?;
        // SAFETY: the capacity is reserved, and uninitialised memory is a valid `MaybeUninit`. Not writing it keeps unused pages unmapped.
        unsafe { bytes.set_len(units) };
        let mut marks = Vec::new();
        marks.try_reserve_exact(units).ok()?;
        marks.extend((0..units).map(|_| AtomicU32::new(0)));
        let ring = Self {
            size,
            marks: marks.into_boxed_slice(),
            bytes: bytes.into_boxed_slice(),
            #[cfg(loom)]
            watched: (0..units).map(|_| Watched::new()).collect(),
            tail: Line(Tail { word: AtomicUsize::new(0), seen: AtomicUsize::new(0) }),
            head: Line(Head { position: AtomicUsize::new(0), laps: AtomicUsize::new(0) }),
            entries: PhantomData,
        };
        Some((ring, Consumer { head: 0, entries: PhantomData }))
    }

    /// What a record with entry `F` takes of the ring.
    pub(super) const fn length<F>() -> usize {
        size_of::<Record<T, F>>().next_multiple_of(UNIT)
    }

    /// Whether entries of type `F` lie in the ring inline.
    #[inline]
    pub(super) fn fits<F>(&self) -> bool {
        // The first comparison is constant for most entries, so that the ring's size is not even loaded.
        align_of::<Record<T, F>>() <= UNIT
            && (Self::length::<F>() <= super::Config::MIN_RING_BYTES / 4 && cfg!(not(loom))
                || Self::length::<F>() <= self.size / 4)
    }

    /// Claims `length` bytes if no flag is up, the record fits in this lap, and the ring did not look full lately.
    #[inline]
    pub(super) fn try_claim(&self, length: usize) -> Option<Claim> {
        let tail = self.tail.0.word.load(Ordering::Relaxed);
        let seen = self.tail.0.seen.load(Ordering::Acquire);
        let offset = tail & (self.size - 1);
        if tail & FLAGS != 0 || self.size - offset < length || tail.wrapping_sub(seen) > self.size - length {
            return None;
        }
        self.tail.0.word.compare_exchange(tail, tail.wrapping_add(length), Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(Claim { position: tail, wake: false })
    }

    /// Claims `length` bytes, whatever it takes except waiting.
    pub(super) fn claim(&self, length: usize, admit: Admit) -> Result<Claim, Refusal> {
        let mut tail = self.tail.0.word.load(Ordering::Relaxed);
        loop {
            if tail & CLOSED != 0 {
                return Err(Refusal::Closed);
            }
            if tail & RESERVED != 0 && !admit.reserved {
                return Err(Refusal::Reserved);
            }
            let position = tail & !FLAGS;
            let lap_left = self.size - (position & (self.size - 1));
            let padding = if lap_left < length { lap_left } else { 0 };
            let need = padding + length;
            if position.wrapping_sub(self.tail.0.seen.load(Ordering::Acquire)) > self.size - need {
                let head = self.head.0.position.load(Ordering::Acquire);
                self.tail.0.seen.store(head, Ordering::Release);
                if position.wrapping_sub(head) > self.size - need {
                    let now = self.tail.0.word.load(Ordering::Relaxed);
                    if now == tail {
                        return Err(Refusal::Full);
                    }
                    tail = now;
                    continue;
                }
            }
            let kept = if admit.keep_sleeping { FLAGS } else { FLAGS & !SLEEPING };
            let next = position.wrapping_add(need) | (tail & kept);
            match self.tail.0.word.compare_exchange_weak(tail, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    if padding > 0 {
                        self.mark(position).store(((padding / UNIT) as u32) << KIND_BITS | PADDING, Ordering::Release);
                    }
                    return Ok(Claim {
                        position: position.wrapping_add(padding),
                        wake: !admit.keep_sleeping && tail & SLEEPING != 0,
                    });
                }
                Err(now) => tail = now,
            }
        }
    }

    /// Claims the unit at `head`, where the consumer stands, if nothing is claimed before it. The runner may sleep on. It is never
    /// published: only the consumer, whose turn it is, knows of it.
    fn try_claim_turn(&self, head: usize, reserved: bool) -> bool {
        let mut tail = self.tail.0.word.load(Ordering::Relaxed);
        let next = head.wrapping_add(UNIT);
        while tail & !FLAGS == head && tail & CLOSED == 0 && (reserved || tail & RESERVED == 0) {
            let claimed = next | (tail & FLAGS);
            match self.tail.0.word.compare_exchange_weak(tail, claimed, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => tail = now,
            }
        }
        false
    }

    /// The ticket of a claim that is not published yet: its place in the order of everything ever run, from 1.
    #[inline]
    pub(super) fn ticket(&self, claim: &Claim) -> u64 {
        ticket_at(self.widen(claim.position))
    }

    /// Where to stop so that the entry with this ticket is the last one run.
    pub(super) fn end_of(ticket: u64) -> u64 {
        (ticket - 1) * UNIT as u64 + 1
    }

    /// Builds the entry in its claim and lets the consumer have it. A panic in `make` leaves padding there.
    ///
    /// # Safety
    /// The claim is one of this ring's, of [`Ring::length::<F>`](Self::length) bytes, and [`Ring::fits::<F>`](Self::fits).
    #[inline(always)]
    pub(super) unsafe fn publish<F: FnOnce(&mut T, u64) + Send + 'static>(
        &self,
        claim: Claim,
        make: impl FnOnce() -> F,
    ) {
        let length = const { Self::length::<F>() };
        let unmade = Unmade { ring: self, position: claim.position, length };
        #[cfg(loom)]
        self.watch(claim.position, length);
        let record = self.address(claim.position).cast::<Record<T, F>>();
        // SAFETY: the claim owns these bytes (1), contiguous (4), aligned to a unit, and long enough by this function's contract.
        unsafe { record.write(Record { run: run::<T, F>, entry: make() }) };
        core::mem::forget(unmade);
        self.mark(claim.position).store(((length / UNIT) as u32) << KIND_BITS | ENTRY, Ordering::Release);
    }

    /// The next entry is there to be run.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.mark(self.head.0.position.load(Ordering::Relaxed)).load(Ordering::Relaxed) != 0
    }

    /// How far entries have been run. It wraps; only to be compared.
    #[cfg(feature = "std")]
    pub(super) fn head(&self) -> usize {
        self.head.0.position.load(Ordering::Relaxed)
    }

    /// Nothing is claimed: everything submitted has been run to its end.
    pub(super) fn is_empty(&self) -> bool {
        self.tail.0.word.load(Ordering::Acquire) & !FLAGS == self.head.0.position.load(Ordering::Acquire)
    }

    /// Sets the sleeping flag if nothing is claimed and nothing closed.
    #[cfg(feature = "std")]
    pub(super) fn try_sleep(&self) -> Sleep {
        let mut tail = self.tail.0.word.load(Ordering::Acquire);
        loop {
            if tail & !FLAGS != self.head.0.position.load(Ordering::Acquire) {
                return Sleep::Outstanding;
            }
            if tail & CLOSED != 0 {
                return Sleep::Closed;
            }
            match self.tail.0.word.compare_exchange_weak(tail, tail | SLEEPING, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Sleep::Asleep,
                Err(now) => tail = now,
            }
        }
    }

    pub(super) fn is_sleeping(&self) -> bool {
        self.tail.0.word.load(Ordering::Acquire) & SLEEPING != 0
    }

    /// There is no runner and there will be none: every claim sees that it has to run entries itself.
    pub(super) fn sleep_for_good(&self) {
        self.tail.0.word.fetch_or(SLEEPING, Ordering::AcqRel);
    }

    /// Clears the sleeping flag; `true` for the one that did.
    pub(super) fn end_sleep(&self) -> bool {
        self.tail.0.word.fetch_and(!SLEEPING, Ordering::AcqRel) & SLEEPING != 0
    }

    /// Sets the reserved flag; `false` where it is up already.
    pub(super) fn reserve(&self) -> bool {
        self.tail.0.word.fetch_or(RESERVED, Ordering::AcqRel) & RESERVED == 0
    }

    pub(super) fn end_reservation(&self) {
        self.tail.0.word.fetch_and(!RESERVED, Ordering::AcqRel);
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.tail.0.word.load(Ordering::Acquire) & RESERVED != 0
    }

    pub(super) fn close(&self) {
        self.tail.0.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.tail.0.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// How many entries lie in the ring. What is claimed and not published counts as one: an entry that is being built, or a turn. A guess
    /// while somebody runs them.
    pub(super) fn count(&self) -> usize {
        let mut position = self.head.0.position.load(Ordering::Acquire);
        let tail = self.tail.0.word.load(Ordering::Acquire) & !FLAGS;
        let mut left = tail.wrapping_sub(position) / UNIT;
        // Whoever runs entries meanwhile may have come by the tail that was read.
        if left > self.marks.len() {
            return 0;
        }
        let mut entries = 0;
        let mut in_gap = false;
        while left > 0 {
            let mark = self.mark(position).load(Ordering::Acquire);
            let is_gap = mark == 0;
            let units = if is_gap { 1 } else { ((mark >> KIND_BITS) as usize).min(left) };
            entries += usize::from(if is_gap { !in_gap } else { mark & PADDING == ENTRY });
            in_gap = is_gap;
            left -= units;
            position = position.wrapping_add(units * UNIT);
        }
        entries
    }

    #[inline]
    fn mark(&self, position: usize) -> &AtomicU32 {
        let unit = (position & (self.size - 1)) / UNIT;
        // SAFETY: `unit` is below `size / UNIT`, the number of marks.
        unsafe { self.marks.get_unchecked(unit) }
    }

    #[inline]
    fn address(&self, position: usize) -> *mut u8 {
        let offset = position & (self.size - 1);
        // SAFETY: the offset is below the allocation's size. The cells allow writing through a shared reference.
        unsafe { self.bytes.as_ptr().cast::<u8>().cast_mut().add(offset) }
    }

    /// The 64-bit position whose low word is `position`, which is claimed and not run: the consumer is at most a ring behind it.
    #[inline]
    fn widen(&self, position: usize) -> u64 {
        if usize::BITS >= 64 {
            position as u64
        } else {
            widen(position as u32, self.head.0.laps.load(Ordering::Acquire) as u32)
        }
    }

    #[cfg(loom)]
    fn watch(&self, position: usize, length: usize) {
        let first = (position & (self.size - 1)) / UNIT;
        self.watched[first..first + length / UNIT].iter().for_each(Watched::write);
    }
}

/// `laps` is a 64-bit position / 2^31 that is at or before the wanted one, by less than 2^31.
fn widen(low: u32, laps: u32) -> u64 {
    let laps = if low >> 31 == laps & 1 { laps } else { laps.wrapping_add(1) };
    u64::from(laps) << 31 | u64::from(low & (u32::MAX >> 1))
}

fn ticket_at(position: u64) -> u64 {
    position / UNIT as u64 + 1
}

unsafe fn run<T, F: FnOnce(&mut T, u64)>(record: *mut u8, resident: Option<&mut T>, ticket: u64) {
    // SAFETY: the consumer passes a published record, and this function's address lies in records with this entry type only.
    let entry = unsafe { (&raw const (*record.cast::<Record<T, F>>()).entry).read() };
    if let Some(resident) = resident {
        entry(resident, ticket);
    }
}

/// The one reader of a ring.
pub(super) struct Consumer<T> {
    head: u64,
    entries: PhantomData<fn(&mut T)>,
}

impl<T> Consumer<T> {
    /// The position of the next entry to run: everything before it has been run.
    pub(super) fn position(&self) -> u64 {
        self.head
    }

    /// The ticket of the next entry to run.
    pub(super) fn ticket(&self) -> u64 {
        ticket_at(self.head)
    }

    /// Runs the next entry on `resident`, or only drops it; `false` where none is published.
    ///
    /// If the entry panics it stays at the head, moved out: [`retire`](Self::retire) it before anything else.
    ///
    /// # Safety
    /// `ring` is the one this consumer was made with.
    #[inline]
    pub(super) unsafe fn run(&mut self, ring: &Ring<T>, resident: Option<&mut T>) -> bool {
        let position = self.head as usize;
        let mark = ring.mark(position).load(Ordering::Acquire);
        if mark & PADDING != ENTRY {
            if mark == 0 {
                return false;
            }
            self.retire(ring);
            // SAFETY: this function's own contract. A lap starts with a record, so this goes one level deep.
            return unsafe { self.run(ring, resident) };
        }
        #[cfg(loom)]
        ring.watch(position, (mark >> KIND_BITS) as usize * UNIT);
        let record = ring.address(position);
        let ticket = self.ticket();
        // SAFETY: the mark was published (1), so a record lies here; its first field is its `run` (`repr(C)`).
        unsafe { record.cast::<Run<T>>().read()(record, resident, ticket) };
        self.pass(ring, mark);
        true
    }

    /// Takes the ring's next place for something that is run at once, in place of an entry, where nothing is queued: its ticket. What is
    /// queued meanwhile comes after it; [`end_turn`](Self::end_turn) when it has been run.
    pub(super) fn take_turn(&self, ring: &Ring<T>, reserved: bool) -> Option<u64> {
        ring.try_claim_turn(self.head as usize, reserved).then(|| self.ticket())
    }

    pub(super) fn end_turn(&mut self, ring: &Ring<T>) {
        self.pass(ring, 1 << KIND_BITS | ENTRY);
    }

    /// Gives the record at the head back to the producers, unread.
    pub(super) fn retire(&mut self, ring: &Ring<T>) {
        let mark = ring.mark(self.head as usize).load(Ordering::Relaxed);
        self.pass(ring, mark);
    }

    #[inline]
    fn pass(&mut self, ring: &Ring<T>, mark: u32) {
        ring.mark(self.head as usize).store(0, Ordering::Relaxed);
        self.head += u64::from(mark >> KIND_BITS) * UNIT as u64;
        if usize::BITS < 64 {
            ring.head.0.laps.store((self.head >> 31) as usize, Ordering::Release);
        }
        ring.head.0.position.store(self.head as usize, Ordering::Release);
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let head = self.head.0.position.load(Ordering::Relaxed) as u64;
        let mut consumer = Consumer { head, entries: PhantomData };
        loop {
            // SAFETY: nobody else has the ring any more, and this consumer stands where the last one stopped.
            match super::unwind::contain(|| unsafe { consumer.run(self, None) }) {
                Ok(true) => {}
                Ok(false) => return,
                Err(panic) => {
                    panic.discard();
                    consumer.retire(self);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_widened_across_the_edges_of_small_words() {
        const RING: u64 = 256 << 20;
        for wide in [0, 64, (1 << 31) - 64, 1 << 31, (1 << 32) - 64, 1 << 32, (5 << 31) + 64, 1 << 40] {
            for behind in [0, 64, RING / 2, RING] {
                let head: u64 = u64::saturating_sub(wide, behind);
                assert_eq!(widen(wide as u32, (head >> 31) as u32), wide, "{wide} seen from {head}");
            }
        }
    }
}
