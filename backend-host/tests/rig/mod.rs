//! A host device driven directly, without a server: allocates, launches, waits, reads.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::{Driver, DriverGrid, DriverLaunch, Outcome, Place};
use trunnion_backend_host::{HostCode, HostDriver, HostOptions, HostPage, HostStream};
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::{Error, KernelFault, Result};
use trunnion_runtime_core::executor::{Config, Executor, Resident};
use trunnion_runtime_core::id::ServiceId;
use trunnion_runtime_core::kernel::{Interface, KernelHandle, Source, SourceKernel, Workgroup};
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
    pub driver: HostDriver,
    pub executor: Executor<Bell>,
    pub notified: Arc<AtomicUsize>,
    slots: u32,
}

pub struct Compiled {
    pub kernel: KernelHandle,
    pub code: HostCode,
}

/// For tests that hold threads of the process's pool until others come: one at a time.
pub fn with_all_threads() -> MutexGuard<'static, ()> {
    static THREADS: Mutex<()> = Mutex::new(());
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Part of a page.
pub fn part(page: &HostPage, offset: u64, size: u64) -> Place<'_, HostPage> {
    Place { page, offset, size }
}

/// All of a page.
pub fn all(page: &HostPage) -> Place<'_, HostPage> {
    part(page, 0, page.size())
}

impl Rig {
    pub fn new(options: HostOptions) -> Self {
        let notified = Arc::new(AtomicUsize::new(0));
        let config = Config::default();
        let executor = Executor::new(Bell(notified.clone()), config).unwrap();
        let mut driver = HostDriver::new(0, &options).unwrap();
        driver.start(executor.notifier());
        Self { driver, executor, notified, slots: 0 }
    }

    pub fn kernel(
        &mut self,
        name: &str,
        interface: Interface,
        function: impl Fn(&Workgroup<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
    ) -> Compiled {
        let kernel = self.prepare(name, interface, function);
        let code = self.driver.compile(&kernel, Bounds::Checked, None).unwrap().code;
        Compiled { kernel, code }
    }

    pub fn prepare(
        &mut self,
        name: &str,
        interface: Interface,
        function: impl Fn(&Workgroup<'_>) -> Result<(), KernelFault> + Send + Sync + 'static,
    ) -> KernelHandle {
        let kernel = SourceKernel::new(name, interface).source(Source::host(function));
        self.slots += 1;
        let reader = self.driver.reader();
        KernelHandle::prepare(Arc::new(kernel), self.driver.properties(), &*reader, ServiceId::from_raw(1)).unwrap()(
            self.slots,
        )
    }

    pub fn launch(
        &mut self,
        stream: &mut HostStream,
        seq: u64,
        kernel: &Compiled,
        grid: [u32; 3],
        buffers: &[Place<'_, HostPage>],
    ) -> Result<()> {
        self.launch_with(stream, seq, kernel, DriverGrid::Static(grid), buffers, &[])
    }

    pub fn launch_with(
        &mut self,
        stream: &mut HostStream,
        seq: u64,
        kernel: &Compiled,
        grid: DriverGrid<'_, HostPage>,
        buffers: &[Place<'_, HostPage>],
        parameters: &[u8],
    ) -> Result<()> {
        let Compiled { kernel, code } = kernel;
        let launch = DriverLaunch { code, kernel, grid, buffers, parameters, bounds: Bounds::Checked };
        // SAFETY: each test waits for its work before it frees or reuses a page, and encodes nothing that conflicts on two streams.
        unsafe { self.driver.launch(stream, seq, launch) }
    }

    pub fn write(&mut self, stream: &mut HostStream, seq: u64, bytes: &[u8], place: Place<'_, HostPage>) {
        let rows = Rows::single(bytes.len() as u64);
        // SAFETY: as for a launch.
        unsafe { self.driver.write(stream, seq, Bytes::copy_from_slice(bytes), place, &rows) }.unwrap();
    }

    /// Runs one kernel on a new stream; what it answered.
    pub fn run(&mut self, kernel: &Compiled, grid: [u32; 3], buffers: &[Place<'_, HostPage>]) -> Result<()> {
        let mut stream = self.driver.open_stream().unwrap();
        self.launch(&mut stream, 1, kernel, grid, buffers)?;
        self.driver.submit(&mut stream, 1).unwrap();
        let outcome = self.finish(&mut stream, 1);
        match outcome.failed.as_slice() {
            [] => Ok(()),
            [(1, error)] => Err(error.clone()),
            other => panic!("one operation failed {} times: {other:?}", other.len()),
        }
    }

    /// Polls until the stream has finished `seq`.
    pub fn finish(&mut self, stream: &mut HostStream, seq: u64) -> Outcome {
        let mut outcome = Outcome::default();
        let start = Instant::now();
        while self.driver.poll(stream, &mut outcome).unwrap() < seq {
            assert!(start.elapsed() < PATIENCE, "operation {seq} was not finished: {stream:?}");
            std::thread::yield_now();
        }
        outcome
    }

    /// The bytes of a place, read on a new stream.
    pub fn read(&mut self, place: Place<'_, HostPage>) -> Vec<u8> {
        let mut stream = self.driver.open_stream().unwrap();
        let into = HostBuffer::zeroed(place.size as usize).unwrap();
        // SAFETY: as for a launch.
        unsafe { self.driver.read(&mut stream, 1, 0, place, &Rows::single(place.size), into) }.unwrap();
        self.driver.submit(&mut stream, 1).unwrap();
        let outcome = self.finish(&mut stream, 1);
        assert!(outcome.failed.is_empty());
        let [(1, 0, buffer)] = outcome.read.as_slice() else { panic!("one read gave {:?}", outcome.read) };
        buffer.as_slice().to_vec()
    }

    pub fn read_u32(&mut self, place: Place<'_, HostPage>) -> Vec<u32> {
        self.read(place).chunks_exact(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap())).collect()
    }

    /// A page that holds these numbers at its start, and zeros behind.
    pub fn page_of(&mut self, numbers: &[u32]) -> HostPage {
        let size = (numbers.len() as u64 * 4).next_multiple_of(64).max(64);
        let page = self.driver.allocate(size).unwrap();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let mut stream = self.driver.open_stream().unwrap();
        self.write(&mut stream, 1, &bytes, all(&page));
        self.driver.submit(&mut stream, 1).unwrap();
        assert!(self.finish(&mut stream, 1).failed.is_empty());
        page
    }
}

/// The fault of a kernel that failed, and the workgroup it failed in.
pub fn fault_of(result: Result<()>, name: &str) -> ([u32; 3], KernelFault) {
    match result {
        Err(Error::KernelFailed { kernel, workgroup, fault }) if kernel == name => (workgroup, fault),
        other => panic!("kernel `{name}` should have failed: {other:?}"),
    }
}
