//! A driver around the Vulkan backend's that hands everything on, barriers and waits wrongly.
//!
//! `unsafe` here is the trait's signature: every call hands on what its own caller promised. What a fault makes of the order is looked at
//! in the commands that are emitted; the bytes that come of it are the process's own, which runs one test and ends.

use crate::mutants::Fault;
use std::any::Any;
use std::sync::Arc;
use trunnion_backend_core::driver::{
    CompileJob, Compiled, Driver, DriverLaunch, DriverMemory, DriverRefusal, Imported, Outcome, Place,
};
use trunnion_backend_vulkan::{VulkanCode, VulkanDriver, VulkanPage, VulkanStream};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::executor::Notifier;
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::kernel::{KernelHandle, KernelReader};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::properties::DeviceProperties;
use trunnion_runtime_core::server::{Bounds, Grant, Pattern};
use trunnion_runtime_core::staging::PinnedMemory;

/// A driver around the Vulkan backend's.
pub struct FaultyDriver {
    inside: VulkanDriver,
    fault: Fault,
}

/// A stream of it.
pub struct FaultyStream {
    inside: VulkanStream,
    /// Whether it was told to wait for another one since it last submitted.
    waits: bool,
}

impl FaultyDriver {
    pub fn new(inside: VulkanDriver, fault: Fault) -> Self {
        Self { inside, fault }
    }

    /// What happens before each operation.
    fn before(&mut self, stream: &mut FaultyStream) {
        if self.fault == Fault::BarrierAlways {
            self.inside.barrier(&mut stream.inside);
        }
    }
}

// SAFETY: without a fault, the driver inside is handed what this one is; a fault of order breaks that on purpose.
unsafe impl Driver for FaultyDriver {
    type Page = VulkanPage;
    type Stream = FaultyStream;
    type Code = VulkanCode;

    fn properties(&self) -> &DeviceProperties {
        self.inside.properties()
    }

    fn reader(&self) -> Arc<dyn KernelReader> {
        self.inside.reader()
    }

    fn start(&mut self, notifier: Notifier) {
        self.inside.start(notifier);
    }

    fn enter(&mut self) {
        self.inside.enter();
    }

    fn allocate(&mut self, size: u64) -> Result<VulkanPage, DriverRefusal> {
        self.inside.allocate(size)
    }

    fn release(&mut self, page: VulkanPage) {
        self.inside.release(page);
    }

    fn page_alignment(&self) -> u64 {
        self.inside.page_alignment()
    }

    fn free_memory(&self) -> Option<u64> {
        self.inside.free_memory()
    }

    fn memory(&self) -> DriverMemory {
        self.inside.memory()
    }

    fn has_pinned(&self) -> bool {
        self.inside.has_pinned()
    }

    fn pin(&mut self, size: usize) -> Result<Box<dyn PinnedMemory>, DriverRefusal> {
        self.inside.pin(size)
    }

    fn compile(
        &mut self,
        kernel: &KernelHandle,
        bounds: Bounds,
        stored: Option<&[u8]>,
    ) -> Result<Compiled<VulkanCode>> {
        self.inside.compile(kernel, bounds, stored)
    }

    fn compiles_at_once(&self) -> usize {
        self.inside.compiles_at_once()
    }

    fn compile_together(&mut self, jobs: &[CompileJob<'_>]) -> Vec<Result<Compiled<VulkanCode>>> {
        self.inside.compile_together(jobs)
    }

    fn compiler_identity(&self) -> &str {
        self.inside.compiler_identity()
    }

    fn open_stream(&mut self) -> Result<FaultyStream> {
        self.inside.open_stream().map(|inside| FaultyStream { inside, waits: false })
    }

    fn close_stream(&mut self, stream: FaultyStream) {
        self.inside.close_stream(stream.inside);
    }

    fn barrier(&mut self, stream: &mut FaultyStream) {
        if self.fault != Fault::BarrierDropped {
            self.inside.barrier(&mut stream.inside);
        }
    }

    fn wait(&mut self, stream: &mut FaultyStream, other: &mut FaultyStream, seq: u64) {
        let is_second = core::mem::replace(&mut stream.waits, true);
        let is_dropped = match self.fault {
            Fault::WaitDropped => true,
            Fault::SecondWaitDropped => is_second,
            _ => false,
        };
        if !is_dropped {
            self.inside.wait(&mut stream.inside, &mut other.inside, seq);
        }
    }

    fn submit(&mut self, stream: &mut FaultyStream, seq: u64) -> Result<()> {
        stream.waits = false;
        self.inside.submit(&mut stream.inside, seq)
    }

    fn poll(&mut self, stream: &mut FaultyStream, outcome: &mut Outcome) -> Result<u64> {
        self.inside.poll(&mut stream.inside, outcome)
    }

    unsafe fn launch(&mut self, stream: &mut FaultyStream, seq: u64, launch: DriverLaunch<'_, Self>) -> Result<()> {
        self.before(stream);
        let DriverLaunch { code, kernel, grid, buffers, parameters, bounds } = launch;
        let launch = DriverLaunch { code, kernel, grid, buffers, parameters, bounds };
        // SAFETY: the caller's promise, handed on.
        unsafe { self.inside.launch(&mut stream.inside, seq, launch) }
    }

    unsafe fn copy(
        &mut self,
        stream: &mut FaultyStream,
        seq: u64,
        source: Place<'_, VulkanPage>,
        source_rows: &Rows,
        target: Place<'_, VulkanPage>,
        target_rows: &Rows,
    ) -> Result<()> {
        self.before(stream);
        // SAFETY: the caller's promise, handed on.
        unsafe { self.inside.copy(&mut stream.inside, seq, source, source_rows, target, target_rows) }
    }

    unsafe fn fill(
        &mut self,
        stream: &mut FaultyStream,
        seq: u64,
        target: Place<'_, VulkanPage>,
        pattern: Pattern,
    ) -> Result<()> {
        self.before(stream);
        // SAFETY: the caller's promise, handed on.
        unsafe { self.inside.fill(&mut stream.inside, seq, target, pattern) }
    }

    unsafe fn write(
        &mut self,
        stream: &mut FaultyStream,
        seq: u64,
        data: Bytes,
        target: Place<'_, VulkanPage>,
        rows: &Rows,
    ) -> Result<()> {
        self.before(stream);
        // SAFETY: the caller's promise, handed on.
        unsafe { self.inside.write(&mut stream.inside, seq, data, target, rows) }
    }

    unsafe fn write_now(&mut self, data: &[u8], target: Place<'_, VulkanPage>, rows: &Rows) -> bool {
        // SAFETY: the caller's promise, handed on.
        unsafe { self.inside.write_now(data, target, rows) }
    }

    unsafe fn read(
        &mut self,
        stream: &mut FaultyStream,
        seq: u64,
        index: usize,
        source: Place<'_, VulkanPage>,
        rows: &Rows,
        into: HostBuffer,
    ) -> Result<()> {
        self.before(stream);
        // SAFETY: the caller's promise, handed on.
        unsafe { self.inside.read(&mut stream.inside, seq, index, source, rows, into) }
    }

    unsafe fn grant(&mut self, place: Place<'_, VulkanPage>, access: Access) -> Grant {
        // SAFETY: the caller's promise, handed on.
        unsafe { self.inside.grant(place, access) }
    }

    fn import(&mut self, foreign: &Foreign) -> Result<Imported<VulkanPage>> {
        self.inside.import(foreign)
    }

    fn import_event(&mut self, stream: &mut FaultyStream, event: &Foreign) -> Result<()> {
        self.inside.import_event(&mut stream.inside, event)
    }

    fn export_event(&mut self, stream: &mut FaultyStream, seq: u64) -> Result<Arc<dyn Any + Send + Sync>> {
        self.inside.export_event(&mut stream.inside, seq)
    }

    fn drain(&mut self, deadline: &Deadline) -> bool {
        self.inside.drain(deadline)
    }
}
