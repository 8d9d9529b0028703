//! A batch: operations that are submitted together, what they use until they are finished, and how far they were handed to the stream.

use crate::blocks::{Arena, Blocks, Piece};
use crate::device::Device;
use crate::event::{CudaEvent, Event, Moment};
use crate::kernel::Function;
use crate::launch::Arguments;
use crate::operation::Operation;
use alloc::sync::Arc;
use alloc::vec::Vec;
use cudarc::driver::sys;
use smallvec::SmallVec;
use trunnion_backend_core::driver::Outcome;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::Foreign;

/// Operations that are submitted together.
#[derive(Default)]
pub(crate) struct Batch {
    /// What it comes after.
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
    /// Happens when the counts that the next operation asked for are there.
    pub(crate) counts: Option<Arc<Event>>,
    counts_are_here: bool,
    /// Whether what it comes after was handed to the stream.
    is_begun: bool,
    /// The operation that is handed to the stream next.
    next: usize,
    failed: Vec<(u64, Error)>,
}

/// A read under way.
pub(crate) struct Read {
    pub(crate) seq: u64,
    pub(crate) index: usize,
    pub(crate) into: HostBuffer,
    /// Where its bytes are put, one piece after the other.
    pub(crate) pieces: SmallVec<[Piece; 1]>,
}

/// How far a batch was handed to its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All of it.
    Issued,
    /// It waits for an event that no stream was told to record yet.
    Held,
    /// It waits for counts.
    Counting,
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

    /// Hands as much of it to the stream as can be. The context is current. What fails is kept for [`finish`](Self::finish): the
    /// operations that can be done without it go on.
    ///
    /// `event` gives an event to be recorded.
    pub(crate) fn issue(
        &mut self,
        device: &Device,
        stream: sys::CUstream,
        mut event: impl FnMut() -> Result<Arc<Event>>,
    ) -> Progress {
        if !self.is_begun {
            if self.waits.iter().any(|wait| wait.moment() == Moment::Coming) {
                return Progress::Held;
            }
            self.is_begun = true;
            if let Err(error) = self.wait(device, stream) {
                self.fail_all(&error);
            }
        }
        while let Some((seq, operation)) = self.operations.get(self.next) {
            if let (Operation::Counted(counted), false) = (operation, self.counts_are_here) {
                let asked = counted.fetch(device, stream).and_then(|()| event()).and_then(|event| {
                    event.record(stream)?;
                    Ok(event)
                });
                match asked {
                    Ok(event) => {
                        self.counts = Some(event);
                        return Progress::Counting;
                    }
                    Err(error) => note(&mut self.failed, *seq, error),
                }
            } else if let Err(error) = operation.issue(device, stream, &self.arguments) {
                note(&mut self.failed, *seq, error);
            }
            self.counts_are_here = false;
            self.next += 1;
            if device.loss.check().is_err() {
                // Nothing more comes of anything.
                self.next = self.operations.len();
            }
        }
        for signal in &self.signals {
            if signal.record(stream).is_err() {
                log::error!("{}: an event for somebody else happens too soon", device.properties.info.device);
            }
        }
        if let Some(done) = &self.done
            && let Err(error) = done.record(stream)
        {
            log::warn!("{}: the end of a batch is not marked: {error}", device.properties.info.device);
        }
        Progress::Issued
    }

    /// The counts it waits for are there. The event that said so.
    pub(crate) fn counts_arrived(&mut self) -> Option<Arc<Event>> {
        let event = self.counts.take();
        self.counts_are_here |= event.is_some();
        event
    }

    /// Lets the stream wait for everything the batch comes after.
    fn wait(&self, device: &Device, stream: sys::CUstream) -> Result<()> {
        let own = self.waits.iter().map(|event| (event.raw(), event.moment()));
        let foreign = self.events.iter().filter_map(|event| event.get::<CudaEvent>().ok());
        let foreign = foreign.map(|event| (event.event(), Moment::Recorded));
        for (event, moment) in own.chain(foreign) {
            if moment == Moment::Missing {
                let message = "the end of what comes before could not be marked".into();
                return Err(Error::Driver { call: "cuEventRecord".into(), code: 0, message });
            }
            // SAFETY: the stream is the device's, and the event there: the batch holds it.
            device.check("cuStreamWaitEvent", unsafe { (device.functions().cuStreamWaitEvent)(stream, event, 0) })?;
        }
        Ok(())
    }

    /// All operations have failed, and none is handed to the stream.
    fn fail_all(&mut self, error: &Error) {
        self.operations.iter().for_each(|(seq, _)| note(&mut self.failed, *seq, error.clone()));
        if self.operations.is_empty() {
            note(&mut self.failed, self.seq, error.clone());
        }
        self.next = self.operations.len();
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

    /// What it promised somebody else will not be: events that are still to come never do, and nobody waits for them.
    pub(crate) fn give_up(&self) {
        self.signals.iter().chain(&self.done).for_each(|event| event.give_up());
    }

    /// Gives back what it used, to be filled again. The device is done with all of it.
    pub(crate) fn clear(&mut self, blocks: &mut Blocks) {
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
        (self.done, self.counts) = (None, None);
        (self.counts_are_here, self.is_begun, self.next) = (false, false, 0);
    }
}

/// Keeps the first failure of an operation.
#[cold]
fn note(failed: &mut Vec<(u64, Error)>, seq: u64, error: Error) {
    if !failed.iter().any(|(known, _)| *known == seq) {
        failed.push((seq, error));
    }
}
