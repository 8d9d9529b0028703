//! What hardware is: the [`Driver`] trait, raw and without policy.
//!
//! A driver assumes valid input. `DriverServer` checks nothing twice: it hands over places it owns, on streams that exist, in an order
//! the tracker found, and keeps pages and streams alive until what uses them is done. What a driver MUST keep:
//!
//! - What is encoded on a stream runs in order, when it is submitted and the stream's waits are over. Nothing runs before `submit`.
//! - Between two encoded operations of one stream that touch the same bytes there is a `barrier` where one is needed.
//! - No call blocks on the device, except `drain`.
//! - When a batch is finished the driver calls its notifier, from any thread; `poll` then tells. Completion is in order within a stream.
//! - A failure that belongs to one operation (a kernel that faulted) is told by `poll` with its number; the stream goes on with the next
//!   operation. A fault of the device is an `Err` of the call that saw it, [`Error::DeviceLost`], and from then on of every call.

use crate::rows::check_extent;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Notifier;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::kernel::{KernelHandle, KernelReader};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::properties::DeviceProperties;
use trunnion_runtime_core::server::{Bounds, Grant, Pattern};
use trunnion_runtime_core::staging::PinnedMemory;

/// An API to one device.
///
/// # Safety
/// The functions that are `unsafe` may assume what this module's head says. An implementation MUST run nothing but what was encoded,
/// on the bytes it was encoded with, so that whoever orders the encoding decides what can race.
pub unsafe trait Driver: Send + Sized + 'static {
    /// A piece of device memory, allocated at once.
    ///
    /// Equivalent to: a `CUdeviceptr`; a `VkDeviceMemory` with the buffer over it; a `wgpu::Buffer`.
    type Page: Send + Sync + 'static;

    /// A queue with the batch that is being encoded for it.
    ///
    /// Equivalent to: a `CUstream`; a timeline semaphore and a command buffer; a `wgpu::CommandEncoder`.
    type Stream: Send + 'static;

    /// A compiled kernel. It may be dropped while operations encoded with it are unfinished: a driver whose API forbids that keeps
    /// what it needs until they are.
    ///
    /// Equivalent to: a `CUfunction`; a `VkPipeline`; a `wgpu::ComputePipeline`.
    type Code: Send + Sync + 'static;

    /// The device's properties.
    fn properties(&self) -> &DeviceProperties;

    /// What reads kernels for it.
    fn reader(&self) -> Arc<dyn KernelReader>;

    /// Called once before anything is encoded.
    fn start(&mut self, notifier: Notifier);

    /// The calls that follow come from another thread.
    fn enter(&mut self) {}

    // ---- memory

    /// Allocates a page of `size` bytes, a multiple of [`page_alignment`](Self::page_alignment).
    ///
    /// # Errors
    /// [`DriverRefusal`]; `out_of_memory` says whether giving something back would help.
    fn allocate(&mut self, size: u64) -> Result<Self::Page, DriverRefusal>;

    /// In what steps pages grow where they are, in bytes: a multiple of [`page_alignment`](Self::page_alignment). `None`, which is the
    /// default, where a page stays as it is. It stays the same.
    fn growth_step(&self) -> Option<u64> {
        None
    }

    /// Allocates a page of `size` bytes that is to [`grow`](Self::grow) up to `reach` bytes, both multiples of
    /// [`growth_step`](Self::growth_step). A page that stays as it is will do too, which is the default.
    ///
    /// Equivalent to: `cuMemAddressReserve` of more than is mapped.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    fn allocate_growing(&mut self, size: u64, _reach: u64) -> Result<Self::Page, DriverRefusal> {
        self.allocate(size)
    }

    /// Makes a page `size` bytes long, a multiple of [`growth_step`](Self::growth_step) that is above the size it has. The page keeps its
    /// address and what is in it; operations on it may be encoded or under way.
    ///
    /// Equivalent to: `cuMemMap` into a reserved range; nothing in Vulkan, where a buffer that is not sparse is bound once; nothing in wgpu.
    ///
    /// # Errors
    /// [`DriverRefusal`]: the page is as it was. Where that does not say `out_of_memory` it grows no more. The default refuses.
    fn grow(&mut self, _page: &mut Self::Page, size: u64) -> Result<(), DriverRefusal> {
        let message = alloc::format!("a page of {size} bytes: pages of this driver stay as they are");
        Err(DriverRefusal { message, out_of_memory: false })
    }

    /// Gives a page back. Nothing uses it any more.
    fn release(&mut self, page: Self::Page);

    /// What page sizes, and the places inside pages, are multiples of: a power of two that suits every use.
    fn page_alignment(&self) -> u64;

    /// The memory the driver says is free, where it says.
    fn free_memory(&self) -> Option<u64> {
        None
    }

    /// What the driver says of the device's memory; by default what the device's limits and [`free_memory`](Self::free_memory) say.
    ///
    /// Equivalent to: `cuMemGetInfo`; `VkPhysicalDeviceMemoryBudgetPropertiesEXT`.
    fn memory(&self) -> DriverMemory {
        let total = Some(self.properties().limits.memory);
        DriverMemory { total, free: self.free_memory(), ..DriverMemory::default() }
    }

    /// Whether it has host memory that the device reads and writes directly, which [`pin`](Self::pin) gives. It stays as it is.
    fn has_pinned(&self) -> bool {
        false
    }

    /// Page-locks new host memory of `size` bytes. It is given back when it is dropped, on any thread, perhaps after this driver.
    /// Bytes in it come to [`write`](Self::write) as [`Pinned`](trunnion_runtime_core::bytes::BytesProperty::Pinned).
    ///
    /// Equivalent to: `cuMemHostAlloc`; a mapped, host-visible `VkDeviceMemory`.
    ///
    /// # Errors
    /// [`DriverRefusal`]: plain memory is used then.
    fn pin(&mut self, size: usize) -> Result<Box<dyn PinnedMemory>, DriverRefusal> {
        let message = alloc::format!("{size} bytes of page-locked memory: this driver has none");
        Err(DriverRefusal { message, out_of_memory: false })
    }

    // ---- code

    /// Compiles a kernel. `stored` is what an earlier compilation of the same source, options and hardware gave to be kept.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's message. Stored code that is not usable is [`StoredCode::Damaged`], not an error.
    fn compile(&mut self, kernel: &KernelHandle, bounds: Bounds, stored: Option<&[u8]>)
    -> Result<Compiled<Self::Code>>;

    /// How many kernels it compiles at the same time; at least 1.
    fn compiles_at_once(&self) -> usize {
        1
    }

    /// Compiles several kernels, at most [`compiles_at_once`](Self::compiles_at_once), and answers for each in their order, as
    /// [`compile`](Self::compile) does. A driver that can does it on several threads.
    fn compile_together(&mut self, jobs: &[CompileJob<'_>]) -> Vec<Result<Compiled<Self::Code>>> {
        jobs.iter().map(|job| self.compile(job.kernel, job.bounds, job.stored)).collect()
    }

    /// What besides source and hardware the code depends on: the compiler's version and options. Part of the key on disk.
    fn compiler_identity(&self) -> &str;

    // ---- streams

    /// A new stream.
    ///
    /// # Errors
    /// What the driver answers.
    fn open_stream(&mut self) -> Result<Self::Stream>;

    /// Ends a stream on which nothing is unfinished.
    fn close_stream(&mut self, stream: Self::Stream);

    /// What follows on the stream sees what was encoded before.
    ///
    /// Equivalent to: nothing on CUDA; `vkCmdPipelineBarrier2`; nothing on `wgpu`.
    fn barrier(&mut self, stream: &mut Self::Stream);

    /// What follows on the stream starts when `other` has finished its operation `seq`, which was submitted. Called only when nothing
    /// is encoded on the stream and not submitted.
    ///
    /// Equivalent to: `cuStreamWaitEvent`; a wait in `VkSubmitInfo2`.
    fn wait(&mut self, stream: &mut Self::Stream, other: &mut Self::Stream, seq: u64);

    /// Hands what was encoded to the device; when it is done the stream has finished `seq`. With nothing encoded, the stream finishes
    /// `seq` when what it was given before is done, waits included.
    ///
    /// # Errors
    /// What the driver answers; the batch is then gone, and its operations have failed.
    fn submit(&mut self, stream: &mut Self::Stream, seq: u64) -> Result<()>;

    /// What the stream has finished, and what came of it: failures and read bytes are added to `outcome`, each once.
    ///
    /// # Errors
    /// The device's fault, whatever the error is.
    fn poll(&mut self, stream: &mut Self::Stream, outcome: &mut Outcome) -> Result<u64>;

    // ---- encoding, each as operation `seq`

    /// Encodes a launch.
    ///
    /// # Safety
    /// The places stay allocated until the stream has finished `seq`; nothing else that conflicts runs at the same time. So for the others.
    ///
    /// # Errors
    /// What the driver answers; nothing was then encoded. So for the others.
    unsafe fn launch(&mut self, stream: &mut Self::Stream, seq: u64, launch: DriverLaunch<'_, Self>) -> Result<()>;

    /// Encodes a copy; both have equally many bytes in their rows.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    unsafe fn copy(
        &mut self,
        stream: &mut Self::Stream,
        seq: u64,
        source: Place<'_, Self::Page>,
        source_rows: &Rows,
        target: Place<'_, Self::Page>,
        target_rows: &Rows,
    ) -> Result<()>;

    /// Encodes a fill of the whole place.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    unsafe fn fill(
        &mut self,
        stream: &mut Self::Stream,
        seq: u64,
        target: Place<'_, Self::Page>,
        pattern: Pattern,
    ) -> Result<()>;

    /// Encodes a write of host bytes, which are resident.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    unsafe fn write(
        &mut self,
        stream: &mut Self::Stream,
        seq: u64,
        data: Bytes,
        target: Place<'_, Self::Page>,
        rows: &Rows,
    ) -> Result<()>;

    /// Writes host bytes at once, where the host reaches the device's memory and needs nobody for it. False where it does not: nothing
    /// was then done, and the write is encoded.
    ///
    /// # Safety
    /// The place is allocated, and nothing that was encoded and is unfinished touches it.
    unsafe fn write_now(&mut self, _data: &[u8], _target: Place<'_, Self::Page>, _rows: &Rows) -> bool {
        false
    }

    /// Encodes a read into `into`, which is as long as the rows are together; `poll` gives it back with `seq` and `index`.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch).
    ///
    /// # Errors
    /// As for [`launch`](Self::launch).
    unsafe fn read(
        &mut self,
        stream: &mut Self::Stream,
        seq: u64,
        index: usize,
        source: Place<'_, Self::Page>,
        rows: &Rows,
        into: HostBuffer,
    ) -> Result<()>;

    // ---- in place, and the end

    /// The backend's resource for a place, and the host's view of it where there is one.
    ///
    /// # Safety
    /// The place stays allocated while the grant or a clone of it is used.
    unsafe fn grant(&mut self, place: Place<'_, Self::Page>, access: Access) -> Grant;

    // ---- what is somebody else's

    /// A page over memory of somebody else, of a type that the backend documents, without a copy. Nothing of it is allocated, and
    /// [`release`](Self::release) gives nothing back but what this took: the driver keeps a clone of `foreign` wherever it may still use the
    /// memory, which stays as long as there is one. It may be dropped on any thread.
    ///
    /// Equivalent to: `cuImportExternalMemory`; `VkImportMemoryFdInfoKHR`; `Device::create_buffer_from_hal` of wgpu.
    ///
    /// # Errors
    /// [`Error::ServiceMismatch`] for another type ([`Foreign::get`]), [`Error::Misaligned`] and what else cannot be used in place;
    /// [`Error::Unsupported`], which is the default.
    fn import(&mut self, _foreign: &Foreign) -> Result<Imported<Self::Page>> {
        Err(self.unsupported("import"))
    }

    /// What follows on the stream starts when an event of somebody else, of a type that the backend documents, has happened. Called as
    /// [`wait`](Self::wait) is, on a stream with nothing else unfinished. The driver keeps a clone of `event` until then.
    ///
    /// Equivalent to: `cuWaitExternalSemaphoresAsync`; a wait on an imported semaphore.
    ///
    /// # Errors
    /// As for [`import`](Self::import).
    fn import_event(&mut self, _stream: &mut Self::Stream, _event: &Foreign) -> Result<()> {
        Err(self.unsupported("import_event"))
    }

    /// An event, of the type that the backend documents, that happens when the stream finishes `seq`, which may not be submitted yet. It may
    /// be held longer than the stream is there, and than this driver.
    ///
    /// Equivalent to: `cuEventRecord`; the timeline semaphore of a stream and the value it will have.
    ///
    /// # Errors
    /// [`Error::Unsupported`], which is the default; what the driver answers.
    fn export_event(&mut self, _stream: &mut Self::Stream, _seq: u64) -> Result<Arc<dyn Any + Send + Sync>> {
        Err(self.unsupported("an event of its own"))
    }

    /// The error for what this driver does not have.
    fn unsupported(&self, what: &'static str) -> Error {
        Error::Unsupported { what: what.into(), backend: self.properties().info.device.backend }
    }

    /// Waits, at most until the deadline, until nothing submitted is unfinished. Whether that was reached.
    fn drain(&mut self, deadline: &Deadline) -> bool;
}

/// Bytes in a page.
#[derive(Debug)]
pub struct Place<'a, P> {
    /// The page.
    pub page: &'a P,
    /// Where the bytes begin in it.
    pub offset: u64,
    /// How many there are.
    pub size: u64,
}

impl<P> Clone for Place<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Place<'_, P> {}

impl<P> Place<'_, P> {
    /// Whether the bytes lie within the page, which has so many.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] names `what` they are.
    pub fn check(&self, what: &'static str, page: u64) -> Result<()> {
        match self.offset.checked_add(self.size) {
            Some(end) if end <= page => Ok(()),
            end => {
                Err(Error::OutOfRange { what: what.into(), range: self.offset..end.unwrap_or(u64::MAX), size: page })
            }
        }
    }

    /// Whether the bytes lie within the page, and rows within them.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub fn check_rows(&self, what: &'static str, rows: &Rows, page: u64) -> Result<()> {
        self.check(what, page)?;
        check_extent(what, rows, self.size)
    }
}

/// A page over memory of somebody else.
#[derive(Debug)]
pub struct Imported<P> {
    /// The page.
    pub page: P,
    /// Where in the page the memory begins.
    pub offset: u64,
}

/// A launch with its arguments resolved.
#[derive(Debug)]
pub struct DriverLaunch<'a, D: Driver> {
    /// The compiled kernel.
    pub code: &'a D::Code,
    /// The kernel it was compiled from.
    pub kernel: &'a KernelHandle,
    /// How many workgroups.
    pub grid: DriverGrid<'a, D::Page>,
    /// The buffers, in the interface's order; of size 0 where no bytes were given.
    pub buffers: &'a [Place<'a, D::Page>],
    /// The parameters.
    pub parameters: &'a [u8],
    /// What an access outside a buffer does.
    pub bounds: Bounds,
}

/// How many workgroups a resolved launch has.
#[derive(Debug)]
pub enum DriverGrid<'a, P> {
    /// Counts, none of them zero, within the device's limits.
    Static([u32; 3]),
    /// Three `u32` in device memory. Counts with a zero run nothing; counts over the limit are a failure of the operation.
    Dynamic(Place<'a, P>),
}

/// A kernel to be compiled together with others.
#[derive(Clone, Copy, Debug)]
pub struct CompileJob<'a> {
    /// The kernel.
    pub kernel: &'a KernelHandle,
    /// What an access outside a buffer does.
    pub bounds: Bounds,
    /// What an earlier compilation of the same source, options and hardware gave to be kept.
    pub stored: Option<&'a [u8]>,
}

/// A compiled kernel, and what to keep of it.
#[derive(Debug)]
pub struct Compiled<C> {
    /// The code.
    pub code: C,
    /// What became of the stored code that was offered.
    pub stored: StoredCode,
}

/// What became of stored code, or what to store.
#[derive(Debug)]
pub enum StoredCode {
    /// Nothing is to be kept: this device keeps nothing, or this code depends on more than source, options and hardware.
    None,
    /// The stored code was used.
    Used,
    /// Newly compiled: keep these bytes.
    Keep(Vec<u8>),
    /// The stored code was damaged, and the kernel was compiled anew: keep these bytes.
    Damaged(Vec<u8>),
}

/// What came of the operations that a stream has finished.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Operations that failed, by number.
    pub failed: Vec<(u64, Error)>,
    /// Bytes that were read: the operation's number, the index it was encoded with, the bytes.
    pub read: Vec<(u64, usize, HostBuffer)>,
}

/// What a driver says of the device's memory, in bytes; `None` where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriverMemory {
    /// What there is.
    pub total: Option<u64>,
    /// What nobody uses.
    pub free: Option<u64>,
    /// What this process may use before the driver swaps or refuses.
    pub process_limit: Option<u64>,
    /// What this process uses.
    pub process_used: Option<u64>,
}

/// A driver that gave no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverRefusal {
    /// What the driver said.
    pub message: alloc::string::String,
    /// Whether giving memory back would help.
    pub out_of_memory: bool,
}
