//! Streams as the driver has them: the batch that is being encoded, and what came of those before.
//!
//! Operations are kept in the batch until it is submitted, and then handed to the [`lane`](crate::lane) with everything they use. `poll` takes
//! finished batches out, oldest first, and what they used goes round: a warm launch allocates nothing, neither on the heap nor of the
//! driver. Between operations of a stream nothing has to be said: each sees what came before.

use crate::batch::Batch;
use crate::blocks::Blocks;
use crate::device::Device;
use crate::event::{CudaEvent, Event};
use crate::lane::Lane;
use crate::pinned::PinnedBlock;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::ptr;
use trunnion_backend_core::driver::Outcome;
use trunnion_backend_core::exit::Inside;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Notifier;
use trunnion_runtime_core::foreign::Foreign;

/// Batches kept to be filled again.
const SPARE: usize = 32;

/// What the streams of a driver share, take from and give back to.
pub(crate) struct Supplies {
    pub(crate) device: Arc<Device>,
    pub(crate) blocks: Blocks,
    /// What stands for buffers of no bytes: memory where nothing else lies.
    pub(crate) nothing: PinnedBlock,
}

/// A stream with the batch that is being encoded.
///
/// Equivalent to: a `CUstream` with the events behind what it was given.
pub struct CudaStream {
    device: Arc<Device>,
    lane: Arc<Lane>,
    pub(crate) open: Box<Batch>,
    #[expect(clippy::vec_box, reason = "they go round as they are, and are large")]
    spare: Vec<Box<Batch>>,
    reported: u64,
    // As long as it has not ended, the device may work for it.
    _inside: Inside,
}

impl CudaStream {
    /// # Errors
    /// What the driver answers.
    pub(crate) fn new(device: &Arc<Device>, notifier: Option<&Notifier>) -> Result<Self> {
        Ok(Self {
            device: device.clone(),
            lane: Lane::new(device, notifier)?,
            open: Box::default(),
            spare: Vec::new(),
            reported: 0,
            _inside: Inside::new(),
        })
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// What follows comes after the operation `seq` of the other stream.
    pub(crate) fn wait(&mut self, other: &Self, seq: u64) {
        // What was reported as finished needs no wait.
        if let Some(event) = other.lane.event_of(seq) {
            self.open.waits.push(event);
        }
    }

    /// What follows comes after an event of somebody else.
    ///
    /// # Errors
    /// [`Error::ServiceMismatch`] unless it is a [`CudaEvent`]; [`Error::Driver`] for one that does not happen any more; [`Error::Busy`] for one
    /// of this device that was not submitted yet: who submits it may wait for this stream.
    pub(crate) fn import_event(&mut self, event: &Foreign) -> Result<()> {
        let known: &CudaEvent = event.get()?;
        let Some(own) = known.own() else {
            self.open.events.push(event.clone());
            return Ok(());
        };
        if let Some(failure) = own.obstacle(&self.device) {
            return Err(failure);
        }
        if ptr::eq(own.device(), &*self.device) && !own.is_submitted() {
            return Err(Error::Busy { what: "what makes the event happen waits itself".into() });
        }
        self.open.waits.push(own.clone());
        Ok(())
    }

    /// An event that happens with what was encoded.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn export_event(&mut self) -> Result<CudaEvent> {
        let _current = self.device.enter()?;
        let event = Arc::new(Event::new(&self.device)?);
        self.lane.state().signals.push(event.clone());
        Ok(CudaEvent::of(event))
    }

    /// Submits what was encoded as everything up to the operation `seq`.
    ///
    /// # Errors
    /// What the driver answers; the batch is then gone.
    pub(crate) fn submit(&mut self, seq: u64, supplies: &mut Supplies) -> Result<()> {
        self.device.loss.check()?;
        let next = self.spare.pop().unwrap_or_default();
        let mut batch = mem::replace(&mut self.open, next);
        batch.seq = seq;
        match self.lane.submit(batch) {
            // What was lost while it was handed over is nobody's failure but the device's.
            Ok(()) => self.device.loss.check(),
            Err((error, batch)) => {
                self.lane.give_up_signals(&error);
                self.recycle(batch, supplies);
                Err(error)
            }
        }
    }

    /// What the stream has finished, and what came of it.
    ///
    /// # Errors
    /// The device's fault.
    pub(crate) fn poll(&mut self, outcome: &mut Outcome, supplies: &mut Supplies) -> Result<u64> {
        while let Some(mut batch) = self.lane.take_finished()? {
            self.reported = batch.seq;
            batch.finish(outcome);
            self.recycle(batch, supplies);
        }
        Ok(self.reported)
    }

    fn recycle(&mut self, mut batch: Box<Batch>, supplies: &mut Supplies) {
        batch.clear(&mut supplies.blocks);
        if self.spare.len() < SPARE {
            self.spare.push(batch);
        }
    }

    /// Ends the stream; what its batches used is given back where the device is done with it.
    pub(crate) fn close(mut self, supplies: &mut Supplies) {
        // Of what was not submitted, or is still held, nothing will happen.
        self.open.clear(&mut supplies.blocks);
        self.lane.take_held().into_iter().for_each(|mut batch| batch.clear(&mut supplies.blocks));
        if self.lane.is_idle() {
            self.lane.abandon(&mut supplies.blocks);
        }
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        drop(self.lane.take_held());
        self.lane.end();
    }
}

impl fmt::Debug for CudaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaStream").field("lane", &self.lane).field("reported", &self.reported).finish_non_exhaustive()
    }
}
