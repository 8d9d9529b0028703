//! The [`Driver`] of a CUDA device: hands operations to streams, and keeps what they share.
//!
//! The driver trusts what the trait lets it trust, and checks the rest: a place outside its page, or rows outside their place, are typed
//! errors and nothing is encoded. `unsafe` here is the trait's signature, and calls made under its promise.

use crate::blocks::Blocks;
use crate::compiler::Compiler;
use crate::device::Device;
use crate::import;
use crate::kernel::{self, CudaCode};
use crate::lane::Lane;
use crate::pinned::{self, PinnedBlock};
use crate::properties::PAGE_ALIGNMENT;
use crate::reader::CudaReader;
use crate::resource::CudaResource;
use crate::storage::CudaPage;
use crate::stream::{CudaStream, Supplies};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::mem;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::thread;
use trunnion_backend_core::driver::{
    CompileJob, Compiled, Driver, DriverGrid, DriverLaunch, DriverMemory, DriverRefusal, Imported, Outcome, Place,
};
use trunnion_backend_core::exit::{self, Inside, Step};
use trunnion_backend_core::rows::check_length;
use trunnion_backend_core::together;
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

/// Bytes of the memory that stands for buffers of no bytes.
const NOTHING: usize = PAGE_ALIGNMENT as usize;

/// How long a drain sleeps between two looks, at first and at most.
const LOOKS: [Duration; 2] = [Duration::from_micros(10), Duration::from_millis(1)];

/// One CUDA device.
///
/// The resource in its grants is an `Arc<`[`CudaResource`]`>`. Memory of somebody else comes in as [`CudaImport`](crate::CudaImport), events
/// come and go as [`CudaEvent`](crate::CudaEvent)s. Nothing keeps an access of a kernel inside its buffer: one outside of all memory is a fault
/// that the device does not survive.
pub struct CudaDriver {
    device: Arc<Device>,
    compiler: Arc<Compiler>,
    /// What besides source and hardware code depends on.
    identity: String,
    reader: Arc<CudaReader>,
    lanes: Vec<Weak<Lane>>,
    supplies: Supplies,
    notifier: Option<Notifier>,
    _end: End,
    /// While it is dropped; after all that is.
    inside: Option<Inside>,
}

/// Dropped after what takes memory: waits a little until that is given back, so that who opens the device next finds it as if there had
/// been no other.
struct End(Arc<Device>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.reclaim(0);
    }
}

impl CudaDriver {
    /// Drives a device that nobody else drives through the same [`Device`].
    ///
    /// # Errors
    /// What the device answers.
    pub(crate) fn new(device: Arc<Device>) -> Result<Self> {
        exit::after(Step::Opened);
        let supplies = Supplies {
            nothing: PinnedBlock::allocate(&device, NOTHING)?,
            blocks: Blocks::new(&device),
            device: device.clone(),
        };
        let compiler = Arc::new(Compiler::of(&device));
        let identity = format!("trunnion-cuda {}, {}", env!("CARGO_PKG_VERSION"), compiler.identity());
        let reader = Arc::new(CudaReader::new(&compiler));
        let end = End(device.clone());
        Ok(Self {
            device,
            compiler,
            identity,
            reader,
            lanes: Vec::new(),
            supplies,
            notifier: None,
            _end: end,
            inside: None,
        })
    }

    /// A lost device gives no memory.
    fn check_present(&self) -> Result<(), DriverRefusal> {
        let lost = |lost: Error| DriverRefusal { message: lost.to_string(), out_of_memory: false };
        self.device.loss.check().map_err(lost)
    }

    fn lanes(&self) -> impl Iterator<Item = Arc<Lane>> + '_ {
        self.lanes.iter().filter_map(Weak::upgrade)
    }
}

// SAFETY: operations are handed to a stream of CUDA in the order of their encoding, which runs them in that order, on the bytes they were
// encoded with, after `submit` and behind events of what the stream was told to wait for.
unsafe impl Driver for CudaDriver {
    type Page = CudaPage;
    type Stream = CudaStream;
    type Code = CudaCode;

    fn properties(&self) -> &DeviceProperties {
        &self.device.properties
    }

    fn reader(&self) -> Arc<dyn KernelReader> {
        self.reader.clone()
    }

    fn start(&mut self, notifier: Notifier) {
        self.notifier = Some(notifier);
    }

    fn allocate(&mut self, size: u64) -> Result<CudaPage, DriverRefusal> {
        self.check_present()?;
        CudaPage::allocate(&self.device, size, size)
    }

    fn growth_step(&self) -> Option<u64> {
        self.device.granularity
    }

    fn allocate_growing(&mut self, size: u64, reach: u64) -> Result<CudaPage, DriverRefusal> {
        self.check_present()?;
        CudaPage::allocate(&self.device, size, reach)
    }

    fn grow(&mut self, page: &mut CudaPage, size: u64) -> Result<(), DriverRefusal> {
        self.check_present()?;
        page.grow(size)
    }

    fn release(&mut self, page: CudaPage) {
        drop(page);
    }

    fn page_alignment(&self) -> u64 {
        PAGE_ALIGNMENT
    }

    fn free_memory(&self) -> Option<u64> {
        self.memory().free
    }

    fn memory(&self) -> DriverMemory {
        self.device.memory_report()
    }

    fn has_pinned(&self) -> bool {
        true
    }

    fn pin(&mut self, size: usize) -> Result<Box<dyn PinnedMemory>, DriverRefusal> {
        pinned::pin(&self.device, size)
    }

    fn compile(&mut self, kernel: &KernelHandle, bounds: Bounds, stored: Option<&[u8]>) -> Result<Compiled<CudaCode>> {
        self.device.loss.check()?;
        kernel::compile(&self.device, &self.compiler, &CompileJob { kernel, bounds, stored })
    }

    fn compiles_at_once(&self) -> usize {
        together::at_once()
    }

    fn compile_together(&mut self, jobs: &[CompileJob<'_>]) -> Vec<Result<Compiled<CudaCode>>> {
        if let Err(lost) = self.device.loss.check() {
            return jobs.iter().map(|_| Err(lost.clone())).collect();
        }
        let (device, compiler) = (&self.device, &self.compiler);
        together::compile_together(jobs, |job| kernel::compile(device, compiler, job))
    }

    fn compiler_identity(&self) -> &str {
        &self.identity
    }

    fn open_stream(&mut self) -> Result<CudaStream> {
        self.device.loss.check()?;
        let stream = CudaStream::new(&self.device, self.notifier.as_ref())?;
        self.lanes.retain(|lane| lane.strong_count() > 0);
        self.lanes.push(Arc::downgrade(stream.lane()));
        Ok(stream)
    }

    fn close_stream(&mut self, stream: CudaStream) {
        stream.close(&mut self.supplies);
    }

    fn barrier(&mut self, _: &mut CudaStream) {
        // A stream of CUDA does one thing after the other.
    }

    fn wait(&mut self, stream: &mut CudaStream, other: &mut CudaStream, seq: u64) {
        stream.wait(other, seq);
    }

    fn submit(&mut self, stream: &mut CudaStream, seq: u64) -> Result<()> {
        stream.submit(seq, &mut self.supplies)
    }

    fn poll(&mut self, stream: &mut CudaStream, outcome: &mut Outcome) -> Result<u64> {
        self.device.loss.check()?;
        let reported = stream.poll(outcome, &mut self.supplies);
        if self.device.unfinished.load(Ordering::Acquire) == 0 {
            self.supplies.blocks.trim();
        }
        reported
    }

    unsafe fn launch(&mut self, stream: &mut CudaStream, seq: u64, launch: DriverLaunch<'_, Self>) -> Result<()> {
        self.device.loss.check()?;
        for place in launch.buffers {
            place.check("buffer of a launch", place.page.size())?;
        }
        if let DriverGrid::Dynamic(place) = launch.grid {
            place.check("grid in memory", place.page.size())?;
        }
        // SAFETY: the caller's promise; the places were checked.
        unsafe { stream.launch(&mut self.supplies, seq, &launch) }
    }

    unsafe fn copy(
        &mut self,
        stream: &mut CudaStream,
        seq: u64,
        source: Place<'_, CudaPage>,
        source_rows: &Rows,
        target: Place<'_, CudaPage>,
        target_rows: &Rows,
    ) -> Result<()> {
        self.device.loss.check()?;
        source.check_rows("source of a copy", source_rows, source.page.size())?;
        target.check_rows("target of a copy", target_rows, target.page.size())?;
        check_length("copy", source_rows.size(), target_rows)?;
        // SAFETY: the caller's promise; the rows were checked.
        unsafe { stream.copy(&self.supplies, seq, (source, source_rows), (target, target_rows)) };
        Ok(())
    }

    unsafe fn fill(
        &mut self,
        stream: &mut CudaStream,
        seq: u64,
        target: Place<'_, CudaPage>,
        pattern: Pattern,
    ) -> Result<()> {
        self.device.loss.check()?;
        target.check("target of a fill", target.page.size())?;
        // SAFETY: the caller's promise.
        unsafe { stream.fill(seq, target, pattern) };
        Ok(())
    }

    unsafe fn write(
        &mut self,
        stream: &mut CudaStream,
        seq: u64,
        data: Bytes,
        target: Place<'_, CudaPage>,
        rows: &Rows,
    ) -> Result<()> {
        self.device.loss.check()?;
        target.check_rows("target of a write", rows, target.page.size())?;
        check_length("write", data.len() as u64, rows)?;
        // SAFETY: the caller's promise; the rows were checked.
        unsafe { stream.write(&mut self.supplies, seq, data, (target, rows)) }
    }

    unsafe fn read(
        &mut self,
        stream: &mut CudaStream,
        seq: u64,
        index: usize,
        source: Place<'_, CudaPage>,
        rows: &Rows,
        into: HostBuffer,
    ) -> Result<()> {
        self.device.loss.check()?;
        source.check_rows("source of a read", rows, source.page.size())?;
        check_length("read", into.len() as u64, rows)?;
        // SAFETY: the caller's promise; the rows were checked.
        unsafe { stream.read(&mut self.supplies, (seq, index), (source, rows), into) }
    }

    unsafe fn grant(&mut self, place: Place<'_, CudaPage>, access: Access) -> Grant {
        match CudaResource::new(&self.device, place, access) {
            Some(resource) => Grant { resource: Arc::new(resource), host: None },
            // A place outside its page, which the caller promised not to ask for, is no bytes.
            None => Grant { resource: Arc::new(()), host: None },
        }
    }

    fn import(&mut self, foreign: &Foreign) -> Result<Imported<CudaPage>> {
        self.device.loss.check()?;
        import::import(&self.device, foreign)
    }

    fn import_event(&mut self, stream: &mut CudaStream, event: &Foreign) -> Result<()> {
        self.device.loss.check()?;
        stream.import_event(event)
    }

    fn export_event(&mut self, stream: &mut CudaStream, _: u64) -> Result<Arc<dyn Any + Send + Sync>> {
        self.device.loss.check()?;
        Ok(Arc::new(stream.export_event()?))
    }

    fn drain(&mut self, deadline: &Deadline) -> bool {
        // The driver waits for as long as it takes, so it is asked again and again.
        let [mut look, longest] = LOOKS;
        loop {
            if self.lanes().all(|lane| lane.is_idle()) {
                return true;
            }
            if deadline.expired() {
                return false;
            }
            thread::sleep(deadline.remaining().map_or(look, |left| left.min(look)));
            look = (look * 2).min(longest);
        }
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        self.inside = Some(Inside::new());
        // Streams that were left to the device have nothing submitted any more.
        self.lanes().for_each(|lane| lane.give_up_signals(&"its driver ended before"));
        if !self.lanes().all(|lane| lane.is_idle()) {
            // What the device may still use is left to it.
            log::warn!("{} still works: what it uses is left to it", self.device.properties.info.device);
            mem::forget(self.device.clone());
        }
    }
}

impl fmt::Debug for CudaDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDriver")
            .field("device", &self.device)
            .field("streams", &self.lanes().count())
            .field("lost", &self.device.loss.check().is_err())
            .finish_non_exhaustive()
    }
}
