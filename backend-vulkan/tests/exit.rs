//! The end of a process that has devices: in processes of their own, which must end well and in time.

#![cfg(unix)]
#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

use core::ffi::c_int;
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use trunnion_backend_core::driver::{Driver, Place};
use trunnion_backend_vulkan::{VulkanBackend, VulkanDriver, VulkanOptions, VulkanStream};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::executor::{Config, Executor, Resident};
use trunnion_runtime_core::grid::Grid;
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::kernel::SourceKernel;
use trunnion_runtime_core::platform::Deadline;
use trunnion_runtime_core::server::Pattern;
use trunnion_runtime_core::service::Settings;
use trunnion_vulkan_shim::{Plan, Shim, require};

/// The device that a child process is for.
const INDEX: &str = "DEVICE_OF_THE_CHILD";

/// Longer than a process takes to end.
const LIMIT: Duration = Duration::from_secs(60);

unsafe extern "C" {
    fn atexit(callback: extern "C" fn()) -> c_int;
    fn _exit(code: c_int) -> !;
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
}

/// Runs a hidden test of this file in a process of its own for each device, which must end with 0 in time.
fn each(hidden: &str) {
    let found = VulkanBackend::new(VulkanOptions::default()).enumerate().unwrap_or_default();
    require(&found.iter().map(|info| &info.adapter).collect::<Vec<_>>());
    let count = found.len();
    for index in 0..count {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", hidden, "--ignored", "--nocapture"])
            .env(INDEX, index.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() && begun.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        let is_late = child.try_wait().unwrap().is_none();
        if is_late {
            child.kill().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(!is_late && output.status.success(), "{hidden}, device {index}: {}: {said}", output.status);
        assert!(said.contains("at the end"), "{hidden}, device {index}: {said}");
    }
}

fn index() -> u32 {
    std::env::var(INDEX).unwrap().parse().unwrap()
}

/// Whether the test came to its [`finish`].
static IS_THROUGH: AtomicBool = AtomicBool::new(false);

/// Ends the process with what `judge` says at its end, which comes after whatever asks to be called later than this.
fn judged(judge: impl Fn() -> bool + Send + Sync + 'static) {
    static JUDGE: OnceLock<Box<dyn Fn() -> bool + Send + Sync>> = OnceLock::new();
    extern "C" fn last() {
        println!("at the end");
        let is_well = IS_THROUGH.load(Ordering::SeqCst) && JUDGE.get().is_some_and(|judge| judge());
        // SAFETY: nothing of this process is needed any more.
        unsafe { _exit(if is_well { 0 } else { 3 }) }
    }
    assert!(JUDGE.set(Box::new(judge)).is_ok());
    // SAFETY: a function of this program.
    assert_eq!(unsafe { atexit(last) }, 0);
}

fn finish() -> ! {
    IS_THROUGH.store(true, Ordering::SeqCst);
    process::exit(0)
}

fn shimmed(plan: Plan) -> (Arc<Shim>, Client) {
    let shim = Arc::new(Shim::new(plan).unwrap());
    // SAFETY: the shim hands on to the system's loader what it does not change, and its functions work as long as the process runs.
    let backend = unsafe { VulkanBackend::with_entry(shim.entry(), VulkanOptions::default()) };
    let opened = backend.open(index(), &OpenSettings::default()).unwrap();
    let device = DeviceId { backend: backend.name(), index: index() };
    (shim, Client::try_init_with(device, opened, &Settings::default()).unwrap())
}

const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(64) fn add(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x] += 1u; }";

#[test]
fn a_process_that_exits_while_a_kernel_is_compiled_waits_for_the_compiler() {
    each("exits_while_a_kernel_is_compiled");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn exits_while_a_kernel_is_compiled() {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    static DONE: AtomicBool = AtomicBool::new(false);
    judged(|| DONE.load(Ordering::SeqCst));
    // Longer than anything else is waited for.
    let compiler = || {
        BEGUN.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(7));
        DONE.store(true, Ordering::SeqCst);
    };
    let (_shim, client) = shimmed(Plan::new().compiler(compiler));
    std::thread::spawn(move || {
        let x = client.create_from_slice(&[0; 256]).unwrap();
        let kernel = client.prepare(SourceKernel::wgsl("add", ADD)).unwrap();
        client.launch(&kernel, Grid::x(1), [&x]).unwrap();
        client.sync().and_then(|done| done.wait())
    });
    while !BEGUN.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
    finish();
}

#[test]
fn a_driver_that_is_dropped_after_devices_were_ended_waits_for_no_thread() {
    each("drops_a_driver_at_the_end");
}

/// A driver that nobody shuts down, with what it was used through.
struct Left {
    driver: VulkanDriver,
    stream: VulkanStream,
    _executor: Executor<Deaf>,
}

/// Is told of progress, and does nothing.
struct Deaf;

impl Resident for Deaf {
    fn progress(&mut self) {}
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn drops_a_driver_at_the_end() {
    static LEFT: Mutex<Option<Left>> = Mutex::new(None);
    let backend = VulkanBackend::new(VulkanOptions::default());
    // The libraries are there before this process is asked for anything, so that they are torn down after it.
    backend.enumerate().unwrap();
    judged(|| {
        let Some(Left { mut driver, stream, _executor }) = LEFT.lock().unwrap().take() else { return false };
        driver.close_stream(stream);
        drop(driver);
        true
    });
    let executor = Executor::new(Deaf, Config::default()).unwrap();
    let mut driver = backend.driver(index(), &VulkanOptions::default()).unwrap();
    driver.start(executor.notifier());
    let mut stream = driver.open_stream().unwrap();
    let page = driver.allocate(4096).unwrap();
    let place = Place { page: &page, offset: 0, size: 4096 };
    // SAFETY: the page is dropped when this is done.
    unsafe { driver.fill(&mut stream, 1, place, Pattern::new(&[1]).unwrap()) }.unwrap();
    driver.submit(&mut stream, 1).unwrap();
    assert!(driver.drain(&Deadline::after(LIMIT)));
    driver.release(page);
    *LEFT.lock().unwrap() = Some(Left { driver, stream, _executor: executor });
    finish();
}

#[test]
fn a_process_that_was_forked_leaves_the_devices_alone_when_it_exits() {
    each("forks_with_a_device");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn forks_with_a_device() {
    // In the forked process, when it exits: the driver was asked so much, and nobody may be waited for.
    static OF_THE_FORKED: OnceLock<(Arc<Shim>, usize, Instant)> = OnceLock::new();
    let calls = |shim: &Shim| shim.all_calls().iter().map(|(_, count)| *count as usize).sum::<usize>();
    judged(move || {
        let is_quick = |begun: &Instant| begun.elapsed() < Duration::from_millis(1500);
        OF_THE_FORKED.get().is_none_or(|(shim, before, begun)| calls(shim) == *before && is_quick(begun))
    });
    let (shim, client) = shimmed(Plan::new());
    let x = client.create_from_slice(&[7; 256]).unwrap();
    client.sync().unwrap().wait().unwrap();
    // SAFETY: the forked process does nothing but exit.
    match unsafe { fork() } {
        0 => {
            let before = calls(&shim);
            assert!(OF_THE_FORKED.set((shim, before, Instant::now())).is_ok());
            finish();
        }
        forked => {
            assert!(forked > 0);
            let (mut status, begun) = (-1, Instant::now());
            // SAFETY: the status is this function's; 1 is WNOHANG.
            while unsafe { waitpid(forked, &mut status, 1) } == 0 {
                assert!(begun.elapsed() < LIMIT / 3, "the forked process does not end");
                std::thread::sleep(Duration::from_millis(5));
            }
            assert_eq!(status, 0, "the forked process ended with this status");
        }
    }
    assert_eq!(client.read_one(&x).unwrap().as_slice().unwrap(), [7; 256]);
    finish();
}
