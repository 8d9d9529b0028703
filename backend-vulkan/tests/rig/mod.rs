//! Vulkan devices driven directly, without a server: each there is, with options that force each path, checked by the validation layer.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::{Driver, DriverGrid, DriverLaunch, Outcome, Place};
use trunnion_backend_vulkan::{
    VulkanBackend, VulkanCode, VulkanDriver, VulkanOptions, VulkanPage, VulkanStream, validation_messages,
};
use trunnion_runtime_core::backend::Backend;
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::executor::{Config, Executor, Resident};
use trunnion_runtime_core::id::ServiceId;
use trunnion_runtime_core::kernel::{Kernel, KernelHandle, SourceKernel};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::Bounds;

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Counts the driver's notifications.
pub struct Bell(Arc<AtomicUsize>);

impl Resident for Bell {
    fn progress(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub struct Rig {
    pub driver: VulkanDriver,
    pub executor: Executor<Bell>,
    pub notified: Arc<AtomicUsize>,
    slots: u32,
}

pub struct Compiled {
    pub kernel: KernelHandle,
    pub code: VulkanCode,
}

/// The options that force each path.
pub fn variants() -> [VulkanOptions; 5] {
    let plain = VulkanOptions::default;
    [
        plain(),
        plain().staging(true),
        plain().push_descriptors(false),
        plain().push_constants(false),
        plain().staging(true).push_descriptors(false).push_constants(false).queues(1),
    ]
}

/// Runs a test on each device with each of the options.
pub fn each(test: impl Fn(&mut Rig)) {
    for options in variants() {
        each_with(&options, &test);
    }
}

/// Runs a test on each device. What the validation layer has to say fails it.
pub fn each_with(options: &VulkanOptions, test: impl Fn(&mut Rig)) {
    let validated = options.clone().validation(true);
    let backend = VulkanBackend::new(validated.clone());
    let (backend, options) = match backend.enumerate() {
        Ok(_) => (backend, validated),
        Err(why) => {
            eprintln!("without validation: {why}");
            (VulkanBackend::new(options.clone()), options.clone())
        }
    };
    let devices = backend.enumerate().unwrap_or_else(|why| {
        eprintln!("skipped: {why}");
        Vec::new()
    });
    trunnion_vulkan_shim::require(&devices.iter().map(|info| &info.adapter).collect::<Vec<_>>());
    for (info, index) in devices.iter().zip(0..) {
        eprintln!("on {} with {options}", info.adapter);
        test(&mut Rig::new(backend.driver(index, &options).unwrap()));
    }
    assert_eq!(validation_messages(), [""; 0]);
}

/// Part of a page.
pub fn part(page: &VulkanPage, offset: u64, size: u64) -> Place<'_, VulkanPage> {
    Place { page, offset, size }
}

/// All of a page.
pub fn all(page: &VulkanPage) -> Place<'_, VulkanPage> {
    part(page, 0, page.size())
}

impl Rig {
    pub fn new(mut driver: VulkanDriver) -> Self {
        let notified = Arc::new(AtomicUsize::new(0));
        let executor = Executor::new(Bell(notified.clone()), Config::default()).unwrap();
        driver.start(executor.notifier());
        Self { driver, executor, notified, slots: 0 }
    }

    /// A WGSL kernel.
    pub fn wgsl(&mut self, name: &str, text: &str) -> Compiled {
        self.compile(SourceKernel::wgsl(name, text)).unwrap()
    }

    pub fn compile(&mut self, kernel: impl Kernel) -> Result<Compiled> {
        let kernel = self.prepare(kernel)?;
        let code = self.driver.compile(&kernel, Bounds::Checked, None)?.code;
        Ok(Compiled { kernel, code })
    }

    pub fn prepare(&mut self, kernel: impl Kernel) -> Result<KernelHandle> {
        self.slots += 1;
        let reader = self.driver.reader();
        let prepared =
            KernelHandle::prepare(Arc::new(kernel), self.driver.properties(), &*reader, ServiceId::from_raw(1))?;
        Ok(prepared(self.slots))
    }

    pub fn launch(
        &mut self,
        stream: &mut VulkanStream,
        seq: u64,
        kernel: &Compiled,
        grid: [u32; 3],
        buffers: &[Place<'_, VulkanPage>],
    ) -> Result<()> {
        self.launch_with(stream, seq, kernel, DriverGrid::Static(grid), buffers, &[])
    }

    pub fn launch_with(
        &mut self,
        stream: &mut VulkanStream,
        seq: u64,
        kernel: &Compiled,
        grid: DriverGrid<'_, VulkanPage>,
        buffers: &[Place<'_, VulkanPage>],
        parameters: &[u8],
    ) -> Result<()> {
        let Compiled { kernel, code } = kernel;
        let launch = DriverLaunch { code, kernel, grid, buffers, parameters, bounds: Bounds::Checked };
        // SAFETY: each test waits for its work before it frees or reuses a page, and encodes nothing that conflicts on two streams.
        unsafe { self.driver.launch(stream, seq, launch) }
    }

    pub fn write(&mut self, stream: &mut VulkanStream, seq: u64, bytes: &[u8], place: Place<'_, VulkanPage>) {
        self.write_rows(stream, seq, Bytes::copy_from_slice(bytes), place, &Rows::single(bytes.len() as u64));
    }

    pub fn write_rows(
        &mut self,
        stream: &mut VulkanStream,
        seq: u64,
        bytes: Bytes,
        place: Place<'_, VulkanPage>,
        rows: &Rows,
    ) {
        // SAFETY: as for a launch.
        unsafe { self.driver.write(stream, seq, bytes, place, rows) }.unwrap();
    }

    /// Runs one launch on a new stream, and waits for it.
    pub fn run(&mut self, kernel: &Compiled, grid: [u32; 3], buffers: &[Place<'_, VulkanPage>], parameters: &[u8]) {
        let mut stream = self.driver.open_stream().unwrap();
        self.launch_with(&mut stream, 1, kernel, DriverGrid::Static(grid), buffers, parameters).unwrap();
        self.driver.submit(&mut stream, 1).unwrap();
        assert!(self.finish(&mut stream, 1).failed.is_empty());
        self.driver.close_stream(stream);
    }

    /// Polls until the stream has finished `seq`.
    pub fn finish(&mut self, stream: &mut VulkanStream, seq: u64) -> Outcome {
        let mut outcome = Outcome::default();
        let start = Instant::now();
        while self.driver.poll(stream, &mut outcome).unwrap() < seq {
            assert!(start.elapsed() < PATIENCE, "operation {seq} was not finished: {stream:?}");
            std::thread::yield_now();
        }
        outcome
    }

    /// The bytes of rows of a place, read on a new stream.
    pub fn read_rows(&mut self, place: Place<'_, VulkanPage>, rows: &Rows) -> Vec<u8> {
        let mut stream = self.driver.open_stream().unwrap();
        let into = HostBuffer::zeroed(rows.size() as usize).unwrap();
        // SAFETY: as for a launch.
        unsafe { self.driver.read(&mut stream, 1, 0, place, rows, into) }.unwrap();
        self.driver.submit(&mut stream, 1).unwrap();
        let outcome = self.finish(&mut stream, 1);
        assert!(outcome.failed.is_empty());
        let [(1, 0, buffer)] = outcome.read.as_slice() else { panic!("one read gave {:?}", outcome.read) };
        let bytes = buffer.as_slice().to_vec();
        self.driver.close_stream(stream);
        bytes
    }

    pub fn read(&mut self, place: Place<'_, VulkanPage>) -> Vec<u8> {
        self.read_rows(place, &Rows::single(place.size))
    }

    pub fn read_u32(&mut self, place: Place<'_, VulkanPage>) -> Vec<u32> {
        self.read(place).chunks_exact(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap())).collect()
    }

    /// A page with these bytes at its start.
    pub fn page_of_bytes(&mut self, bytes: &[u8]) -> VulkanPage {
        let size = (bytes.len() as u64).next_multiple_of(self.driver.page_alignment()).max(256);
        let page = self.driver.allocate(size).unwrap();
        let mut stream = self.driver.open_stream().unwrap();
        self.write(&mut stream, 1, bytes, all_but(&page, bytes.len()));
        self.driver.submit(&mut stream, 1).unwrap();
        assert!(self.finish(&mut stream, 1).failed.is_empty());
        self.driver.close_stream(stream);
        page
    }

    /// A page that holds these numbers at its start.
    pub fn page_of(&mut self, numbers: &[u32]) -> VulkanPage {
        self.page_of_bytes(&bytes_of(numbers))
    }
}

fn all_but(page: &VulkanPage, size: usize) -> Place<'_, VulkanPage> {
    part(page, 0, size as u64)
}

pub fn bytes_of(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}
