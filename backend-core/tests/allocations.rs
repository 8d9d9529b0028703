//! A warm launch allocates nothing: counted over a driver that does nothing.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "tests have the standard library")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use trunnion_backend_core::driver::{Compiled, Driver, DriverLaunch, DriverRefusal, Outcome, Place, StoredCode};
use trunnion_backend_core::{DriverServer, ServerSettings};
use trunnion_runtime_core::access::Access;
use trunnion_runtime_core::allocation::AllocationMode;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Result, SourceForm};
use trunnion_runtime_core::executor::Notifier;
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::handle::Handles;
use trunnion_runtime_core::id::{BackendName, DeviceId, ServiceId, StreamId};
use trunnion_runtime_core::kernel::{DeclaredInterface, Interface, KernelHandle, KernelReader, Source, SourceKernel};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::properties::{DeviceInfo, DeviceKind, DeviceProperties, Features, Limits, TargetProperties};
use trunnion_runtime_core::server::{Bounds, Grant, Launch, Pattern, Server};
use trunnion_runtime_core::timeline::Moment;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: it hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as for the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as for the caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Finishes every batch as it is submitted.
struct Null(DeviceProperties);

// SAFETY: it runs nothing.
unsafe impl Driver for Null {
    type Page = ();
    type Stream = u64;
    type Code = ();

    fn properties(&self) -> &DeviceProperties {
        &self.0
    }

    fn reader(&self) -> Arc<dyn KernelReader> {
        Arc::new(DeclaredInterface(vec![SourceForm::Wgsl]))
    }

    fn start(&mut self, _: Notifier) {}

    fn allocate(&mut self, _: u64) -> Result<(), DriverRefusal> {
        Ok(())
    }

    fn release(&mut self, (): ()) {}

    fn page_alignment(&self) -> u64 {
        256
    }

    fn compile(&mut self, _: &KernelHandle, _: Bounds, _: Option<&[u8]>) -> Result<Compiled<()>> {
        Ok(Compiled { code: (), stored: StoredCode::None })
    }

    fn compiler_identity(&self) -> &str {
        "null"
    }

    fn open_stream(&mut self) -> Result<u64> {
        Ok(0)
    }

    fn close_stream(&mut self, _: u64) {}

    fn barrier(&mut self, _: &mut u64) {}

    fn wait(&mut self, _: &mut u64, _: &mut u64, _: u64) {}

    fn submit(&mut self, stream: &mut u64, seq: u64) -> Result<()> {
        *stream = seq;
        Ok(())
    }

    fn poll(&mut self, stream: &mut u64, _: &mut Outcome) -> Result<u64> {
        Ok(*stream)
    }

    unsafe fn launch(&mut self, _: &mut u64, _: u64, _: DriverLaunch<'_, Self>) -> Result<()> {
        Ok(())
    }

    unsafe fn copy(
        &mut self,
        _: &mut u64,
        _: u64,
        _: Place<'_, ()>,
        _: &Rows,
        _: Place<'_, ()>,
        _: &Rows,
    ) -> Result<()> {
        Ok(())
    }

    unsafe fn fill(&mut self, _: &mut u64, _: u64, _: Place<'_, ()>, _: Pattern) -> Result<()> {
        Ok(())
    }

    unsafe fn write(&mut self, _: &mut u64, _: u64, _: Bytes, _: Place<'_, ()>, _: &Rows) -> Result<()> {
        Ok(())
    }

    unsafe fn read(&mut self, _: &mut u64, _: u64, _: usize, _: Place<'_, ()>, _: &Rows, _: HostBuffer) -> Result<()> {
        Ok(())
    }

    unsafe fn grant(&mut self, _: Place<'_, ()>, _: Access) -> Grant {
        Grant { resource: Arc::new(()), host: None }
    }

    fn drain(&mut self, _: &Deadline) -> bool {
        true
    }
}

#[test]
fn a_warm_launch_allocates_nothing() {
    let device = DeviceId { backend: BackendName::new("null").unwrap(), index: 0 };
    let info = DeviceInfo::new(device, DeviceKind::Other, "null", "1", "1");
    let features = Features::new(Vec::new(), vec![SourceForm::Wgsl]);
    let properties = DeviceProperties::new(info, features, Limits::default(), TargetProperties::new("null", 16, 1));
    let driver = Null(properties.clone());
    let (reader, service) = (driver.reader(), ServiceId::new());
    let mut server = DriverServer::new(driver, ServerSettings::default());
    let handles = Handles::new(service).unwrap();
    let kernel = SourceKernel::new("k", Interface::new().read().read().read().partition(16)).source(Source::wgsl("k"));
    let kernel = KernelHandle::prepare(Arc::new(kernel), &properties, &*reader, service).unwrap()(0);
    let streams = [StreamId::new(), StreamId::new()];
    let mut seq = 0;
    let mut at = |stream| {
        seq += 1;
        Moment { stream, seq }
    };
    let buffers: Vec<Vec<_>> = streams
        .iter()
        .map(|stream| {
            let handles: Vec<_> = (0..4).map(|_| handles.create(1024).unwrap()).collect();
            handles.iter().for_each(|handle| server.reserve(at(*stream), handle, AllocationMode::Auto));
            handles
        })
        .collect();
    let mut launch = |server: &mut DriverServer<Null>, n: usize| {
        for i in 0..n {
            let (stream, grid) = (i % 2, Grid::x(1));
            let at = at(streams[stream]);
            // The parameters are not looked at by anybody.
            let buffers = &buffers[if i % 16 == 0 { 1 - stream } else { stream }];
            server.launch(
                at,
                &Launch { kernel: &kernel, grid: &grid, buffers, parameters: &[0; 16], bounds: Bounds::Checked },
            );
            if i % 32 == 0 {
                server.progress();
            }
        }
    };
    // The tracker's log grows until it holds twice what is ever unfinished at once, which takes a while to come about.
    launch(&mut server, 100_000);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let start = std::time::Instant::now();
    launch(&mut server, 100_000);
    let (elapsed, allocations) = (start.elapsed(), ALLOCATIONS.load(Ordering::Relaxed) - before);
    println!("{} ns a launch, {allocations} allocations in 100,000", elapsed.as_nanos() / 100_000);
    assert_eq!(allocations, 0);
}
