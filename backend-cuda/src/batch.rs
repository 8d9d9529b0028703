//! A batch: operations that are submitted together, what they use until they are finished, and how far they were handed to the stream.

use crate::blocks::{Arena, Blocks, Piece};
use crate::device::Device;
use crate::event::{CudaEvent, Event, Moment};
use crate::held::Call;
use crate::kernel::Function;
use crate::launch::Arguments;
use crate::operation::{Operation, Turn};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;
use cudarc::driver::sys;
use smallvec::SmallVec;
use trunnion_backend_core::driver::Outcome;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::Foreign;

/// Operations that are submitted together.
#[derive(Default)]
pub(crate) struct Batch {
    /// What it comes after: events of this device, and of others of this backend.
    pub(crate) waits: SmallVec<[Arc<Event>; 2]>,
    /// Events of somebody else that it waits for, and events for somebody else that it makes happen.
    pub(crate) events: Vec<Foreign>,
    pub(crate) signals: Vec<Arc<Event>>,
    /// Each with the number of the operation that it is a part of.
    operations: Vec<(u64, Operation)>,
    pub(crate) arguments: Arguments,
    pub(crate) arena: Arena,
    code: Vec<Arc<Function>>,
    pub(crate) pinned: Vec<Bytes>,
    pub(crate) reads: Vec<Read>,
    /// The number of its last operation, and of its submission to the lane.
    pub(crate) seq: u64,
    pub(crate) submission: u64,
    /// Happens when it is finished; there once it is submitted.
    pub(crate) done: Option<Arc<Event>>,
    /// From its submission on until nothing more comes of it.
    pub(crate) under_way: Option<UnderWay>,
    /// What the host waits for before more of it is handed to the stream.
    pub(crate) marker: Option<Marker>,
    /// Why none of its operations is carried out: something that it comes after failed.
    pub(crate) refused: Option<Error>,
    /// Whether the counts are there that the next operation asked for.
    counts_are_here: bool,
    /// How many of the waits and of the events of somebody else were handed to the stream, or waited for.
    begun: usize,
    /// The operation that is handed to the stream next.
    next: usize,
    /// Calls of it that are with the stream, as far as anybody has looked.
    pub(crate) calls: usize,
    failed: Vec<(u64, Error)>,
}

/// A batch that is with its device: it counts among those as long as this lives, whatever becomes of the batch.
pub(crate) struct UnderWay {
    device: Arc<Device>,
    waits_for_others: bool,
}

impl UnderWay {
    pub(crate) fn new(device: &Arc<Device>, waits_for_others: bool) -> Self {
        device.unfinished.fetch_add(1, Ordering::AcqRel);
        device.foreign_waits.fetch_add(u64::from(waits_for_others), Ordering::AcqRel);
        Self { device: device.clone(), waits_for_others }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let others = u64::from(self.waits_for_others);
        let is_last_of_them = self.device.foreign_waits.fetch_sub(others, Ordering::SeqCst) == others;
        let is_last = self.device.unfinished.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last || self.waits_for_others && is_last_of_them {
            self.device.retired.look();
        }
    }
}

/// A read under way.
pub(crate) struct Read {
    pub(crate) seq: u64,
    pub(crate) index: usize,
    pub(crate) into: HostBuffer,
    /// Where its bytes are put, one piece after the other.
    pub(crate) pieces: SmallVec<[Piece; 1]>,
}

/// An event that the host waits for.
#[derive(Clone)]
pub(crate) enum Marker {
    /// It happens when the counts that the next operation asked for are there.
    Counts(Arc<Event>),
    /// It happens when the stream has done what it was given.
    Room(Arc<Event>),
    /// What the batch comes after, for which the stream could not be made to wait.
    Wait(Arc<Event>),
    /// The same of somebody else.
    Foreign(Foreign),
    /// What it comes after is an event of another device, which no stream was told to record yet. It is looked at again when this is called.
    Elsewhere(Arc<Call>),
}

impl Marker {
    /// The event; `None` where it is over.
    pub(crate) fn raw(&self) -> Option<sys::CUevent> {
        match self {
            Self::Counts(event) | Self::Room(event) | Self::Wait(event) => {
                (event.moment() == Moment::Recorded).then(|| event.raw())
            }
            Self::Foreign(event) => event.get::<CudaEvent>().ok().map(CudaEvent::event),
            Self::Elsewhere(_) => None,
        }
    }

    /// Whether the lane's thread, which asks, has something to do for it. If not, it is woken when it has.
    pub(crate) fn is_due(&self) -> bool {
        match self {
            Self::Counts(_) | Self::Room(_) | Self::Wait(_) | Self::Foreign(_) => true,
            Self::Elsewhere(call) => call.is_made(),
        }
    }
}

/// How far a batch was handed to its stream.
pub(crate) enum Progress {
    /// All of it.
    Issued,
    /// It waits for this event, which no stream was told to record yet.
    Held(Arc<Event>),
    /// It waits for its marker.
    Marked,
}

impl Batch {
    /// Adds an operation, or a part of one.
    #[inline]
    pub(crate) fn push(&mut self, seq: u64, operation: Operation) {
        self.operations.push((seq, operation));
    }

    /// What was added.
    #[cfg(test)]
    pub(crate) fn operations(&self) -> &[(u64, Operation)] {
        &self.operations
    }

    /// Keeps code until the batch is finished.
    pub(crate) fn hold(&mut self, code: &Arc<Function>) {
        // Not the whole list: to keep code twice does no harm.
        if !self.code.iter().rev().take(8).any(|known| Arc::ptr_eq(known, code)) {
            self.code.push(code.clone());
        }
    }

    /// The calls it takes, where the driver takes each operation as one.
    pub(crate) fn needs(&self) -> usize {
        self.waits.len() + self.events.len() + self.operations.len() + self.signals.len() + 1
    }

    /// Whether it waits for what this device does not do.
    pub(crate) fn waits_for_others(&self, device: &Device) -> bool {
        !self.events.is_empty() || self.waits.iter().any(|wait| !core::ptr::eq(wait.device(), device))
    }

    /// Whether nothing of it was handed to the stream.
    pub(crate) fn is_new(&self) -> bool {
        self.begun == 0 && self.next == 0 && self.calls == 0
    }

    /// Hands as much of it to the stream as can be, and waits behind more than `room` calls. The context is current. `event` gives an event to
    /// be recorded.
    ///
    /// An operation that the driver refuses has failed, which [`finish`](Self::finish) tells; those behind it are handed over. Calls of the same
    /// operation may be with the stream by then, so the batch stays until the stream is behind it, whatever was refused.
    pub(crate) fn issue(
        &mut self,
        device: &Device,
        stream: sys::CUstream,
        room: usize,
        mut event: impl FnMut() -> Result<Arc<Event>>,
    ) -> Progress {
        let mut full = self.calls + room.max(1);
        if let Some(held) = self.wait(device, stream) {
            return held;
        }
        self.refuse(device);
        while let Some((seq, operation)) = self.operations.get_mut(self.next) {
            if device.loss.check().is_err() {
                // Nothing more comes of anything, and what it comes after may not have been waited for.
                self.next = self.operations.len();
                break;
            }
            if self.calls >= full {
                match event().and_then(|event| event.record(stream).map(|()| event)) {
                    Ok(event) => {
                        self.marker = Some(Marker::Room(event));
                        return Progress::Marked;
                    }
                    // Then the driver may keep who calls it.
                    Err(_) => full += room.max(1),
                }
            }
            self.calls += 1;
            let issued = match operation {
                // What is left of an operation that failed.
                _ if self.failed.last().is_some_and(|(failed, _)| failed == seq) => Ok(Turn::Over),
                Operation::Counted(counted) if !self.counts_are_here => {
                    let asked = event().and_then(|event| {
                        counted.fetch(device, stream)?;
                        event.record(stream)?;
                        Ok(event)
                    });
                    match asked {
                        Ok(event) => {
                            self.calls += 1;
                            self.marker = Some(Marker::Counts(event));
                            return Progress::Marked;
                        }
                        Err(error) => Err(error),
                    }
                }
                _ => operation.issue(device, stream, &self.arguments),
            };
            match issued {
                Ok(Turn::Over) => {}
                Ok(Turn::Again) => continue,
                Err(error) => note(&mut self.failed, *seq, error),
            }
            self.next += 1;
            self.counts_are_here = false;
        }
        self.calls += self.signals.len() + 1;
        for signal in &self.signals {
            if let Err(error) = signal.record(stream) {
                note(&mut self.failed, self.seq, error);
            }
        }
        if let Some(done) = &self.done
            && let Err(error) = done.record(stream)
            && !error.is_device_lost()
        {
            log::warn!("{}: the end of a batch is not marked: {error}", device.properties.info.device);
        }
        Progress::Issued
    }

    /// What the marker stands for has happened. The event, where the stream recorded it for the marker: it is to be used again, and the stream
    /// has done all it was given.
    pub(crate) fn marker_reached(&mut self) -> Option<Arc<Event>> {
        match self.marker.take()? {
            Marker::Counts(event) => {
                self.counts_are_here = true;
                return Some(event);
            }
            Marker::Room(event) => return Some(event),
            Marker::Wait(_) | Marker::Foreign(_) => self.begun += 1,
            Marker::Elsewhere(_) => {}
        }
        None
    }

    /// Lets the stream wait for everything the batch comes after. Where it cannot, because the driver refuses or the event is still to be
    /// recorded, the batch is held: what comes after must not run before.
    fn wait(&mut self, device: &Device, stream: sys::CUstream) -> Option<Progress> {
        if self.begun == 0 {
            let comes = |wait: &&Arc<Event>| wait.moment() == Moment::Coming && wait.obstacle(device).is_none();
            if let Some(event) = self.waits.iter().find(comes) {
                return Some(Progress::Held(event.clone()));
            }
            self.refused = self.refused.take().or_else(|| self.waits.iter().find_map(|wait| wait.obstacle(device)));
        }
        let functions = device.functions();
        while self.begun < self.waits.len() + self.events.len() {
            let marker = match self.waits.get(self.begun) {
                // The driver might take the fault of the device that it is of for one of this device.
                Some(event) if !core::ptr::eq(event.device(), device) && event.device().is_dead() => {
                    self.begun += 1;
                    continue;
                }
                Some(event) => Marker::Wait(event.clone()),
                None => Marker::Foreign(self.events[self.begun - self.waits.len()].clone()),
            };
            if let Some(event) = marker.raw() {
                // SAFETY: the stream is the device's, and the event there: the batch holds it.
                let code = unsafe { (functions.cuStreamWaitEvent)(stream, event, 0) };
                if let Err(error) = device.check("cuStreamWaitEvent", code)
                    && !error.is_device_lost()
                {
                    log::warn!("{}: the host waits in place of a stream: {error}", device.properties.info.device);
                    self.marker = Some(marker);
                    return Some(Progress::Marked);
                }
                self.calls += 1;
            }
            self.begun += 1;
        }
        None
    }

    /// Where something that it comes after failed, its operations have failed, and so has whatever comes after it. It is finished when the rest
    /// of what it comes after is. Of a lost device nothing is said of each.
    fn refuse(&mut self, device: &Device) {
        let Some(why) = self.refused.as_ref().filter(|_| device.loss.check().is_ok()) else { return };
        let seqs = self.operations[self.next..].iter().map(|(seq, _)| *seq).chain([self.seq]);
        for seq in seqs {
            // They come in order.
            if self.failed.last().is_none_or(|(last, _)| *last != seq) {
                self.failed.push((seq, why.clone()));
            }
        }
        self.next = self.operations.len();
        self.signals.iter().chain(&self.done).for_each(|event| event.fail(why));
    }

    /// It is finished: its events are over. Whether somebody may still be held by one, which could not be recorded.
    pub(crate) fn set_over(&self) -> bool {
        self.signals.iter().chain(&self.done).fold(false, |holds, event| event.set_over() | holds)
    }

    /// What came of it, now that it is finished.
    pub(crate) fn finish(&mut self, outcome: &mut Outcome) {
        for mut read in self.reads.drain(..) {
            if self.failed.iter().any(|(seq, _)| *seq == read.seq) {
                continue;
            }
            let mut rest = read.into.as_mut_slice();
            for piece in &read.pieces {
                let Some((into, behind)) = rest.split_at_mut_checked(piece.length()) else { break };
                // SAFETY: the piece is of this batch, which is finished.
                unsafe { piece.read(into) };
                rest = behind;
            }
            outcome.read.push((read.seq, read.index, read.into));
        }
        outcome.failed.append(&mut self.failed);
    }

    /// Nothing more comes of it, for that reason: nobody need wait for its events. Whether other lanes may hold batches that do.
    pub(crate) fn give_up(&self, why: &dyn fmt::Display) -> bool {
        self.signals.iter().chain(&self.done).fold(false, |holds, event| event.give_up(why) | holds)
    }

    /// Gives back what it used, to be filled again. The device is done with all of it.
    pub(crate) fn clear(&mut self, blocks: &mut Blocks) {
        self.under_way = None;
        self.waits.clear();
        self.events.clear();
        self.signals.clear();
        self.operations.clear();
        self.arguments.clear();
        self.arena.clear(blocks);
        self.code.clear();
        self.pinned.clear();
        self.reads.clear();
        self.failed.clear();
        (self.done, self.marker, self.refused) = (None, None, None);
        (self.counts_are_here, self.begun, self.next, self.calls) = (false, 0, 0, 0);
    }
}

/// Keeps the first failure of an operation.
#[cold]
fn note(failed: &mut Vec<(u64, Error)>, seq: u64, error: Error) {
    if !failed.iter().any(|(known, _)| *known == seq) {
        failed.push((seq, error));
    }
}
