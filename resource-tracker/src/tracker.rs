//! The tracker of a device: what an operation must wait for, whether it may run, and which bytes carry a failure.

use crate::interval::Intervals;
use crate::log::Log;
use crate::marks::{Mark, Spread};
use crate::names::{Name, Names};
use crate::uses::{Last, Use, Waits};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use trunnion_runtime_core::error::Error;
use trunnion_runtime_core::failure::{Failure, Failures};
use trunnion_runtime_core::id::MemoryId;
use trunnion_runtime_core::timeline::{Frontier, Moment, Timeline};

/// The answer to [`Tracker::resolve`].
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What the operation must wait for on *other* streams: neither done nor already waited for by its stream. Empty when skipped.
    ///
    /// Where bytes had more than four readers since their last write, or an operation conflicts with more than four streams, this
    /// is rounded up to an epoch below the operation's own number. What its own stream has before it is covered by the stream's
    /// order: only the others need a wait.
    pub waits: Frontier,
    /// Whether it conflicts (read after write, write after read, write after write) with an operation of its own stream that is not
    /// known to be done, so that a barrier must lie between the two.
    ///
    /// Equivalent to: a `vkCmdPipelineBarrier` before the command. CUDA streams need none.
    pub barrier: bool,
    /// The latest operation of its own stream that it conflicts with, 0 for none: a barrier recorded after that one serves as well.
    pub hazard: u64,
    /// Whether it runs.
    pub verdict: Verdict,
}

/// Whether an operation runs.
#[derive(Clone, Debug)]
#[must_use]
pub enum Verdict {
    /// Encode it, then say [`landed`](Tracker::landed) or [`failed`](Tracker::failed).
    Run,
    /// Don't: an input carries this failure, or a binding is wrong. What it would have written carries the failure already.
    Skip(Failure),
}

#[derive(Debug)]
struct Record {
    /// The tenant's generation; [`VACANT`] for none.
    tenant: u64,
    size: u64,
    uses: Intervals<Last>,
    marks: Intervals<Mark>,
}

/// No generation, so that one comparison tells a tenant from another one and from none.
const VACANT: u64 = u64::MAX;

impl Record {
    const fn vacant() -> Self {
        Self { tenant: VACANT, size: 0, uses: Intervals::new(), marks: Intervals::new() }
    }
}

/// Who last wrote and read which bytes of a device, and which bytes carry a failure.
///
/// Operations come in the order of their numbers, which are from one counter of the device. For each: [`resolve`](Self::resolve),
/// then, when it may run, [`landed`](Self::landed) once the driver has it or [`failed`](Self::failed) when the driver refused it.
/// From `resolve` on and until then what it writes carries a provisional mark, so that a panic between the two leaves the truth: if
/// neither was called by the next `resolve`, the mark stays.
///
/// A failure that comes to light later is reported by [`failed`](Self::failed) as well. The server must do that before its
/// [`Timeline`] says the operation is done.
#[derive(Debug, Default)]
pub struct Tracker {
    records: Vec<Record>,
    names: Names,
    log: Log,
    /// Whether the newest operation of the log was neither accepted nor refused yet.
    pending: bool,
    /// Whether the pending operation overwrites bytes that carry a mark.
    clears: bool,
    /// What the pending operation waits for.
    waits: Frontier,
}

impl Tracker {
    /// A tracker that knows no memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// The name for operations of this kind: a kernel's name, or `copy`, `fill`, `write`. Each distinct one is kept once, for as long
    /// as the tracker lives; ask when a kernel is loaded, not for each launch.
    pub fn name(&mut self, name: &str) -> Name {
        self.names.intern(name)
    }

    /// Memory of `size` bytes was reserved by the operation at `at`, which counts as a write of the whole: who uses it from another
    /// stream waits for that moment. The number 0 stands for a moment that is past, for bytes nobody used before.
    ///
    /// Indices must be dense from 0. A former tenant of the slot that was not closed is forgotten.
    pub fn open(&mut self, memory: MemoryId, size: u64, at: Moment) {
        let index = memory.index as usize;
        if index >= self.records.len() {
            self.records.resize_with(index + 1, Record::vacant);
        }
        let mut uses = Intervals::new();
        if size > 0 {
            uses.insert(&(0..size), Last::written(at));
        }
        self.records[index] = Record { tenant: memory.generation.into(), size, uses, marks: Intervals::new() };
    }

    /// The memory was dropped. Answers what its bytes were last used by, writes and reads: the next tenant of the bytes waits for it.
    /// Empty for memory that is not open.
    pub fn close(&mut self, memory: MemoryId) -> Frontier {
        let mut frontier = Frontier::new();
        if let Some(slot) = self.records.get_mut(memory.index as usize)
            && slot.tenant == u64::from(memory.generation)
        {
            let record = core::mem::replace(slot, Record::vacant());
            record.uses.values().for_each(|last| last.join_into(&mut frontier));
            // What a pending operation should wait for, it may never come to.
            if self.pending && self.log.newest_uses().iter().any(|u| u.memory == memory) {
                frontier.join(&self.waits);
            }
        }
        frontier
    }

    /// The size of open memory, in bytes.
    pub fn memory_size(&self, memory: MemoryId) -> Option<u64> {
        self.record(memory).map(|record| record.size)
    }

    /// What the operation at `at` with these bindings must wait for, and whether it may run.
    ///
    /// It is skipped when bytes it reads ([`Access::reads`](trunnion_runtime_core::access::Access::reads)) carry a failure: the first
    /// one by binding, then by address. It is skipped as well for a binding that is wrong: [`Error::StaleHandle`] for memory that is
    /// not open, [`Error::OutOfRange`] for bytes beyond its size. All it would have written then carries the failure, in place of
    /// what was there, and the bytes' last uses stay as they were.
    ///
    /// Otherwise it becomes the last use of its bytes, and pending until [`landed`](Self::landed) or [`failed`](Self::failed). One
    /// that is pending still is taken for interrupted.
    pub fn resolve<T: Timeline + ?Sized>(
        &mut self,
        at: Moment,
        operation: Name,
        uses: &[Use],
        timeline: &T,
    ) -> Resolved {
        if self.pending {
            self.interrupt();
        }
        let admission = match self.admit(uses) {
            Ok(admission) => admission,
            Err(refusal) => return self.skip(at, operation, uses, refusal),
        };
        self.clears = admission.clears;
        self.log.push(at, operation, uses, timeline);
        self.pending = true;
        // Collected where it is answered: it is not small.
        let mut resolved = Resolved { waits: Frontier::new(), barrier: false, hazard: 0, verdict: Verdict::Run };
        let mut waits = Waits::new(at, timeline, &mut resolved.waits);
        // Writes first: where two bindings overlap, the read would take the place of an earlier one that the write must see.
        let passes: &[bool] = if admission.only_reads_some { &[true, false] } else { &[true] };
        for writes in passes {
            for u in uses.iter().filter(|u| u.access.writes() == *writes) {
                self.advance(u, &mut waits);
            }
        }
        let hazard = waits.own;
        if !(resolved.waits.is_empty() && self.waits.is_empty()) {
            self.waits.clone_from(&resolved.waits);
        }
        resolved.hazard = hazard;
        resolved.barrier = hazard > 0 && !timeline.is_done(Moment { stream: at.stream, seq: hazard });
        resolved
    }

    /// The driver accepted the operation at `at`, the one resolved last: its provisional marks are gone, and so are older marks on
    /// exactly the bytes it overwrites. For another operation this does nothing.
    #[inline]
    pub fn landed(&mut self, at: Moment) {
        if self.is_pending(at) {
            self.pending = false;
            if self.clears {
                self.clear(at);
            }
        }
    }

    /// The operation at `at` with these bindings was not carried out: what it would have written carries `failure`.
    ///
    /// At once (it is pending): its bytes carry the failure in place of whatever was there, and their next user waits for what it
    /// should have waited for.
    ///
    /// Late (it had landed): the operations after it are followed in order. One that read bytes which carry the failure at that time
    /// hands it on, through itself, to what it wrote; one that overwrote such bytes from clean input took it away. A mark that a
    /// later operation left stays. This reaches all operations after the oldest unfinished one. If the operation itself is no
    /// longer known because the timeline said it was done, only the bytes it is still the last writer of are the beginning.
    pub fn failed(&mut self, at: Moment, uses: &[Use], failure: &Failure) {
        self.failed_telling(at, uses, failure, |_, _| {});
    }

    /// As [`failed`](Self::failed), and calls `tell` with every later operation that used such bytes, in order, and the failure as it
    /// hands it on: a read that is under way learns by this that its bytes are not what they should be.
    pub fn failed_telling(&mut self, at: Moment, uses: &[Use], failure: &Failure, tell: impl FnMut(Moment, &Failure)) {
        if self.is_pending(at) {
            return self.refuse(failure);
        }
        let known = self.log.holds(at);
        let mut dirty = Spread::new();
        for u in uses.iter().filter(|u| u.access.writes()) {
            let mark = Mark { failure: failure.clone(), by: at };
            if known {
                dirty.insert(u.memory, &u.range, mark);
            } else if let Some(record) = self.record(u.memory) {
                for (part, _) in record.uses.overlapping(&u.range).filter(|(_, last)| last.write == at) {
                    let range = part.start.max(u.range.start)..part.end.min(u.range.end);
                    dirty.insert(u.memory, &range, mark.clone());
                }
            }
        }
        self.log.follow(at, &mut dirty, &self.names, tell);
        for (memory, range, mark) in dirty.iter() {
            if let Some((record, range)) = record_within(&mut self.records, memory, &range) {
                record.marks.remove(&range, |old| old.by.seq < mark.by.seq);
                record.marks.fill(&range, mark);
            }
        }
    }

    /// Puts a failure on bytes without an operation: a reservation that found no memory marks the whole buffer. In place of what
    /// was there.
    pub fn mark(&mut self, memory: MemoryId, range: Range<u64>, failure: &Failure) {
        let mark = Mark { failure: failure.clone(), by: failure.origin() };
        if let Some((record, range)) = record_within(&mut self.records, memory, &range) {
            record.marks.insert(&range, mark);
        }
    }

    /// Adds the failures that lie on the bytes, each distinct one once, by address; the provisional one of a pending operation last.
    /// Memory that is not open carries none.
    pub fn check(&self, memory: MemoryId, range: Range<u64>, into: &mut Failures) {
        let Some(record) = self.record(memory) else { return };
        record.marks.overlapping(&range).for_each(|(_, mark)| into.add(&mark.failure));
        if self.pending
            && let Some((at, name)) = self.log.newest()
        {
            let overlaps = |u: &Use| u.range.start.max(range.start) < u.range.end.min(range.end);
            if self.log.newest_uses().iter().any(|u| u.access.writes() && u.memory == memory && overlaps(u)) {
                into.add(&interruption(at, self.names.text(name)));
            }
        }
    }

    /// Forgets operations that are done and can no longer fail. Optional: the tracker does it itself when its log is full.
    pub fn retire<T: Timeline + ?Sized>(&mut self, timeline: &T) {
        if !self.pending {
            self.log.retire(timeline);
        }
    }

    /// How many operations are remembered because a late failure may have to be followed through them.
    pub fn remembered(&self) -> usize {
        self.log.len()
    }

    #[inline]
    fn record(&self, memory: MemoryId) -> Option<&Record> {
        self.records.get(memory.index as usize).filter(|record| record.tenant == u64::from(memory.generation))
    }

    #[inline]
    fn is_pending(&self, at: Moment) -> bool {
        self.pending && self.log.newest().is_some_and(|(newest, _)| newest == at)
    }

    /// Whether all bindings are right and what they read is clean.
    #[inline]
    fn admit(&self, uses: &[Use]) -> Result<Admission, Refusal> {
        let mut admission = Admission { only_reads_some: false, clears: false };
        for (i, u) in uses.iter().enumerate() {
            match self.record(u.memory) {
                Some(record) if u.range.start <= u.range.end && u.range.end <= record.size => {
                    admission.only_reads_some |= !u.access.writes();
                    if !record.marks.is_empty() {
                        if !u.access.reads() {
                            admission.clears = true;
                        } else if let Some(mark) = record.marks.first(&u.range) {
                            return Err(Refusal::Tainted(mark.failure.clone()));
                        }
                    }
                }
                _ => return Err(Refusal::Wrong(i)),
            }
        }
        Ok(admission)
    }

    /// Makes a binding the last use of its bytes.
    #[inline]
    fn advance<T: Timeline + ?Sized>(&mut self, u: &Use, waits: &mut Waits<'_, T>) {
        if let Some(record) = self.records.get_mut(u.memory.index as usize) {
            match record.uses.whole(&u.range) {
                Some(last) => last.advance(u.access, waits),
                None => advance_parts(&mut record.uses, u, waits),
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn skip(&mut self, at: Moment, operation: Name, uses: &[Use], refusal: Refusal) -> Resolved {
        let name = self.names.text(operation);
        let failure = match refusal {
            Refusal::Tainted(failure) => failure.through(name, at),
            Refusal::Wrong(i) => {
                let Use { memory, range, .. } = uses[i].clone();
                Failure::new(
                    at,
                    match self.memory_size(memory) {
                        Some(size) => Error::OutOfRange { what: name.to_owned().into(), range, size },
                        None => Error::StaleHandle { memory },
                    },
                )
            }
        };
        mark_writes(&mut self.records, uses, &Mark { failure: failure.clone(), by: at });
        Resolved { waits: Frontier::new(), barrier: false, hazard: 0, verdict: Verdict::Skip(failure) }
    }

    /// Takes away what the operation at `at` overwrites, but for a failure it inherited in the meantime.
    #[cold]
    #[inline(never)]
    fn clear(&mut self, at: Moment) {
        for u in self.log.newest_uses().iter().filter(|u| !u.access.reads()) {
            if let Some((record, range)) = record_within(&mut self.records, u.memory, &u.range) {
                record.marks.remove(&range, |mark| mark.by.seq < at.seq);
            }
        }
    }

    /// The pending operation was begun, and nothing more was heard of it.
    #[cold]
    #[inline(never)]
    fn interrupt(&mut self) {
        if let Some((at, name)) = self.log.newest() {
            let failure = interruption(at, self.names.text(name));
            self.refuse(&failure);
        }
    }

    /// The pending operation failed.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, failure: &Failure) {
        self.pending = false;
        let Some((at, _)) = self.log.newest() else { return };
        let uses = self.log.newest_uses();
        mark_writes(&mut self.records, uses, &Mark { failure: failure.clone(), by: at });
        // It took the place of the earlier uses, but nobody knows whether its stream came to wait for them.
        for u in uses.iter().filter(|u| u.access.writes()) {
            if let Some((record, range)) = record_within(&mut self.records, u.memory, &u.range) {
                record.uses.update(&range, |last| last.add(&self.waits));
            }
        }
        self.log.pop();
    }
}

#[inline(never)]
fn advance_parts<T: Timeline + ?Sized>(parts: &mut Intervals<Last>, u: &Use, waits: &mut Waits<'_, T>) {
    if parts.is_crowded() {
        parts.simplify(|last| last.prune(waits.timeline));
    }
    if !u.range.is_empty() {
        parts.update(&u.range, |last| last.advance(u.access, waits));
    }
}

/// What is worth knowing of an operation that is begun.
struct Admission {
    /// Whether a binding is only read.
    only_reads_some: bool,
    /// Whether bytes that may carry a mark are overwritten.
    clears: bool,
}

/// Why an operation is not begun.
enum Refusal {
    /// The binding with this number is wrong.
    Wrong(usize),
    /// It reads bytes that carry this.
    Tainted(Failure),
}

fn interruption(at: Moment, operation: &str) -> Failure {
    let message = String::from("it was interrupted before the driver accepted it");
    Failure::new(at, Error::Panicked { what: alloc::format!("`{operation}`"), message })
}

/// The memory, when it is open, and the range cut to its size, when anything is left of it.
fn record_within<'a>(
    records: &'a mut [Record],
    memory: MemoryId,
    range: &Range<u64>,
) -> Option<(&'a mut Record, Range<u64>)> {
    let record =
        records.get_mut(memory.index as usize).filter(|record| record.tenant == u64::from(memory.generation))?;
    let range = range.start..range.end.min(record.size);
    (!range.is_empty()).then_some((record, range))
}

fn mark_writes(records: &mut [Record], uses: &[Use], mark: &Mark) {
    for u in uses.iter().filter(|u| u.access.writes()) {
        if let Some((record, range)) = record_within(records, u.memory, &u.range) {
            record.marks.insert(&range, mark.clone());
        }
    }
}
