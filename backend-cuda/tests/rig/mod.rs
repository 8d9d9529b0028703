//! CUDA devices driven directly, without a server: each a device of the double's own, with options that force each path. What the double
//! reports fails the test, and so does memory that is left.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod kernels;

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::{Driver, Outcome, Place};
use trunnion_backend_cuda::cudarc::driver::sys;
use trunnion_backend_cuda::{CudaBackend, CudaDriver, CudaEvent, CudaOptions, CudaPage, CudaStream};
use trunnion_cuda_double::{Device, Double};
use trunnion_runtime_core::bytes::{Bytes, HostBuffer};
use trunnion_runtime_core::executor::{Config, Executor, Resident};
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::layout::Rows;
use trunnion_runtime_core::server::Pattern;

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
    pub driver: CudaDriver,
    pub device: Device,
    pub options: CudaOptions,
    pub executor: Executor<Bell>,
    pub notified: Arc<AtomicUsize>,
}

/// The options that force each path.
pub fn variants() -> [CudaOptions; 3] {
    let plain = CudaOptions::default;
    [plain(), plain().vmm(false), plain().staging(true)]
}

/// Runs a test with each of the options.
pub fn each(test: impl Fn(&mut Rig)) {
    for options in variants() {
        each_with(&options, &test);
    }
}

/// Runs a test on a device of its own.
pub fn each_with(options: &CudaOptions, test: impl Fn(&mut Rig)) {
    let device = claim();
    let options = options.clone().library(double().path());
    eprintln!("on device {} with {options}", device.ordinal());
    let mut rig = Rig::new(device, &options);
    test(&mut rig);
    drop(rig);
    assert_clean(&device);
}

pub fn double() -> &'static Double {
    Double::open().unwrap()
}

/// A device that no other test has.
pub fn claim() -> Device {
    double().claim_device().unwrap()
}

/// What other threads do comes about in time.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Nothing is left of what was done on a device, and nothing wrong was done. What ends on a thread of its own may take a moment.
pub fn assert_clean(device: &Device) {
    let begun = Instant::now();
    while device.memory_used().unwrap() > 0 && begun.elapsed() < PATIENCE / 4 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((device.memory_used().unwrap(), device.take_reports().unwrap()), (0, Vec::new()));
    device.release().unwrap();
}

pub fn open(device: &Device, options: &CudaOptions) -> CudaDriver {
    CudaBackend::default().driver(device.ordinal() as u32, options).unwrap()
}

/// Part of a page.
pub fn part(page: &CudaPage, offset: u64, size: u64) -> Place<'_, CudaPage> {
    Place { page, offset, size }
}

/// All of a page.
pub fn all(page: &CudaPage) -> Place<'_, CudaPage> {
    part(page, 0, page.size())
}

impl Rig {
    pub fn new(device: Device, options: &CudaOptions) -> Self {
        let mut driver = open(&device, options);
        let notified = Arc::new(AtomicUsize::new(0));
        let executor = Executor::new(Bell(notified.clone()), Config::default()).unwrap();
        driver.start(executor.notifier());
        Self { driver, device, options: options.clone(), executor, notified }
    }

    pub fn write(&mut self, stream: &mut CudaStream, seq: u64, bytes: &[u8], place: Place<'_, CudaPage>) {
        self.write_rows(stream, seq, Bytes::copy_from_slice(bytes), place, &Rows::single(bytes.len() as u64));
    }

    pub fn write_rows(
        &mut self,
        stream: &mut CudaStream,
        seq: u64,
        bytes: Bytes,
        place: Place<'_, CudaPage>,
        rows: &Rows,
    ) {
        // SAFETY: each test waits for its work before it frees or reuses a page, and encodes nothing that conflicts on two streams.
        unsafe { self.driver.write(stream, seq, bytes, place, rows) }.unwrap();
    }

    pub fn fill(&mut self, stream: &mut CudaStream, seq: u64, place: Place<'_, CudaPage>, pattern: &[u8]) {
        // SAFETY: as for a write.
        unsafe { self.driver.fill(stream, seq, place, Pattern::new(pattern).unwrap()) }.unwrap();
    }

    pub fn copy(
        &mut self,
        stream: &mut CudaStream,
        seq: u64,
        source: Place<'_, CudaPage>,
        target: Place<'_, CudaPage>,
    ) {
        let rows = Rows::single(source.size);
        // SAFETY: as for a write.
        unsafe { self.driver.copy(stream, seq, source, &rows, target, &rows) }.unwrap();
    }

    /// Encodes a read of a place, as part 0.
    pub fn read_later(&mut self, stream: &mut CudaStream, seq: u64, place: Place<'_, CudaPage>) {
        let into = HostBuffer::zeroed(place.size as usize).unwrap();
        // SAFETY: as for a write.
        unsafe { self.driver.read(stream, seq, 0, place, &Rows::single(place.size), into) }.unwrap();
    }

    /// Polls until the stream has finished `seq`.
    pub fn finish(&mut self, stream: &mut CudaStream, seq: u64) -> Outcome {
        let mut outcome = Outcome::default();
        let start = Instant::now();
        while self.driver.poll(stream, &mut outcome).unwrap() < seq {
            assert!(start.elapsed() < PATIENCE, "operation {seq} was not finished: {stream:?}");
            std::thread::yield_now();
        }
        outcome
    }

    /// The bytes of rows of a place, read on a new stream.
    pub fn read_rows(&mut self, place: Place<'_, CudaPage>, rows: &Rows) -> Vec<u8> {
        let mut stream = self.driver.open_stream().unwrap();
        let into = HostBuffer::zeroed(rows.size() as usize).unwrap();
        // SAFETY: as for a write.
        unsafe { self.driver.read(&mut stream, 1, 0, place, rows, into) }.unwrap();
        self.driver.submit(&mut stream, 1).unwrap();
        let outcome = self.finish(&mut stream, 1);
        assert!(outcome.failed.is_empty(), "{:?}", outcome.failed);
        let [(1, 0, buffer)] = outcome.read.as_slice() else { panic!("one read gave {:?}", outcome.read) };
        let bytes = buffer.as_slice().to_vec();
        self.driver.close_stream(stream);
        bytes
    }

    pub fn read(&mut self, place: Place<'_, CudaPage>) -> Vec<u8> {
        self.read_rows(place, &Rows::single(place.size))
    }

    /// A page with these bytes at its start, and zeros behind them.
    pub fn page_of_bytes(&mut self, bytes: &[u8]) -> CudaPage {
        let size = (bytes.len() as u64).next_multiple_of(self.driver.page_alignment()).max(256);
        let page = self.driver.allocate(size).unwrap();
        let mut whole = bytes.to_vec();
        whole.resize(size as usize, 0);
        let mut stream = self.driver.open_stream().unwrap();
        self.write(&mut stream, 1, &whole, all(&page));
        self.driver.submit(&mut stream, 1).unwrap();
        assert!(self.finish(&mut stream, 1).failed.is_empty());
        self.driver.close_stream(stream);
        page
    }

    /// A driver of the same device in the place of the rig's, which is given back.
    pub fn replace(&mut self) -> CudaDriver {
        let other = open(&self.device, &self.options);
        std::mem::replace(&mut self.driver, other)
    }
}

/// A stream of the program's own, in the device's primary context, that stands still until it is let go on.
pub struct Gate {
    raw: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    event: sys::CUevent,
    state: Arc<(Mutex<bool>, Condvar)>,
}

// SAFETY: handles, which the double takes on any thread.
unsafe impl Send for Gate {}

unsafe extern "C" fn stand(state: *mut c_void) {
    // SAFETY: what the stream was given to hand over.
    let state = unsafe { Arc::from_raw(state.cast_const().cast::<(Mutex<bool>, Condvar)>()) };
    let mut is_open = state.0.lock().unwrap();
    while !*is_open {
        is_open = state.1.wait(is_open).unwrap();
    }
}

fn done(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

impl Gate {
    pub fn new(device: &Device) -> Self {
        let (mut context, mut stream, mut event) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let state = Arc::new((Mutex::new(false), Condvar::new()));
        let raw = device.ordinal();
        // SAFETY: handles that are made here, each used as it was made.
        unsafe {
            done(sys::cuDevicePrimaryCtxRetain(&mut context, raw));
            done(sys::cuCtxPushCurrent_v2(context));
            done(sys::cuStreamCreate(&mut stream, 1));
            done(sys::cuEventCreate(&mut event, 2));
            done(sys::cuLaunchHostFunc(stream, Some(stand), Arc::into_raw(state.clone()).cast_mut().cast()));
            done(sys::cuEventRecord(event, stream));
            done(sys::cuCtxPopCurrent_v2(&mut context));
        }
        Self { raw, context, stream, event, state }
    }

    /// The event that happens when the gate opens.
    pub fn event(&self) -> Foreign {
        // SAFETY: recorded, and destroyed at the end of the test.
        Foreign::new(unsafe { CudaEvent::new(self.event, ()) })
    }

    pub fn raw_event(&self) -> sys::CUevent {
        self.event
    }

    pub fn open(&self) {
        *self.state.0.lock().unwrap() = true;
        self.state.1.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
        // SAFETY: as where they were made; whoever waits for the event does so to the end.
        unsafe {
            done(sys::cuCtxPushCurrent_v2(self.context));
            done(sys::cuStreamSynchronize(self.stream));
            done(sys::cuEventDestroy_v2(self.event));
            done(sys::cuStreamDestroy_v2(self.stream));
            done(sys::cuCtxPopCurrent_v2(&mut self.context));
            done(sys::cuDevicePrimaryCtxRelease_v2(self.raw));
        }
    }
}
