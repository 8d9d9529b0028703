//! What a client talks to: the [`Server`] trait, and the capability traits a server hands out.
//!
//! A server belongs to one device. Its executor calls it from any thread, one at a time, in the order in which operations were accepted;
//! [`Server::enter`] tells it when the thread changes. The contract, for whoever writes one:
//!
//! - Every operation carries its [`Moment`]. Numbers increase from call to call; the parts of one operation have one. A stream's operations
//!   MUST take effect in their order, and operations of different streams in an order that respects the bytes they touch: a read sees
//!   every write accepted before it.
//! - An operation MUST NOT block on the device. It is encoded, or put aside until it can be; `poll` tells when a moment is done.
//! - An operation that fails, at once or later, MUST leave its cause on every byte it would have written. An operation that reads such
//!   bytes is skipped and hands the cause on. `read`, `check` name each cause once.
//! - A handle given by reference is only borrowed. A server that puts an operation aside MUST keep clones of its handles until the
//!   operation is with the driver, and MUST NOT reuse memory before the work that touches it is done.
//! - Nothing may panic on bad input: the client has checked what can be known on the caller's thread, the rest is a failure on the bytes.
//! - Wakers and promises are collected and woken by the executor after `leave`, never inside a call.

use crate::access::Access;
use crate::allocation::AllocationMode;
use crate::budget::MemoryBudget;
use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::executor::{Notifier, Wakers};
use crate::foreign::Foreign;
use crate::grid::Grid;
use crate::handle::Handle;
use crate::id::{MemoryId, StreamId};
use crate::kernel::KernelHandle;
use crate::layout::Rows;
use crate::platform::Deadline;
use crate::pool_layout::PoolLayout;
use crate::promise::Promise;
use crate::report::{MemoryReport, MemoryUsage, ReportScope};
use crate::sink::Sink;
use crate::staging::PinnedMemory;
use crate::timeline::Moment;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::task::{Poll, Waker};

/// What a client talks to. See the module's head for the contract.
pub trait Server: Send + 'static {
    /// Itself, for those who know its type; a server around a server answers the one inside.
    fn as_any(&mut self) -> &mut dyn Any;

    /// Called once before anything else. Whatever learns that the hardware has finished something calls the notifier, from any thread;
    /// [`progress`](Self::progress) follows.
    fn start(&mut self, notifier: Notifier);

    /// The calls that follow come from another thread than the last ones.
    ///
    /// Equivalent to: the place for `cuCtxSetCurrent`.
    fn enter(&mut self) {}

    /// Looks what the hardware has finished: completes moments, submits what waited for that, goes on with streams that were put aside.
    fn progress(&mut self);

    /// The caller is about to release the device: the wakers to wake after that.
    fn leave(&mut self) -> Wakers;

    /// A call panicked and was caught; `seq` is the operation's number.
    fn panicked(&mut self, seq: u64, message: &str);

    /// The fault of the device itself, once there is one. Everything pending has then been answered with it.
    fn fault(&self) -> Option<&Error>;

    /// How many of the operations accepted up to a number are not done, on all streams. It only falls, and a blocking call's deadline
    /// starts again when it has: a number has finitely many before it, so others who keep the device busy keep nobody waiting for ever.
    fn unfinished(&self, up_to: u64) -> usize;

    /// Reserves memory for a new allocation. On failure the cause lies on all of it.
    ///
    /// Equivalent to: `cuMemAllocAsync`; `vkAllocateMemory` and `vkBindBufferMemory`; `create_buffer`.
    fn reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode);

    /// [`reserve`](Self::reserve) for a caller that may give memory back: where there is none, nothing is reserved and nothing marked. The
    /// caller then asks again with the same number, memory having been freed between, or says with [`refuse`](Self::refuse) that it will not.
    ///
    /// By default it reserves, and what fails is marked: such a server is never asked again.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn try_reserve(&mut self, at: Moment, memory: &Handle, mode: AllocationMode) -> Result<()> {
        self.reserve(at, memory, mode);
        Ok(())
    }

    /// The allocation that [`try_reserve`](Self::try_reserve) found no memory for is not made: the cause lies on all of it. MUST be implemented
    /// where `try_reserve` is.
    fn refuse(&mut self, _at: Moment, _memory: &Handle, _cause: Error) {}

    /// Nobody holds the allocation any more.
    ///
    /// Equivalent to: `cuMemFreeAsync`.
    fn free(&mut self, memory: MemoryId);

    /// Writes host bytes into device memory, replacing it.
    ///
    /// Equivalent to: `cuMemcpyHtoDAsync`, `cuMemcpy2DAsync`; `vkCmdCopyBuffer` from staging; `write_buffer`.
    fn write(&mut self, at: Moment, target: &Region, data: Payload<'_>);

    /// Reads device memory, each region into bytes of its own without gaps. The promise is given when the bytes are there, or with the
    /// failures that lie on them.
    ///
    /// Equivalent to: `cuMemcpyDtoHAsync`; `vkCmdCopyBuffer` to staging; `map_async`.
    fn read(&mut self, at: Moment, sources: &[Region], into: Promise<Vec<Bytes>>);

    /// Copies on the device. The regions hold equally many bytes and do not overlap.
    ///
    /// Equivalent to: `cuMemcpyDtoDAsync`; `vkCmdCopyBuffer`; `copy_buffer_to_buffer`.
    fn copy(&mut self, at: Moment, source: &Region, target: &Region);

    /// Fills with a repeated pattern, whose length divides the range's.
    ///
    /// Equivalent to: `cuMemsetD8Async` and its like; `vkCmdFillBuffer`; `clear_buffer`.
    fn fill(&mut self, at: Moment, target: &Handle, pattern: Pattern);

    /// Runs a kernel. The arguments fit the kernel's interface and the device's limits.
    ///
    /// Equivalent to: `cuLaunchKernel`; `vkCmdDispatch`; `dispatch_workgroups`.
    fn launch(&mut self, at: Moment, launch: &Launch<'_>);

    /// An operation without effect: done when the stream's work before it is.
    ///
    /// Equivalent to: `cuEventRecord`.
    fn mark(&mut self, at: Moment);

    /// What the stream does next comes after this.
    ///
    /// Equivalent to: `cuStreamWaitEvent`; a wait on a timeline semaphore.
    fn wait(&mut self, at: Moment, until: Until);

    /// Hands everything queued on the stream to the driver.
    ///
    /// # Errors
    /// The device's fault, no failure of an operation.
    fn flush(&mut self, stream: StreamId) -> Result<()>;

    /// Whether a moment is done; else the waker is kept and woken when it is.
    fn poll(&mut self, at: Moment, waker: &Waker) -> Poll<Result<()>>;

    /// Gives the promise when the moment is done.
    fn signal(&mut self, at: Moment, promise: Promise<()>);

    /// The failures that lie on bytes now, each once.
    ///
    /// # Errors
    /// The one failure or [`Error::Several`].
    fn check(&mut self, targets: &[Handle]) -> Result<()>;

    /// Compiles a kernel unless that was done; a failure is kept and answered again.
    ///
    /// # Errors
    /// [`Error::Compile`], or the device's fault.
    fn compile(&mut self, kernel: &KernelHandle, bounds: Bounds) -> Result<()>;

    /// Compiles the first of these kernels, and together with it as many of those that follow as the device compiles at the same time.
    /// Answers for each of them, as [`compile`](Self::compile) does, in their order; whoever wants the rest asks again. MUST answer for at
    /// least one, unless none is given.
    ///
    /// Equivalent to: `vkCreateComputePipelines` of several, `nvrtcCompileProgram` on several threads.
    fn compile_together(&mut self, kernels: &[(KernelHandle, Bounds)]) -> Vec<Result<()>> {
        kernels.first().map(|(kernel, bounds)| self.compile(kernel, *bounds)).into_iter().collect()
    }

    /// Nobody holds the kernel of this slot any more: what was compiled for it goes, and the slot will be another kernel's.
    ///
    /// Equivalent to: `cuModuleUnload`; `vkDestroyPipeline`.
    fn retire_kernel(&mut self, _slot: u32) {}

    /// What the cache of compiled code did.
    fn compile_statistics(&self) -> CompileStatistics {
        CompileStatistics::default()
    }

    /// Ends the server: waits until the deadline for what the driver has, abandons the rest and says how many operations that was. Every
    /// promise and waker is answered. Memory goes back to the driver.
    fn shutdown(&mut self, deadline: &Deadline) -> usize;

    /// Control over the device's memory.
    fn memory(&mut self) -> Option<&mut dyn MemoryServer> {
        None
    }

    /// Host memory that the device reads and writes directly.
    fn staging(&mut self) -> Option<&mut dyn StagingServer> {
        None
    }

    /// Access to device memory from outside the runtime, in place.
    fn access(&mut self) -> Option<&mut dyn AccessServer> {
        None
    }

    /// Memory and events of somebody else.
    fn foreign(&mut self) -> Option<&mut dyn ForeignServer> {
        None
    }
}

/// A capability: page-locked host memory.
pub trait StagingServer {
    /// New host memory of `size` bytes, page-locked for the device. What is in it is not defined.
    ///
    /// Equivalent to: `cuMemHostAlloc`; `vkAllocateMemory` of a host-visible type, mapped; a buffer of `wgpu` mapped at creation.
    ///
    /// # Errors
    /// The driver's refusal; whoever asked then uses plain memory. The device's fault.
    fn pin(&mut self, size: usize) -> Result<Box<dyn PinnedMemory>>;
}

/// A capability: reports about the device's memory, and its cleaning up.
pub trait MemoryServer {
    /// The few numbers asked for often, kept as the pools work.
    fn usage(&self) -> MemoryUsage;

    /// Pool by pool.
    fn report(&self, scope: ReportScope) -> MemoryReport;

    /// What driver and pools say of the memory there is to use. By default only what the pools hold; what concerns a client is left out.
    ///
    /// Equivalent to: `cuMemGetInfo`; `VK_EXT_memory_budget`.
    fn budget(&self) -> MemoryBudget {
        let usage = self.usage();
        MemoryBudget { reserved: usage.reserved, live: usage.live, ..MemoryBudget::default() }
    }

    /// Returns every free page to the driver.
    ///
    /// Equivalent to: `cuMemPoolTrimTo(0)`.
    ///
    /// # Errors
    /// The device's fault.
    fn cleanup(&mut self) -> Result<()>;

    /// Puts another layout of pools in the place of the one there is. It governs new pages at once; pages of the layout before go back to
    /// the driver as they become empty. Persistent and dedicated allocations are not touched. `None` from a server without layouts, which
    /// is the default.
    ///
    /// # Errors
    /// [`Error::InvalidLayout`] for what this device cannot have, with nothing changed; the device's fault.
    fn install_pools(&mut self, _layout: &PoolLayout) -> Option<Result<()>> {
        None
    }

    /// Writing down what becomes of the memory.
    fn recording(&mut self) -> Option<&mut dyn RecordingServer> {
        None
    }
}

/// A capability: writing down every request for the device's memory and every free, in the order in which they take effect.
///
/// A sink that fails ends the recording. The device goes on, and the reason is logged and told by
/// [`stop_recording`](Self::stop_recording).
pub trait RecordingServer {
    /// Whether a recording runs. May be asked before [`Server::start`].
    fn is_recording(&self) -> bool;

    /// Begins, with what is live. May come before [`Server::start`], so that nothing is missed.
    ///
    /// # Errors
    /// [`Error::Busy`] while a recording runs; [`Error::File`] when the sink does not take the beginning.
    fn start_recording(&mut self, sink: Box<dyn Sink + Send>) -> Result<()>;

    /// Writes the usage of now under a label. Without effect while nothing is recorded.
    fn snapshot(&mut self, label: &str);

    /// Ends the recording that runs, or tells how the last one ended; `None` where there was none since the last call.
    fn stop_recording(&mut self) -> Option<MemoryRecording>;
}

/// What came of a recording of the device's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemoryRecording {
    /// How many events were written.
    pub events: u64,
    /// Why the sink took no more, if it failed; the text then lacks its end.
    pub fault: Option<String>,
}

/// A capability: somebody outside the runtime uses device memory in place, ordered like an operation.
pub trait AccessServer {
    /// Asks for a range. The promise is given when everything the access must come after is done; from then until
    /// [`close`](Self::close) everything that must come after the access waits for it. `at` is on a stream of the access's own.
    fn open(&mut self, at: Moment, target: &Handle, access: Access, granted: Promise<Grant>);

    /// The access is over, granted or not. With a failure, the bytes it would have written are marked with it.
    fn close(&mut self, at: Moment, failure: Option<Error>);
}

/// A capability: memory and events that belong to somebody else, of the types that the backend documents, and events of this device for
/// somebody else.
pub trait ForeignServer {
    /// Foreign memory is the allocation's from here on, without a copy; it has as many bytes. Takes the place of
    /// [`Server::reserve`].
    ///
    /// The server holds `foreign` until the memory was freed and all that was asked of it is done, and then hands it over with its wakers
    /// ([`Foreign::let_go`]).
    ///
    /// Equivalent to: `cuImportExternalMemory`; `VkImportMemoryFdInfoKHR`; `Device::create_buffer_from_hal` of wgpu.
    ///
    /// # Errors
    /// [`Error::ServiceMismatch`] for a type that the backend does not take, [`Error::Misaligned`] and what else the driver refuses, the
    /// device's fault. Nothing was then reserved, and nothing is held.
    fn import(&mut self, at: Moment, memory: &Handle, foreign: &Foreign) -> Result<()>;

    /// The moment, on a stream of its own, is done when the foreign event has happened. The server holds `event` until then.
    ///
    /// Equivalent to: `cuWaitExternalSemaphoresAsync`; a wait on an imported semaphore.
    ///
    /// # Errors
    /// As for [`import`](Self::import).
    fn import_event(&mut self, at: Moment, event: &Foreign) -> Result<()>;

    /// An event of the backend's own type, which happens when the moment, the latest of its stream, is done.
    ///
    /// Equivalent to: `cuSignalExternalSemaphoresAsync`; the value of a timeline semaphore.
    ///
    /// # Errors
    /// [`Error::Unsupported`] from a device without events, the device's fault.
    fn export_event(&mut self, at: Moment) -> Result<alloc::sync::Arc<dyn Any + Send + Sync>>;
}

/// What an access is given: the backend's own resource, and the bytes themselves where the host can reach them.
#[derive(Clone)]
pub struct Grant {
    /// The backend's resource, of a type it documents; the range is inside it. Shared, so that a grant can be cloned.
    pub resource: alloc::sync::Arc<dyn Any + Send + Sync>,
    /// The bytes of the range.
    pub host: Option<alloc::sync::Arc<dyn HostMemory>>,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant").field("host", &self.host.is_some()).finish_non_exhaustive()
    }
}

/// Device memory the host can reach, while an access to it is granted. Offsets are from the start of the range granted.
pub trait HostMemory: Send + Sync {
    /// Copies out. `into` MUST lie within the range granted; what does not is left as it was.
    fn read(&self, offset: u64, into: &mut [u8]);

    /// Copies in; without effect where the access granted does not write. One thread at a time.
    fn write(&self, offset: u64, from: &[u8]);
}

/// A tensor's rows in device memory: a handle and the rows in it, which begin at the handle's start.
#[derive(Clone, Debug)]
pub struct Region {
    /// The bytes.
    pub handle: Handle,
    /// The rows; `None` for all of the handle's bytes.
    pub rows: Option<Rows>,
}

impl Region {
    /// All bytes of a handle.
    pub fn whole(handle: &Handle) -> Self {
        Self { handle: handle.clone(), rows: None }
    }

    /// Bytes in the rows.
    pub fn size(&self) -> u64 {
        self.rows.as_ref().map_or_else(|| self.handle.size_in_used(), Rows::size)
    }

    /// The rows, also where they are one.
    pub fn rows(&self) -> Rows {
        self.rows.clone().unwrap_or_else(|| Rows::single(self.handle.size_in_used()))
    }
}

/// What is written: bytes at hand, or bytes that somebody promised.
#[derive(Clone, Debug)]
pub enum Payload<'a> {
    /// Bytes at hand.
    Bytes(Bytes),
    /// Bytes at hand that are the caller's again after the call: a server that does not write them at once copies them.
    Slice(&'a [u8]),
    /// The first of the bytes promised. The stream is put aside until they are there; when the promise fails, the target is marked
    /// with the failure.
    Promised(Promise<Vec<Bytes>>),
}

/// What a stream waits for.
#[derive(Clone, Debug)]
pub enum Until {
    /// A moment of the same device.
    Moment(Moment),
    /// Something that is no work of this device. The stream is put aside until it is given, whatever the result.
    Promised(Promise<()>),
}

/// What a fill repeats: 1, 2, 4, 8 or 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    bytes: [u8; 16],
    length: u8,
}

impl Pattern {
    /// A pattern of these bytes.
    ///
    /// # Errors
    /// [`Error::WrongLength`] unless there are 1, 2, 4, 8 or 16.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if !bytes.len().is_power_of_two() || bytes.len() > 16 {
            return Err(Error::WrongLength {
                what: "fill pattern (1, 2, 4, 8 or 16 bytes)".into(),
                got: bytes.len() as u64,
                expected: 16,
            });
        }
        let mut pattern = Self { bytes: [0; 16], length: bytes.len() as u8 };
        pattern.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(pattern)
    }

    /// The pattern.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// One launch, checked.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel, prepared for this server.
    pub kernel: &'a KernelHandle,
    /// How many workgroups. Static counts are within the limits and not zero.
    pub grid: &'a Grid,
    /// The buffers, as many as the interface declares.
    pub buffers: &'a [Handle],
    /// The parameters, as long as the interface declares.
    pub parameters: &'a [u8],
    /// What happens to an access outside a buffer.
    pub bounds: Bounds,
}

/// What a kernel's access outside a buffer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Bounds {
    /// No harm: it is kept inside the buffer, dropped, or reported.
    #[default]
    Checked,
    /// Whatever it does; the caller vouches that there is none.
    Unchecked,
    /// A failure of the launch that names the kernel and the buffer, where the device can; else as `Checked`.
    Validated,
}

/// What the cache of compiled code did since the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CompileStatistics {
    /// Kernels compiled from source.
    pub compiled: u64,
    /// Kernels that did not compile.
    pub failed: u64,
    /// Kernels whose code was read from disk.
    pub from_disk: u64,
    /// Files that were damaged and ignored.
    pub damaged: Vec<String>,
}

impl CompileStatistics {
    /// What was done after `earlier` was told.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            compiled: self.compiled.saturating_sub(earlier.compiled),
            failed: self.failed.saturating_sub(earlier.failed),
            from_disk: self.from_disk.saturating_sub(earlier.from_disk),
            damaged: self.damaged.get(earlier.damaged.len()..).unwrap_or_default().to_vec(),
        }
    }
}

/// A server and what is known about it, as a backend opens it.
pub struct Opened {
    /// The server.
    pub server: Box<dyn Server>,
    /// The device's properties.
    pub properties: crate::properties::DeviceProperties,
    /// Reads kernels without the device.
    pub reader: alloc::sync::Arc<dyn crate::kernel::KernelReader>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("properties", &self.properties).finish_non_exhaustive()
    }
}
