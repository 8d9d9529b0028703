//! Streams: command buffers in order, what each of them uses until it is finished, and what came of it.
//!
//! A stream belongs to one queue. Its open batch is a command buffer that is begun with the first operation. On submission it becomes the
//! newest of those in flight, with everything it uses: staging blocks, descriptor pools, code, page-locked bytes. `poll` takes finished
//! batches out, oldest first, and all of that goes round.
//!
//! What makes writes visible:
//! - Between operations of the stream, and for what another stream of the same queue did before, a full barrier where the driver was told
//!   to put one or to wait. A barrier comes after everything that was submitted to its queue before.
//! - For what another queue did, the wait for its semaphore.
//! - For what was seen to be finished on the host, and so is neither waited for nor behind a barrier, a command buffer begins with a
//!   barrier that waits for nothing: those writes are available since their signal, and it makes them visible.
//! - For the host, a command buffer whose writes the host may look at ends with a barrier to it, since a signal alone reaches devices only.

use crate::blocks::{Arena, Blocks, Piece};
use crate::descriptors::{Pools, SetPool};
use crate::device::Device;
use crate::event::{Signal, VulkanEvent};
use crate::failure::failed;
use crate::kernel::Pipeline;
use crate::launch::Bound;
use crate::queue::{Links, Queue, Wait};
use crate::recording_memory::RecordingMemory;
use crate::staging::{Direction, StagingBlock};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;
use core::fmt;
use core::mem;
use smallvec::SmallVec;
use trunnion_backend_core::driver::Outcome;
use trunnion_backend_core::exit::Inside;
use trunnion_backend_core::loss::Loss;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::grid::Grid;

use vk::AccessFlags as A;
use vk::PipelineStageFlags as Stage;

/// The stages that use device memory.
const WORK: Stage = Stage::from_raw(Stage::COMPUTE_SHADER.as_raw() | Stage::TRANSFER.as_raw());
const WORK_AND_COUNTS: Stage = Stage::from_raw(WORK.as_raw() | Stage::DRAW_INDIRECT.as_raw());
const WRITES: A = A::from_raw(A::SHADER_WRITE.as_raw() | A::TRANSFER_WRITE.as_raw());
const USES: A = A::from_raw(
    WRITES.as_raw()
        | A::SHADER_READ.as_raw()
        | A::TRANSFER_READ.as_raw()
        | A::UNIFORM_READ.as_raw()
        | A::INDIRECT_COMMAND_READ.as_raw(),
);

/// Batches kept to be filled again.
const SPARE: usize = 32;

/// What the streams of a driver share, take from and give back to.
pub(crate) struct Supplies {
    pub(crate) device: Arc<Device>,
    pub(crate) loss: Arc<Loss>,
    pub(crate) blocks: Blocks,
    pub(crate) pools: Pools,
    /// What stands for buffers of too few bytes for one element: memory where nothing else lies.
    pub(crate) nothing: Arc<StagingBlock>,
    /// Regions of the copy that is being recorded.
    pub(crate) regions: Vec<vk::BufferCopy>,
}

/// A queue's share, with the batch that is being encoded.
///
/// Equivalent to: a `VkCommandPool` with the command buffers of it that are in flight.
pub struct VulkanStream {
    device: Arc<Device>,
    queue: Arc<Queue>,
    pool: vk::CommandPool,
    /// What the pool's command buffers are recorded in.
    recording: RecordingMemory,
    pub(crate) open: Batch,
    flight: VecDeque<Batch>,
    spare: Vec<Batch>,
    is_barrier_due: bool,
    /// What the last dispatch of the open batch was bound to.
    pub(crate) bound: Bound,
    reported: u64,
    barriers: u64,
    // As long as it has not ended, the device may work for it.
    _inside: Inside,
}

/// Operations that are submitted together, and what they use until they are finished.
pub(crate) struct Batch {
    /// Null until the batch is first begun.
    command: vk::CommandBuffer,
    is_recording: bool,
    waits: SmallVec<[Wait; 2]>,
    /// Events of somebody else that it waits for, and events for somebody else that it makes happen.
    events: Vec<Foreign>,
    signals: Vec<Arc<Signal>>,
    /// The number of its submission to the queue, and of its last operation.
    submission: u64,
    seq: u64,
    pub(crate) uploads: Arena,
    pub(crate) downloads: Arena,
    pub(crate) sets: Vec<SetPool>,
    code: Vec<Arc<Pipeline>>,
    pub(crate) pinned: Vec<Bytes>,
    pub(crate) reads: Vec<Read>,
    /// Launches whose counts are in memory: the operation, and where the counts were put for the host to see.
    pub(crate) grids: Vec<(u64, Piece)>,
}

/// A read under way.
pub(crate) struct Read {
    pub(crate) seq: u64,
    pub(crate) index: usize,
    pub(crate) into: HostBuffer,
    /// Where its bytes are put, one piece after the other.
    pub(crate) pieces: SmallVec<[(Piece, usize); 1]>,
}

impl Batch {
    fn new() -> Self {
        Self {
            command: vk::CommandBuffer::null(),
            is_recording: false,
            waits: SmallVec::new(),
            events: Vec::new(),
            signals: Vec::new(),
            submission: 0,
            seq: 0,
            uploads: Arena::new(Direction::Upload),
            downloads: Arena::new(Direction::Download),
            sets: Vec::new(),
            code: Vec::new(),
            pinned: Vec::new(),
            reads: Vec::new(),
            grids: Vec::new(),
        }
    }

    /// Keeps code until the batch is finished.
    pub(crate) fn hold(&mut self, code: &Arc<Pipeline>) {
        // Not the whole list: to keep code twice does no harm.
        if !self.code.iter().rev().take(8).any(|known| Arc::ptr_eq(known, code)) {
            self.code.push(code.clone());
        }
    }

    /// Gives back what it used. The device is done with all of it.
    fn clear(&mut self, supplies: &mut Supplies) {
        self.is_recording = false;
        self.waits.clear();
        self.events.clear();
        self.signals.clear();
        self.uploads.clear(&mut supplies.blocks);
        self.downloads.clear(&mut supplies.blocks);
        supplies.pools.give(&mut self.sets);
        self.code.clear();
        self.pinned.clear();
        self.reads.clear();
        self.grids.clear();
    }
}

impl VulkanStream {
    /// # Errors
    /// What the driver answers.
    pub(crate) fn new(device: &Arc<Device>, loss: &Loss, queue: &Arc<Queue>) -> Result<Self> {
        let flags = vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER | vk::CommandPoolCreateFlags::TRANSIENT;
        let info = vk::CommandPoolCreateInfo::default().flags(flags).queue_family_index(queue.family());
        let recording = RecordingMemory::new();
        // SAFETY: the family is one the device was made with, and the memory stays as long as the pool.
        let pool = unsafe { device.raw.create_command_pool(&info, Some(&recording.callbacks())) }
            .map_err(|result| loss.note(failed("vkCreateCommandPool", result)))?;
        Ok(Self {
            device: device.clone(),
            queue: queue.clone(),
            pool,
            recording,
            open: Batch::new(),
            flight: VecDeque::new(),
            spare: Vec::new(),
            is_barrier_due: false,
            bound: Bound::default(),
            reported: 0,
            barriers: 0,
            _inside: Inside::new(),
        })
    }

    /// How many full barriers were recorded.
    pub fn barriers(&self) -> u64 {
        self.barriers
    }

    /// The next operation comes after all before it.
    pub(crate) fn barrier(&mut self) {
        self.is_barrier_due = true;
    }

    /// What follows comes after the operation `seq` of the other stream.
    pub(crate) fn wait(&mut self, other: &Self, seq: u64) {
        let Some(batch) = other.flight.iter().find(|batch| batch.seq >= seq) else {
            // It was reported as finished, and the next command buffer makes it visible.
            return;
        };
        if Arc::ptr_eq(&self.queue, &other.queue) {
            self.is_barrier_due = true;
            return;
        }
        match self.open.waits.iter_mut().find(|(queue, _)| Arc::ptr_eq(queue, &other.queue)) {
            Some((_, known)) => *known = batch.submission.max(*known),
            None => self.open.waits.push((other.queue.clone(), batch.submission)),
        }
    }

    /// What follows comes after an event of somebody else.
    ///
    /// # Errors
    /// [`Error::ServiceMismatch`] unless it is a [`VulkanEvent`]; [`Error::Incompatible`] for one that another logical device handed out;
    /// [`Error::Busy`] for one of this device that is not with a queue yet, which this queue could never get to.
    pub(crate) fn import_event(&mut self, event: &Foreign) -> Result<()> {
        let known: &VulkanEvent = event.get()?;
        if !known.is_of(&self.device) {
            let why = "it is of another logical device, whose semaphores this one cannot wait for".into();
            return Err(Error::Incompatible { what: "imported event".into(), why });
        }
        if !known.is_on_its_way() {
            return Err(Error::Busy { what: "what makes the event happen waits itself".into() });
        }
        self.open.events.push(event.clone());
        Ok(())
    }

    /// An event that happens with what was encoded.
    ///
    /// # Errors
    /// What the driver answers.
    pub(crate) fn export_event(&mut self, loss: &Loss) -> Result<VulkanEvent> {
        let signal = Arc::new(Signal::new(&self.device, loss)?);
        self.open.signals.push(signal.clone());
        Ok(VulkanEvent::of(signal))
    }

    /// The command buffer to record the next operation in: begun, and behind the barrier that is due.
    ///
    /// # Errors
    /// What the driver answers; nothing was then recorded.
    pub(crate) fn command(&mut self, loss: &Loss) -> Result<vk::CommandBuffer> {
        if !self.open.is_recording {
            self.begin(loss)?;
            if !self.is_barrier_due {
                self.between((Stage::TOP_OF_PIPE, A::empty()), (WORK_AND_COUNTS, USES));
            }
        }
        if mem::take(&mut self.is_barrier_due) {
            self.between((WORK_AND_COUNTS, WRITES), (WORK_AND_COUNTS, USES));
            self.barriers += 1;
        }
        Ok(self.open.command)
    }

    /// The kernel's counts, which a transfer or a kernel of the driver's own wrote, are there for what reads them next.
    pub(crate) fn counts_barrier(&mut self) {
        self.between((WORK, WRITES), (WORK_AND_COUNTS, USES));
    }

    /// Records a barrier in the command buffer, which is begun.
    fn between(&self, (from, wrote): (Stage, A), (to, uses): (Stage, A)) {
        let barrier = [vk::MemoryBarrier::default().src_access_mask(wrote).dst_access_mask(uses)];
        let none = vk::DependencyFlags::empty();
        // SAFETY: the command buffer is this stream's and is being recorded.
        unsafe { self.device.raw.cmd_pipeline_barrier(self.open.command, from, to, none, &barrier, &[], &[]) };
    }

    fn begin(&mut self, loss: &Loss) -> Result<()> {
        if self.open.command == vk::CommandBuffer::null() {
            let info = vk::CommandBufferAllocateInfo::default().command_pool(self.pool).command_buffer_count(1);
            // SAFETY: the pool is this stream's.
            let made = unsafe { self.device.raw.allocate_command_buffers(&info) }
                .map_err(|result| loss.note(failed("vkAllocateCommandBuffers", result)))?;
            self.open.command = made.first().copied().unwrap_or(vk::CommandBuffer::null());
        }
        let info = vk::CommandBufferBeginInfo::default().flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        // SAFETY: the command buffer is not in use: its last batch was finished before it was kept.
        unsafe { self.device.raw.begin_command_buffer(self.open.command, &info) }
            .map_err(|result| loss.note(failed("vkBeginCommandBuffer", result)))?;
        self.open.is_recording = true;
        self.bound = Bound::default();
        Ok(())
    }

    /// Submits what was encoded as everything up to the operation `seq`.
    ///
    /// # Errors
    /// What the driver answers; the batch is then gone.
    pub(crate) fn submit(&mut self, seq: u64, supplies: &mut Supplies) -> Result<()> {
        match self.try_submit(&supplies.loss) {
            Ok(submission) => {
                self.open.signals.iter().for_each(|signal| signal.submitted());
                let next = self.spare.pop().unwrap_or_else(Batch::new);
                let mut batch = mem::replace(&mut self.open, next);
                (batch.submission, batch.seq, batch.is_recording) = (submission, seq, false);
                self.flight.push_back(batch);
                Ok(())
            }
            Err(error) => {
                self.open.signals.iter().for_each(|signal| signal.give_up());
                self.open.clear(supplies);
                // What lay before the batch may not be seen by the next one otherwise.
                self.is_barrier_due = true;
                Err(error)
            }
        }
    }

    fn try_submit(&mut self, loss: &Loss) -> Result<u64> {
        let command = self.open.is_recording.then_some(self.open.command);
        if let Some(command) = command {
            let device = &self.device;
            if device.memory.host_visible || device.shares_memory() || !self.open.downloads.is_empty() {
                self.between((WORK, WRITES), (Stage::HOST, A::HOST_READ | A::HOST_WRITE));
            }
            // SAFETY: the command buffer is this stream's and is being recorded.
            unsafe { device.raw.end_command_buffer(command) }
                .map_err(|result| loss.note(failed("vkEndCommandBuffer", result)))?;
        }
        let event = |event: &Foreign| event.get().ok().map(|event: &VulkanEvent| (event.semaphore(), event.value()));
        let events: SmallVec<[(vk::Semaphore, u64); 1]> = self.open.events.iter().filter_map(event).collect();
        let signals: SmallVec<[(vk::Semaphore, u64); 1]> =
            self.open.signals.iter().map(|signal| (signal.semaphore(), Signal::VALUE)).collect();
        let links = Links { waits: &self.open.waits, events: &events, signals: &signals };
        // SAFETY: the command buffer was just ended, and it, what it uses and the semaphores stay in the batch until that is finished.
        unsafe { self.queue.submit(command, links) }
    }

    /// What the stream has finished, and what came of it.
    ///
    /// # Errors
    /// The device's fault.
    pub(crate) fn poll(&mut self, outcome: &mut Outcome, supplies: &mut Supplies) -> Result<u64> {
        let Some(oldest) = self.flight.front() else { return Ok(self.reported) };
        if !self.queue.has_reached(oldest.submission) {
            self.queue.look()?;
        }
        while let Some(mut batch) = self.flight.pop_front_if(|batch| self.queue.has_reached(batch.submission)) {
            self.reported = batch.seq;
            for read in batch.reads.drain(..) {
                finish_read(read, &batch.downloads, outcome);
            }
            for (seq, counts) in batch.grids.drain(..) {
                let most = supplies.device.properties.limits.max_grid;
                if let Err(error) = check_counts(&batch.downloads, counts, most) {
                    outcome.failed.push((seq, error));
                }
            }
            batch.clear(supplies);
            // The command buffer of a batch that is not kept stays with the pool.
            if self.spare.len() < SPARE {
                self.spare.push(batch);
            } else {
                self.free(batch.command);
            }
        }
        if supplies.blocks.has_surplus() && self.queue.is_idle() {
            supplies.blocks.trim();
        }
        Ok(self.reported)
    }

    fn free(&self, command: vk::CommandBuffer) {
        if command != vk::CommandBuffer::null() {
            // SAFETY: the command buffer is of this pool, and its last submission is finished.
            unsafe { self.device.raw.free_command_buffers(self.pool, &[command]) };
        }
    }

    /// Ends the stream; what its batches used is given back where the device is done with it.
    pub(crate) fn close(mut self, supplies: &mut Supplies) {
        // Of what was not submitted nothing will happen.
        self.open.signals.iter().for_each(|signal| signal.give_up());
        if self.is_idle() {
            self.open.clear(supplies);
            self.flight.drain(..).for_each(|mut batch| batch.clear(supplies));
        }
    }

    fn is_idle(&self) -> bool {
        let Some(newest) = self.flight.back() else { return true };
        self.queue.has_reached(newest.submission)
            || match self.queue.look() {
                Ok(reached) => reached >= newest.submission,
                Err(error) => error.is_device_lost(),
            }
    }
}

impl Drop for VulkanStream {
    fn drop(&mut self) {
        if self.is_idle() {
            // SAFETY: nothing of the pool is in use any more, and it was made with these callbacks.
            unsafe { self.device.raw.destroy_command_pool(self.pool, Some(&self.recording.callbacks())) };
        } else {
            // What the device still uses is left to it, and the device itself too.
            log::warn!("a stream of {} still works: it is left to itself", self.device.properties.info.device);
            mem::forget(mem::take(&mut self.flight));
            mem::forget(mem::replace(&mut self.recording, RecordingMemory::new()));
            mem::forget(self.device.clone());
        }
    }
}

impl fmt::Debug for VulkanStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanStream")
            .field("queue", &self.queue)
            .field("in_flight", &self.flight.len())
            .field("reported", &self.reported)
            .finish_non_exhaustive()
    }
}

/// Hands out the bytes of a read.
fn finish_read(mut read: Read, from: &Arena, outcome: &mut Outcome) {
    let mut rest = read.into.as_mut_slice();
    for (piece, length) in &read.pieces {
        let Some((into, behind)) = rest.split_at_mut_checked(*length) else { break };
        // SAFETY: the piece is the batch's and as long, and the batch, which ended with a barrier to the host, is finished.
        if let Err(error) = unsafe { from.read(*piece, into) } {
            outcome.failed.push((read.seq, error));
            return;
        }
        rest = behind;
    }
    outcome.read.push((read.seq, read.index, read.into));
}

/// Whether the counts that a launch found in memory are within the device's limits.
fn check_counts(from: &Arena, counts: Piece, most: [u32; 3]) -> Result<(), Error> {
    let mut bytes = [0; 12];
    // SAFETY: as for a read.
    unsafe { from.read(counts, &mut bytes) }?;
    let [x, y, z] = core::array::from_fn(|axis| u32::from_ne_bytes(core::array::from_fn(|i| bytes[4 * axis + i])));
    Grid::Static(x, y, z).check(most)
}
