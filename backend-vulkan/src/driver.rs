//! The [`Driver`] of a Vulkan device: hands operations to streams, and keeps what they share.
//!
//! The driver trusts what the trait lets it trust, and checks the rest: a place outside its page, or rows outside their place, are typed
//! errors and nothing is encoded. `unsafe` here is the trait's signature, and calls made under its promise.

use crate::blocks::Blocks;
use crate::descriptors::Pools;
use crate::device::Device;
use crate::grid;
use crate::import;
use crate::kernel::{self, Pipeline, VulkanCode};
use crate::launch::Counts;
use crate::queue::Queue;
use crate::resource::VulkanResource;
use crate::staging::{self, Direction, StagingBlock};
use crate::storage::VulkanPage;
use crate::stream::{Supplies, VulkanStream};
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::mem;
use trunnion_backend_core::driver::{
    CompileJob, Compiled, Driver, DriverGrid, DriverLaunch, DriverMemory, DriverRefusal, Imported, Outcome, Place,
};
use trunnion_backend_core::exit::{self, Inside, Step};
use trunnion_backend_core::loss::Loss;
use trunnion_backend_core::rows::check_length;
use trunnion_backend_core::together;
use trunnion_kernel_wgsl::Reader;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::executor::Notifier;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::kernel::{KernelHandle, KernelReader};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::properties::DeviceProperties;
use trunnion_runtime_core::server::{Bounds, Grant, HostMemory, Pattern};
use trunnion_runtime_core::staging::PinnedMemory;

/// One Vulkan device.
///
/// The resource in its grants is an `Arc<`[`VulkanResource`]`>`. Memory of somebody else comes in as [`VulkanImport`](crate::VulkanImport), events
/// come and go as [`VulkanEvent`](crate::VulkanEvent)s. Streams are spread over the device's queues in turn. With [`Bounds::Checked`]
/// an access of WGSL code outside its buffer is moved to the last element; with [`Bounds::Validated`] too, since the API reports none. SPIR-V
/// runs as it is.
pub struct VulkanDriver {
    device: Arc<Device>,
    loss: Arc<Loss>,
    reader: Arc<Reader>,
    queues: Vec<Arc<Queue>>,
    /// How many streams were opened: the next one's queue.
    opened: usize,
    supplies: Supplies,
    /// The kernel that keeps counts in memory within the limits; made for the first of them.
    checker: Option<Arc<Pipeline>>,
    notifier: Option<Notifier>,
    /// While it is dropped; after all that is.
    inside: Option<Inside>,
}

impl VulkanDriver {
    /// Drives a logical device that nobody else uses.
    ///
    /// # Errors
    /// What the device answers.
    pub(crate) fn new(device: Arc<Device>) -> Result<Self> {
        let loss = Arc::new(Loss::default());
        exit::after(Step::Opened);
        let queue = |(family, raw): &(u32, _)| Queue::new(&device, &loss, *family, *raw).map(Arc::new);
        let queues = device.queues.iter().map(queue).collect::<Result<Vec<_>>>()?;
        if queues.is_empty() {
            let why = "the device has no queue".to_string();
            return Err(Error::BackendUnavailable { backend: crate::NAME, why });
        }
        let size = device.page_alignment();
        let supplies = Supplies {
            // Not a page, which would be counted of the device's memory.
            nothing: StagingBlock::allocate(&device, size, Direction::Upload)
                .map(Arc::new)
                .map_err(|refused| refused.into_error(size))?,
            blocks: Blocks::new(&device),
            pools: Pools::new(&device),
            regions: Vec::new(),
            loss: loss.clone(),
            device: device.clone(),
        };
        let reader = Arc::new(Reader::new(device.properties.features.sources.clone(), device.wgsl));
        Ok(Self { device, loss, reader, queues, opened: 0, supplies, checker: None, notifier: None, inside: None })
    }
}

// SAFETY: operations are recorded in the order of their encoding, with barriers where they were asked for, on the bytes they were encoded
// with, and run after `submit` and behind semaphores of what the stream was told to wait for.
unsafe impl Driver for VulkanDriver {
    type Page = VulkanPage;
    type Stream = VulkanStream;
    type Code = VulkanCode;

    fn properties(&self) -> &DeviceProperties {
        &self.device.properties
    }

    fn reader(&self) -> Arc<dyn KernelReader> {
        self.reader.clone()
    }

    fn start(&mut self, notifier: Notifier) {
        self.notifier = Some(notifier);
    }

    fn allocate(&mut self, size: u64) -> Result<VulkanPage, DriverRefusal> {
        if let Err(lost) = self.loss.check() {
            return Err(DriverRefusal { message: lost.to_string(), out_of_memory: false });
        }
        VulkanPage::allocate(&self.device, size)
    }

    fn release(&mut self, page: VulkanPage) {
        drop(page);
    }

    fn page_alignment(&self) -> u64 {
        self.device.page_alignment()
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
        staging::pin(&self.device, size)
    }

    fn compile(
        &mut self,
        kernel: &KernelHandle,
        bounds: Bounds,
        stored: Option<&[u8]>,
    ) -> Result<Compiled<VulkanCode>> {
        self.loss.check()?;
        kernel::compile(&self.device, &self.loss, &CompileJob { kernel, bounds, stored })
    }

    fn compiles_at_once(&self) -> usize {
        together::at_once()
    }

    fn compile_together(&mut self, jobs: &[CompileJob<'_>]) -> Vec<Result<Compiled<VulkanCode>>> {
        if let Err(lost) = self.loss.check() {
            return jobs.iter().map(|_| Err(lost.clone())).collect();
        }
        together::compile_together(jobs, |job| kernel::compile(&self.device, &self.loss, job))
    }

    fn compiler_identity(&self) -> &str {
        // The driver's compiler is part of the hardware's identity.
        concat!("trunnion-vulkan ", env!("CARGO_PKG_VERSION"), ", naga 30")
    }

    fn open_stream(&mut self) -> Result<VulkanStream> {
        self.loss.check()?;
        let queue = &self.queues[self.opened % self.queues.len()];
        if let Some(notifier) = &self.notifier {
            queue.watch(notifier)?;
        }
        let stream = VulkanStream::new(&self.device, &self.loss, queue)?;
        self.opened = self.opened.wrapping_add(1);
        Ok(stream)
    }

    fn close_stream(&mut self, stream: VulkanStream) {
        stream.close(&mut self.supplies);
    }

    fn barrier(&mut self, stream: &mut VulkanStream) {
        stream.barrier();
    }

    fn wait(&mut self, stream: &mut VulkanStream, other: &mut VulkanStream, seq: u64) {
        stream.wait(other, seq);
    }

    fn submit(&mut self, stream: &mut VulkanStream, seq: u64) -> Result<()> {
        stream.submit(seq, &mut self.supplies)
    }

    fn poll(&mut self, stream: &mut VulkanStream, outcome: &mut Outcome) -> Result<u64> {
        self.loss.check()?;
        stream.poll(outcome, &mut self.supplies)
    }

    unsafe fn launch(&mut self, stream: &mut VulkanStream, seq: u64, launch: DriverLaunch<'_, Self>) -> Result<()> {
        self.loss.check()?;
        for place in launch.buffers {
            place.check("buffer of a launch", place.page.size())?;
        }
        let counts = match launch.grid {
            DriverGrid::Static(counts) => Counts::Known(counts),
            DriverGrid::Dynamic(place) => {
                place.check("grid in memory", place.page.size())?;
                let checker = match &mut self.checker {
                    Some(checker) => checker,
                    none => none.insert(grid::checker(&self.device, &self.loss, &*self.reader)?),
                };
                Counts::InMemory(place, checker)
            }
        };
        let code = &launch.code.0;
        // SAFETY: the caller's promise.
        unsafe { stream.launch(&mut self.supplies, seq, code, counts, launch.buffers, launch.parameters) }
    }

    unsafe fn copy(
        &mut self,
        stream: &mut VulkanStream,
        _: u64,
        source: Place<'_, VulkanPage>,
        source_rows: &Rows,
        target: Place<'_, VulkanPage>,
        target_rows: &Rows,
    ) -> Result<()> {
        self.loss.check()?;
        source.check_rows("source of a copy", source_rows, source.page.size())?;
        target.check_rows("target of a copy", target_rows, target.page.size())?;
        check_length("copy", source_rows.size(), target_rows)?;
        // SAFETY: the caller's promise; the rows were checked.
        unsafe { stream.copy(&mut self.supplies, (source, source_rows), (target, target_rows)) }
    }

    unsafe fn fill(
        &mut self,
        stream: &mut VulkanStream,
        _: u64,
        target: Place<'_, VulkanPage>,
        pattern: Pattern,
    ) -> Result<()> {
        self.loss.check()?;
        target.check("target of a fill", target.page.size())?;
        // SAFETY: the caller's promise.
        unsafe { stream.fill(&mut self.supplies, target, pattern) }
    }

    unsafe fn write(
        &mut self,
        stream: &mut VulkanStream,
        _: u64,
        data: Bytes,
        target: Place<'_, VulkanPage>,
        rows: &Rows,
    ) -> Result<()> {
        self.loss.check()?;
        target.check_rows("target of a write", rows, target.page.size())?;
        check_length("write", data.len() as u64, rows)?;
        // SAFETY: the caller's promise; the rows were checked.
        unsafe { stream.write(&mut self.supplies, data, (target, rows)) }
    }

    unsafe fn write_now(&mut self, data: &[u8], target: Place<'_, VulkanPage>, rows: &Rows) -> bool {
        let fits = target.check_rows("target of a write", rows, target.page.size()).is_ok()
            && rows.size() == data.len() as u64;
        if target.page.mapped().is_none() || !fits || self.loss.check().is_err() {
            return false;
        }
        // Such as share an atom with what others may use meanwhile are left to the device.
        let mut written = true;
        rows.for_each(|offset| {
            let start = target.offset + offset;
            written &= target.page.allocation().is_apart(start..start + rows.row);
        });
        if !written {
            return false;
        }
        let mut from = data;
        rows.for_each(|offset| {
            let Some((row, rest)) = from.split_at_checked(rows.row as usize) else { return };
            // SAFETY: the caller's promise; the row lies in the place. What fails is written again, by an encoded write.
            written &= unsafe { target.page.allocation().write(target.offset + offset, row) }.is_ok();
            from = rest;
        });
        written
    }

    unsafe fn read(
        &mut self,
        stream: &mut VulkanStream,
        seq: u64,
        index: usize,
        source: Place<'_, VulkanPage>,
        rows: &Rows,
        into: HostBuffer,
    ) -> Result<()> {
        self.loss.check()?;
        source.check_rows("source of a read", rows, source.page.size())?;
        check_length("read", into.len() as u64, rows)?;
        // SAFETY: the caller's promise; the rows were checked.
        unsafe { stream.read(&mut self.supplies, (seq, index), (source, rows), into) }
    }

    unsafe fn grant(&mut self, place: Place<'_, VulkanPage>, access: Access) -> Grant {
        match VulkanResource::new(&self.device, place, access).map(Arc::new) {
            Some(resource) => {
                let host = resource.is_mapped().then(|| resource.clone() as Arc<dyn HostMemory>);
                Grant { resource, host }
            }
            // A place outside its page, which the caller promised not to ask for, is no bytes.
            None => Grant { resource: Arc::new(()), host: None },
        }
    }

    fn import(&mut self, foreign: &Foreign) -> Result<Imported<VulkanPage>> {
        self.loss.check()?;
        import::import(&self.device, foreign)
    }

    fn import_event(&mut self, stream: &mut VulkanStream, event: &Foreign) -> Result<()> {
        self.loss.check()?;
        stream.import_event(event)
    }

    fn export_event(&mut self, stream: &mut VulkanStream, _: u64) -> Result<Arc<dyn Any + Send + Sync>> {
        self.loss.check()?;
        Ok(Arc::new(stream.export_event(&self.loss)?))
    }

    fn drain(&mut self, deadline: &Deadline) -> bool {
        // Each of them, also when one is late: what others finish meanwhile counts.
        self.queues.iter().filter(|queue| !queue.drain(deadline)).count() == 0
    }
}

impl Drop for VulkanDriver {
    fn drop(&mut self) {
        self.inside = Some(Inside::new());
        self.queues.iter().for_each(|queue| queue.end());
        if !self.queues.iter().all(|queue| queue.is_idle()) {
            // Batches that are left to the device may be bound to it.
            mem::forget(self.supplies.nothing.clone());
        }
    }
}

impl fmt::Debug for VulkanDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VulkanDriver")
            .field("device", &self.device)
            .field("queues", &self.queues)
            .field("lost", &self.loss.check().is_err())
            .finish_non_exhaustive()
    }
}
