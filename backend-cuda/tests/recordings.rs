//! Somebody else records streams into a graph, and forbids what could disturb that: it is not disturbed, and neither are we.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;
#[allow(dead_code, reason = "nothing fails here")]
#[path = "failures/scenario.rs"]
mod scenario;

use rig::{Bell, Context, PATIENCE, Rig, all, assert_clean, claim, done, double, raw};
use scenario::run;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use trunnion_backend_core::driver::{Driver, Outcome};
use trunnion_backend_cuda::{CudaBackend, CudaOptions, NAME};
use trunnion_cuda_double::Device;
use trunnion_cuda_raw::{Address, Handle};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::executor::Execution;
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::server::Pattern;
use trunnion_runtime_core::service::Settings;

fn start(device: &Device, execution: Option<Execution>, options: &CudaOptions) -> Client {
    static NEXT: AtomicU32 = AtomicU32::new(9000);
    let backend = CudaBackend::new(options.clone().library(double().path()));
    let mut settings = Settings::default();
    settings.wait_timeout = PATIENCE / 2;
    if let Some(execution) = execution {
        settings.executor.execution = execution;
    }
    let opened = backend.open(device.ordinal() as u32, &OpenSettings::default()).unwrap();
    let id = DeviceId { backend: NAME, index: NEXT.fetch_add(1, Ordering::Relaxed) };
    Client::try_init_with(id, opened, &settings).unwrap()
}

/// What forbids most. Equivalent to: `CU_STREAM_CAPTURE_MODE_GLOBAL`.
const GLOBAL: u32 = 0;

/// A recording of somebody else's in the device's primary context, in the mode that forbids most.
struct Recording {
    context: Context,
    stream: Handle,
    address: Address,
}

impl Recording {
    fn begin(device: &Device) -> Self {
        let (context, driver, mut stream, mut address) = (Context::of(device), raw(), ptr::null_mut(), 0);
        // SAFETY: handles that are made here, each used as it was made.
        context.within(|| unsafe {
            done(driver.cuStreamCreate(&mut stream, 1));
            done(driver.cuMemAlloc_v2(&mut address, 256));
            done(driver.cuStreamBeginCapture_v2(stream, GLOBAL));
            done(driver.cuMemsetD8Async(address, 7, 256, stream));
        });
        Self { context, stream, address }
    }

    /// Ends it; what was recorded is a graph, which is done once.
    fn end(self) {
        let (mut graph, mut exec, mut bytes, driver) = (ptr::null_mut(), ptr::null_mut(), [0_u8; 256], raw());
        // SAFETY: as where they were made.
        self.context.within(|| unsafe {
            done(driver.cuStreamEndCapture(self.stream, &mut graph));
            done(driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            done(driver.cuGraphLaunch(exec, self.stream));
            done(driver.cuStreamSynchronize(self.stream));
            done(driver.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), self.address, 256));
            done(driver.cuGraphExecDestroy(exec));
            done(driver.cuGraphDestroy(graph));
            done(driver.cuMemFree_v2(self.address));
            done(driver.cuStreamDestroy_v2(self.stream));
        });
        assert_eq!(bytes, [7; 256]);
    }
}

/// Recordings forbid on this thread what they forbid at first.
fn assert_mode(device: &Device) {
    let mut mode = GLOBAL;
    Context::of(device).within(|| {
        // SAFETY: the place has a mode, and is for another.
        done(unsafe { raw().cuThreadExchangeStreamCaptureMode(&mut mode) });
    });
    assert_eq!(mode, GLOBAL);
}

/// Everything that is asked of a driver, from opening a device to its end, on one thread or several, while the same thread records or another.
#[test]
fn whatever_is_asked_meanwhile_the_recording_goes_on_and_so_do_we() {
    for options in [CudaOptions::default(), CudaOptions::default().vmm(false).staging(true)] {
        for execution in [None, Some(Execution::Inline)] {
            let device = claim();
            // SAFETY: no flags is what there is.
            done(unsafe { raw().cuInit(0) });
            assert_mode(&device);
            let recording = Recording::begin(&device);
            let client = start(&device, execution, &options);
            run(&client).assert_whole("on the thread that records");
            std::thread::scope(|scope| {
                scope.spawn(|| run(&client).assert_whole("on another thread"));
            });
            client.shutdown(PATIENCE / 2);
            drop(client);
            recording.end();
            assert_mode(&device);
            assert_clean(&device);
        }
    }
}

#[test]
fn a_thread_of_ours_says_once_that_it_disturbs_nobody() {
    let device = claim();
    let mut rig = Rig::new(device, &CudaOptions::default().library(double().path()));
    let page = rig.page_of_bytes(&[0; 256]);
    let trunnion_driver_rig::Rig { mut driver, executor, .. } = rig.rig;
    let (tell, told) = mpsc::channel();
    let work = move |_: &mut Bell, _| {
        let mut stream = driver.open_stream().unwrap();
        let before = device.calls("cuThreadExchangeStreamCaptureMode").unwrap();
        for seq in 1..=20 {
            // SAFETY: the page is freed when the work is done.
            unsafe { driver.fill(&mut stream, seq, all(&page), Pattern::new(&[seq as u8]).unwrap()) }.unwrap();
            driver.submit(&mut stream, seq).unwrap();
            while driver.poll(&mut stream, &mut Outcome::default()).unwrap() < seq {
                std::thread::yield_now();
            }
        }
        let asked = device.calls("cuEventQuery").unwrap();
        // The thread of the stream says so too.
        let said = device.calls("cuThreadExchangeStreamCaptureMode").unwrap() - before;
        driver.close_stream(stream);
        drop((page, driver));
        tell.send((asked, said)).unwrap();
    };
    executor.submit(work).unwrap();
    let (asked, said) = told.recv_timeout(PATIENCE).unwrap();
    assert!(asked > 0 && said <= 1, "{asked} and {said}");
    drop(executor);
    assert_clean(&device);
}
