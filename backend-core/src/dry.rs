//! [`Dry`]: a driver that compiles kernels and does nothing else, so that a program shows what memory it needs without a run.
//!
//! - A page is its size: no device memory is taken. The budget set for the device holds; what the device really has does not, so that the
//!   report of a program too large for it says by how much.
//! - Nothing runs, and reads give zeros: a program whose course depends on what it reads may take another one.
//! - Work counts as finished when somebody waits for it, asks about memory, or has more than [`BATCHES`] batches unfinished on a stream. So the
//!   report is that of a device that is never ahead of its program, which needs the most.
//! - Memory in place is as if it were there: reads of it give zeros, writes go nowhere. The resource is a [`DryResource`], so that who
//!   asks for the backend's own is told so.
//! - Memory of somebody else is held and never touched; an event of somebody else has happened.

use crate::driver::{
    CompileJob, Compiled, Driver, DriverLaunch, DriverMemory, DriverRefusal, Imported, Outcome, Place,
};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::executor::Notifier;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::kernel::{KernelHandle, KernelReader};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::properties::{DeviceProperties, TimingMethod};
use trunnion_runtime_core::server::{Bounds, Grant, HostMemory, Pattern};

/// Batches that may be unfinished on a stream before nobody has to wait for them.
pub const BATCHES: u64 = 16;

/// A driver that compiles through another one, and neither runs anything nor takes memory. See the module's head.
///
/// Equivalent to: nothing in CUDA, Vulkan or wgpu; a null driver with a real compiler.
pub struct Dry<D: Driver> {
    inside: D,
    properties: DeviceProperties,
    notifier: Option<Notifier>,
}

/// The size of a page that is not there, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DryPage(pub u64);

/// A stream on which nothing runs.
#[derive(Debug, Default)]
pub struct DryStream {
    /// Zeros for the reads of the batch that is open.
    open: Vec<(u64, usize, HostBuffer)>,
    /// Those of submitted batches.
    read: Vec<(u64, usize, HostBuffer)>,
    submitted: u64,
    /// Batches submitted since the last poll.
    unfinished: u64,
}

/// What a grant of memory that is not there holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DryResource {
    /// The bytes of the range.
    pub size: u64,
}

impl HostMemory for DryResource {
    fn read(&self, offset: u64, into: &mut [u8]) {
        if offset.checked_add(into.len() as u64).is_some_and(|end| end <= self.size) {
            into.fill(0);
        }
    }

    fn write(&self, _: u64, _: &[u8]) {}
}

impl<D: Driver> Dry<D> {
    /// Compiles through this driver, which nobody else uses.
    pub fn new(inside: D) -> Self {
        let mut properties = inside.properties().clone();
        properties.features.timing = TimingMethod::None;
        properties.info = properties.info.detail("dry run", "kernels compile, nothing runs, reads give zeros");
        Self { inside, properties, notifier: None }
    }
}

impl<D: Driver> fmt::Debug for Dry<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dry").field("device", &self.properties.info.device).finish_non_exhaustive()
    }
}

// SAFETY: nothing is run.
unsafe impl<D: Driver> Driver for Dry<D> {
    type Page = DryPage;
    type Stream = DryStream;
    type Code = D::Code;

    fn properties(&self) -> &DeviceProperties {
        &self.properties
    }

    fn reader(&self) -> Arc<dyn KernelReader> {
        self.inside.reader()
    }

    fn start(&mut self, notifier: Notifier) {
        self.inside.start(notifier.clone());
        self.notifier = Some(notifier);
    }

    fn enter(&mut self) {
        self.inside.enter();
    }

    fn allocate(&mut self, size: u64) -> Result<DryPage, DriverRefusal> {
        Ok(DryPage(size))
    }

    fn growth_step(&self) -> Option<u64> {
        self.inside.growth_step()
    }

    fn grow(&mut self, page: &mut DryPage, size: u64) -> Result<(), DriverRefusal> {
        page.0 = size;
        Ok(())
    }

    fn release(&mut self, _: DryPage) {}

    fn page_alignment(&self) -> u64 {
        self.inside.page_alignment()
    }

    fn free_memory(&self) -> Option<u64> {
        self.inside.free_memory()
    }

    fn memory(&self) -> DriverMemory {
        self.inside.memory()
    }

    fn compile(
        &mut self,
        kernel: &KernelHandle,
        bounds: Bounds,
        stored: Option<&[u8]>,
    ) -> Result<Compiled<Self::Code>> {
        self.inside.compile(kernel, bounds, stored)
    }

    fn compiles_at_once(&self) -> usize {
        self.inside.compiles_at_once()
    }

    fn compile_together(&mut self, jobs: &[CompileJob<'_>]) -> Vec<Result<Compiled<Self::Code>>> {
        self.inside.compile_together(jobs)
    }

    fn compiler_identity(&self) -> &str {
        self.inside.compiler_identity()
    }

    fn open_stream(&mut self) -> Result<DryStream> {
        Ok(DryStream::default())
    }

    fn close_stream(&mut self, _: DryStream) {}

    fn barrier(&mut self, _: &mut DryStream) {}

    fn wait(&mut self, _: &mut DryStream, _: &mut DryStream, _: u64) {}

    fn submit(&mut self, stream: &mut DryStream, seq: u64) -> Result<()> {
        stream.submitted = seq;
        stream.unfinished += 1;
        // Whoever reads may be waiting for bytes, not for the device, and is answered when somebody looks.
        let is_read = !stream.open.is_empty();
        stream.read.append(&mut stream.open);
        if (is_read || stream.unfinished > BATCHES)
            && let Some(notifier) = &self.notifier
        {
            notifier.notify();
        }
        Ok(())
    }

    fn poll(&mut self, stream: &mut DryStream, outcome: &mut Outcome) -> Result<u64> {
        outcome.read.append(&mut stream.read);
        stream.unfinished = 0;
        Ok(stream.submitted)
    }

    unsafe fn launch(&mut self, _: &mut DryStream, _: u64, _: DriverLaunch<'_, Self>) -> Result<()> {
        Ok(())
    }

    unsafe fn copy(
        &mut self,
        _: &mut DryStream,
        _: u64,
        _: Place<'_, DryPage>,
        _: &Rows,
        _: Place<'_, DryPage>,
        _: &Rows,
    ) -> Result<()> {
        Ok(())
    }

    unsafe fn fill(&mut self, _: &mut DryStream, _: u64, _: Place<'_, DryPage>, _: Pattern) -> Result<()> {
        Ok(())
    }

    unsafe fn write(&mut self, _: &mut DryStream, _: u64, _: Bytes, _: Place<'_, DryPage>, _: &Rows) -> Result<()> {
        Ok(())
    }

    unsafe fn write_now(&mut self, _: &[u8], _: Place<'_, DryPage>, _: &Rows) -> bool {
        // As the device would where the host reaches its memory, so that the same work is under way.
        self.properties.features.host_visible
    }

    unsafe fn read(
        &mut self,
        stream: &mut DryStream,
        seq: u64,
        index: usize,
        _: Place<'_, DryPage>,
        _: &Rows,
        mut into: HostBuffer,
    ) -> Result<()> {
        into.as_mut_slice().fill(0);
        stream.open.push((seq, index, into));
        Ok(())
    }

    unsafe fn grant(&mut self, place: Place<'_, DryPage>, _: Access) -> Grant {
        let resource = Arc::new(DryResource { size: place.size });
        let host = self.properties.features.host_visible.then(|| resource.clone() as Arc<dyn HostMemory>);
        Grant { resource, host }
    }

    fn import(&mut self, _: &Foreign) -> Result<Imported<DryPage>> {
        Ok(Imported { page: DryPage(0), offset: 0 })
    }

    fn import_event(&mut self, _: &mut DryStream, _: &Foreign) -> Result<()> {
        Ok(())
    }

    fn drain(&mut self, _: &Deadline) -> bool {
        true
    }
}
