//! CUDA devices driven directly, without a server: each a device of the double's own, with options that force each path. What the double
//! reports fails the test, and so does memory that is left.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

mod context;
pub mod kernels;

pub use context::{Context, within};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::Place;
use trunnion_backend_cuda::cudarc::driver::sys;
use trunnion_backend_cuda::{CudaBackend, CudaDriver, CudaEvent, CudaOptions, CudaPage};
use trunnion_cuda_double::{Device, Double};
use trunnion_cuda_raw::Handle;
pub use trunnion_driver_rig::{Bell, PATIENCE, eventually, part};
use trunnion_runtime_core::foreign::Foreign;
use trunnion_runtime_core::server::Bounds;

/// A driver of a device of the double's own.
pub struct Rig {
    pub rig: trunnion_driver_rig::Rig<CudaDriver>,
    pub device: Device,
    pub options: CudaOptions,
}

impl Deref for Rig {
    type Target = trunnion_driver_rig::Rig<CudaDriver>;

    fn deref(&self) -> &Self::Target {
        &self.rig
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.rig
    }
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

/// All of a page.
pub fn all(page: &CudaPage) -> Place<'_, CudaPage> {
    part(page, 0, page.size())
}

impl Rig {
    pub fn new(device: Device, options: &CudaOptions) -> Self {
        let mut rig = trunnion_driver_rig::Rig::new(open(&device, options));
        (rig.fewest, rig.bounds) = (256, Bounds::Unchecked);
        Self { rig, device, options: options.clone() }
    }

    /// A driver of the same device in the place of the rig's, which is given back.
    pub fn replace(&mut self) -> CudaDriver {
        let other = open(&self.device, &self.options);
        std::mem::replace(&mut self.driver, other)
    }
}

/// A stream of the program's own, in the device's primary context, that stands still until it is let go on.
pub struct Gate {
    context: Context,
    stream: Handle,
    event: Handle,
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

/// The driver's functions, for what a test does itself.
pub fn raw() -> &'static trunnion_cuda_raw::Driver {
    double();
    trunnion_cuda_raw::Driver::of_process().unwrap()
}

/// That a call gave nothing but success.
#[track_caller]
pub fn done(status: u32) {
    assert_eq!(status, 0);
}

impl Gate {
    pub fn new(device: &Device) -> Self {
        let (mut stream, mut event, driver) = (std::ptr::null_mut(), std::ptr::null_mut(), raw());
        let state = Arc::new((Mutex::new(false), Condvar::new()));
        let context = Context::of(device);
        // SAFETY: handles that are made here, each used as it was made.
        context.within(|| unsafe {
            done(driver.cuStreamCreate(&mut stream, 1));
            done(driver.cuEventCreate(&mut event, 2));
            done(driver.cuLaunchHostFunc(stream, Some(stand), Arc::into_raw(state.clone()).cast_mut().cast()));
            done(driver.cuEventRecord(event, stream));
        });
        Self { context, stream, event, state }
    }

    /// The event that happens when the gate opens.
    pub fn event(&self) -> Foreign {
        // SAFETY: recorded, and destroyed at the end of the test.
        Foreign::new(unsafe { CudaEvent::new(self.event.cast(), ()) })
    }

    pub fn raw_event(&self) -> sys::CUevent {
        self.event.cast()
    }

    pub fn open(&self) {
        (self.opener())();
    }

    /// What opens the gate, on any thread.
    pub fn opener(&self) -> impl Fn() + Send + 'static {
        let state = self.state.clone();
        move || {
            *state.0.lock().unwrap() = true;
            state.1.notify_all();
        }
    }
}

/// Opens the gate if the work takes too long, so that a test fails in place of hanging.
pub fn in_time<T>(gate: &Gate, work: impl FnOnce() -> T) -> T {
    let (done, wait) = mpsc::channel::<()>();
    let open = gate.opener();
    let watchdog = std::thread::spawn(move || {
        let is_late = wait.recv_timeout(PATIENCE / 2).is_err_and(|why| why == mpsc::RecvTimeoutError::Timeout);
        if is_late {
            open();
        }
        is_late
    });
    let made = work();
    drop(done);
    assert!(!watchdog.join().unwrap(), "whoever worked was kept by what others do");
    made
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
        let driver = raw();
        // SAFETY: as where they were made; whoever waits for the event does so to the end.
        self.context.within(|| unsafe {
            done(driver.cuStreamSynchronize(self.stream));
            done(driver.cuEventDestroy_v2(self.event));
            done(driver.cuStreamDestroy_v2(self.stream));
        });
    }
}
