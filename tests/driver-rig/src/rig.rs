//! A driver that a test has to itself: allocates, launches, waits, reads. What goes wrong panics.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use core::time::Duration;
use std::time::Instant;
use trunnion_backend_core::driver::{Driver, DriverGrid, DriverLaunch, Outcome, Place};
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::executor::{Config, Executor, Resident};
use trunnion_runtime_core::id::ServiceId;
use trunnion_runtime_core::kernel::{Kernel, KernelHandle, SourceKernel};
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::{Bounds, Pattern};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Counts the driver's notifications.
#[derive(Debug)]
pub struct Bell(Arc<AtomicUsize>);

impl Resident for Bell {
    fn progress(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A driver, and who it notifies.
pub struct Rig<D: Driver> {
    /// The driver.
    pub driver: D,
    /// Who is notified.
    pub executor: Executor<Bell>,
    /// How often.
    pub notified: Arc<AtomicUsize>,
    /// The fewest bytes of the pages that are made of given ones.
    pub fewest: u64,
    /// How accesses of kernels are bounded.
    pub bounds: Bounds,
    slots: u32,
}

/// A kernel with its code.
pub struct Compiled<D: Driver> {
    /// The kernel.
    pub kernel: KernelHandle,
    /// Its code.
    pub code: D::Code,
}

/// Part of a page.
pub fn part<P>(page: &P, offset: u64, size: u64) -> Place<'_, P> {
    Place { page, offset, size }
}

/// The bytes of numbers.
pub fn bytes_of(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// What other threads do comes about in time.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

impl<D: Driver> Rig<D>
where
    D::Stream: fmt::Debug,
{
    /// A rig with a driver, whose pages are as small as it makes them.
    pub fn new(mut driver: D) -> Self {
        let notified = Arc::new(AtomicUsize::new(0));
        let executor = Executor::new(Bell(notified.clone()), Config::default()).unwrap();
        driver.start(executor.notifier());
        let fewest = driver.page_alignment();
        Self { driver, executor, notified, fewest, bounds: Bounds::Checked, slots: 0 }
    }

    /// A WGSL kernel.
    pub fn wgsl(&mut self, name: &str, text: &str) -> Compiled<D> {
        self.compile(SourceKernel::wgsl(name, text)).unwrap()
    }

    /// A kernel with its code.
    ///
    /// # Errors
    /// What its preparation and the driver answer.
    pub fn compile(&mut self, kernel: impl Kernel) -> Result<Compiled<D>> {
        let kernel = self.prepare(kernel)?;
        let code = self.driver.compile(&kernel, self.bounds, None)?.code;
        Ok(Compiled { kernel, code })
    }

    /// A kernel without code.
    ///
    /// # Errors
    /// What its preparation answers.
    pub fn prepare(&mut self, kernel: impl Kernel) -> Result<KernelHandle> {
        self.slots += 1;
        let reader = self.driver.reader();
        let prepared =
            KernelHandle::prepare(Arc::new(kernel), self.driver.properties(), &*reader, ServiceId::from_raw(1))?;
        Ok(prepared(self.slots))
    }

    /// Encodes a launch without parameters.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn launch(
        &mut self,
        stream: &mut D::Stream,
        seq: u64,
        kernel: &Compiled<D>,
        grid: [u32; 3],
        buffers: &[Place<'_, D::Page>],
    ) -> Result<()> {
        self.launch_with(stream, seq, kernel, DriverGrid::Static(grid), buffers, &[])
    }

    /// Encodes a launch.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn launch_with(
        &mut self,
        stream: &mut D::Stream,
        seq: u64,
        kernel: &Compiled<D>,
        grid: DriverGrid<'_, D::Page>,
        buffers: &[Place<'_, D::Page>],
        parameters: &[u8],
    ) -> Result<()> {
        let Compiled { kernel, code } = kernel;
        let launch = DriverLaunch { code, kernel, grid, buffers, parameters, bounds: self.bounds };
        // SAFETY: each test waits for its work before it frees or reuses a page, and encodes nothing that conflicts on two streams.
        unsafe { self.driver.launch(stream, seq, launch) }
    }

    /// Encodes a write.
    pub fn write(&mut self, stream: &mut D::Stream, seq: u64, bytes: &[u8], place: Place<'_, D::Page>) {
        self.write_rows(stream, seq, Bytes::copy_from_slice(bytes), place, &Rows::single(bytes.len() as u64));
    }

    /// Encodes a write of rows.
    pub fn write_rows(
        &mut self,
        stream: &mut D::Stream,
        seq: u64,
        bytes: Bytes,
        place: Place<'_, D::Page>,
        rows: &Rows,
    ) {
        // SAFETY: as for a launch.
        unsafe { self.driver.write(stream, seq, bytes, place, rows) }.unwrap();
    }

    /// Encodes a fill.
    pub fn fill(&mut self, stream: &mut D::Stream, seq: u64, place: Place<'_, D::Page>, pattern: &[u8]) {
        // SAFETY: as for a launch.
        unsafe { self.driver.fill(stream, seq, place, Pattern::new(pattern).unwrap()) }.unwrap();
    }

    /// Encodes a copy of all of a place.
    pub fn copy(&mut self, stream: &mut D::Stream, seq: u64, source: Place<'_, D::Page>, target: Place<'_, D::Page>) {
        let rows = Rows::single(source.size);
        self.copy_rows(stream, seq, (source, &rows), (target, &rows));
    }

    /// Encodes a copy of rows.
    pub fn copy_rows(
        &mut self,
        stream: &mut D::Stream,
        seq: u64,
        (source, source_rows): (Place<'_, D::Page>, &Rows),
        (target, target_rows): (Place<'_, D::Page>, &Rows),
    ) {
        // SAFETY: as for a launch.
        unsafe { self.driver.copy(stream, seq, source, source_rows, target, target_rows) }.unwrap();
    }

    /// Encodes a read of a place, as part 0.
    pub fn read_later(&mut self, stream: &mut D::Stream, seq: u64, place: Place<'_, D::Page>) {
        let into = HostBuffer::zeroed(place.size as usize).unwrap();
        // SAFETY: as for a launch.
        unsafe { self.driver.read(stream, seq, 0, place, &Rows::single(place.size), into) }.unwrap();
    }

    /// Runs one kernel without parameters on a new stream.
    ///
    /// # Errors
    /// Its failure.
    pub fn run(&mut self, kernel: &Compiled<D>, grid: [u32; 3], buffers: &[Place<'_, D::Page>]) -> Result<()> {
        self.run_with(kernel, grid, buffers, &[])
    }

    /// Runs one kernel on a new stream.
    ///
    /// # Errors
    /// Its failure.
    pub fn run_with(
        &mut self,
        kernel: &Compiled<D>,
        grid: [u32; 3],
        buffers: &[Place<'_, D::Page>],
        parameters: &[u8],
    ) -> Result<()> {
        let mut stream = self.driver.open_stream().unwrap();
        self.launch_with(&mut stream, 1, kernel, DriverGrid::Static(grid), buffers, parameters)?;
        self.driver.submit(&mut stream, 1).unwrap();
        let outcome = self.finish(&mut stream, 1);
        self.driver.close_stream(stream);
        match outcome.failed.as_slice() {
            [] => Ok(()),
            [(1, error)] => Err(error.clone()),
            other => panic!("one operation failed {} times: {other:?}", other.len()),
        }
    }

    /// Polls until the stream has finished `seq`.
    pub fn finish(&mut self, stream: &mut D::Stream, seq: u64) -> Outcome {
        let mut outcome = Outcome::default();
        let start = Instant::now();
        while self.driver.poll(stream, &mut outcome).unwrap() < seq {
            let waited = start.elapsed();
            assert!(waited < 3 * PATIENCE, "operation {seq} was not finished: {stream:?}");
            // What takes its time is not kept from it: a driver may do the work on cores that others want too.
            match waited < Duration::from_millis(1) {
                true => std::thread::yield_now(),
                false => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        outcome
    }

    /// The bytes of rows of a place, read on a new stream.
    pub fn read_rows(&mut self, place: Place<'_, D::Page>, rows: &Rows) -> Vec<u8> {
        let mut stream = self.driver.open_stream().unwrap();
        let into = HostBuffer::zeroed(rows.size() as usize).unwrap();
        // SAFETY: as for a launch.
        unsafe { self.driver.read(&mut stream, 1, 0, place, rows, into) }.unwrap();
        self.driver.submit(&mut stream, 1).unwrap();
        let outcome = self.finish(&mut stream, 1);
        assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
        let [(1, 0, buffer)] = outcome.read.as_slice() else { panic!("one read gave {:?}", outcome.read) };
        let bytes = buffer.as_slice().to_vec();
        self.driver.close_stream(stream);
        bytes
    }

    /// The bytes of a place, read on a new stream.
    pub fn read(&mut self, place: Place<'_, D::Page>) -> Vec<u8> {
        self.read_rows(place, &Rows::single(place.size))
    }

    /// The same as numbers.
    pub fn read_u32(&mut self, place: Place<'_, D::Page>) -> Vec<u32> {
        self.read(place).chunks_exact(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap())).collect()
    }

    /// A page with these bytes at its start, and zeros behind them.
    pub fn page_of_bytes(&mut self, bytes: &[u8]) -> D::Page {
        let size = (bytes.len() as u64).next_multiple_of(self.driver.page_alignment()).max(self.fewest);
        let page = self.driver.allocate(size).unwrap();
        let mut stream = self.driver.open_stream().unwrap();
        let mut whole = bytes.to_vec();
        whole.resize(size as usize, 0);
        self.write(&mut stream, 1, &whole, part(&page, 0, size));
        self.driver.submit(&mut stream, 1).unwrap();
        assert!(self.finish(&mut stream, 1).failed.is_empty());
        self.driver.close_stream(stream);
        page
    }

    /// A page that holds these numbers at its start.
    pub fn page_of(&mut self, numbers: &[u32]) -> D::Page {
        self.page_of_bytes(&bytes_of(numbers))
    }
}

impl<D: Driver> fmt::Debug for Rig<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rig").field("device", &self.driver.properties().info.device).finish_non_exhaustive()
    }
}

impl<D: Driver> fmt::Debug for Compiled<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").field("kernel", &self.kernel).finish_non_exhaustive()
    }
}
