//! Every call to the driver fails in every way: what is read is right or an error that names the call, nothing hangs, nothing is left, and
//! a new device works.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;
#[path = "failures/scenario.rs"]
mod scenario;

use rig::{PATIENCE, claim, double};
use scenario::run;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};
use trunnion_backend_cuda::{CudaBackend, CudaOptions, NAME};
use trunnion_cuda_double::{Device, ReportKind};
use trunnion_driver_rig::program::{Came, assert_copies};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::service::Settings;

/// Codes that any call may give: refusals, a shortage, a state that is not ready, and numbers that nobody knows.
const REFUSALS: [u32; 6] = [1, 2, 400, 600, 999, 12_345];

/// Codes of work that died.
const DEATHS: [u32; 3] = [700, 716, 719];

/// Codes of a driver or a context that is gone.
const GONE: [u32; 3] = [4, 201, 709];

/// What gives something back: what it refuses to take is left.
const ENDS: [&str; 9] = [
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAddressFree",
    "cuStreamDestroy_v2",
    "cuEventDestroy_v2",
    "cuModuleUnload",
    "cuDevicePrimaryCtxRelease_v2",
];

fn options() -> [CudaOptions; 2] {
    let plain = CudaOptions::default().library(double().path());
    [plain.clone(), plain.vmm(false).staging(true)]
}

fn open(device: &Device, options: &CudaOptions) -> Result<Client> {
    static NEXT: AtomicU32 = AtomicU32::new(5000);
    let backend = CudaBackend::new(options.clone());
    let opened = backend.open(device.ordinal() as u32, &OpenSettings::default())?;
    let mut settings = Settings::default();
    settings.wait_timeout = PATIENCE / 2;
    Client::try_init_with(DeviceId { backend: NAME, index: NEXT.fetch_add(1, Ordering::Relaxed) }, opened, &settings)
}

/// Runs the program on a device, and ends it. Calls of `failing`, which may be no device, fail. Fails where that takes too long.
fn attempt(device: &Device, options: &CudaOptions, failing: &Device, fail: Option<(&str, u64, u32)>) -> Came {
    let what = format!("{fail:?}");
    let client = open(device, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    device.forget_calls().unwrap();
    if let Some((function, nth, code)) = fail {
        failing.fail(function, nth, code).unwrap();
    }
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || {
        let came = run(&client);
        client.shutdown(PATIENCE / 2);
        drop(client);
        let _ = done.send(came);
    });
    result.recv_timeout(2 * PATIENCE).unwrap_or_else(|why| panic!("{what}: {why}: {:?}", device.all_calls()))
}

/// Nothing is left once threads that end by themselves have.
fn settles(device: &Device) -> bool {
    let begun = Instant::now();
    while device.memory_used().unwrap() > 0 {
        if begun.elapsed() > PATIENCE / 2 {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// Calls of threads without a context are nobody's, so tests that let them fail run alone.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_context_that_cannot_be_entered_is_an_error_or_a_loss() {
    let _alone = ALONE.lock();
    let nobody = double().without_device();
    for function in ["cuCtxPushCurrent_v2", "cuCtxSetCurrent"] {
        for (nth, code) in (1..=16).flat_map(|nth| [2, 201, 999].map(|code| (nth, code))) {
            sweep_one(&options()[0], Some(nobody), (function, nth, code));
            nobody.fail(function, 1, 0).unwrap();
        }
    }
}

#[test]
fn every_call_fails_in_every_way_and_harms_nothing_else() {
    let _alone = ALONE.lock();
    double().set_device_count(1024).unwrap();
    let begun = Instant::now();
    let mut fired = BTreeMap::new();
    for options in options() {
        let device = claim();
        attempt(&device, &options, &device, None).assert_whole(&options.to_string());
        assert!(settles(&device));
        assert_eq!(device.take_reports().unwrap(), []);
        let calls = device.all_calls().unwrap();
        device.release().unwrap();
        for (function, count) in calls {
            for (nth, code) in places(count) {
                sweep_one(&options, None, (&function, nth, code));
                *fired.entry((function.clone(), code)).or_insert(0) += 1;
            }
        }
    }
    let total: u32 = fired.values().sum();
    println!("{total} failures: {} calls × codes, in {:.1?}", fired.len(), begun.elapsed());
    assert!(fired.len() >= 150, "{} calls × codes", fired.len());
}

/// Which calls fail, and how: the first in every way; one in the middle and the last in two.
fn places(count: u64) -> Vec<(u64, u32)> {
    let mut places: Vec<_> = REFUSALS.into_iter().chain(DEATHS).chain(GONE).map(|code| (1, code)).collect();
    for nth in [count.div_ceil(2), count] {
        places.extend([(nth, 2), (nth, 719)]);
    }
    places.sort_unstable();
    places.dedup();
    places
}

/// Lets a call of a device fail, the program's own unless another one is given.
fn sweep_one(options: &CudaOptions, failing: Option<Device>, fail: (&str, u64, u32)) {
    let what = format!("{options}: {fail:?}");
    let (function, _, code) = fail;
    let device = claim();
    let failing = failing.as_ref().unwrap_or(&device);
    let came = attempt(&device, options, failing, Some(fail));
    came.assert_right(&what);
    let said = came.said();
    let is_death = DEATHS.contains(&code);
    // What can be done without, or tried again, need not be told. That a device is lost another thread may see first, by another call.
    if is_death || GONE.contains(&code) {
        assert!(said.is_empty() || came.is_lost() || said.contains(function), "{what}: {said}");
        came.assert_one_cause(&what);
    } else {
        // With this code the function says that there is no further parameter.
        let is_an_answer = (function, code) == ("cuFuncGetParamInfo", 1);
        assert!(said.is_empty() || said.contains(function) || is_an_answer, "{what}: {said}");
    }
    let reports = device.take_reports().unwrap();
    assert!(reports.iter().all(|report| is_expected(function, report.kind)), "{what}: {reports:?}");
    if is_death {
        // Its memory went with the context, which the double only mends.
        device.reset().unwrap();
        return;
    }
    // Without a context nothing can be given back.
    let may_leave = GONE.contains(&code) || ENDS.contains(&function) || function == "cuCtxPushCurrent_v2";
    let is_clean = if may_leave { device.memory_used() == Ok(0) } else { settles(&device) };
    assert!(is_clean || may_leave, "{what}: {} bytes are left", device.memory_used().unwrap());
    a_new_device_works(&device, options, &what);
    if is_clean {
        device.release().unwrap();
    }
}

/// What the double may notice: that work died, where that is what was planned, and that what reads bytes reads them though they were not
/// written. What was read is an error then.
fn is_expected(function: &str, kind: ReportKind) -> bool {
    let writes = ["cuMemcpy", "cuMemset", "cuLaunch", "cuEvent"].iter().any(|start| function.starts_with(start));
    kind == ReportKind::Fault || (writes && kind == ReportKind::Uninitialised)
}

fn a_new_device_works(device: &Device, options: &CudaOptions, what: &str) {
    device.reset().unwrap();
    let client = open(device, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_copies(&client, what);
    client.shutdown(PATIENCE / 2);
}

#[test]
fn a_device_that_cannot_be_opened_says_which_call_failed_and_leaves_nothing() {
    let _alone = ALONE.lock();
    let device = claim();
    let mut names = 0;
    for (function, codes) in [
        ("cuMemHostAlloc", &[1, 2, 999][..]),
        ("cuCtxGetStreamPriorityRange", &[1, 999]),
        ("cuMemGetAllocationGranularity", &[1, 801]),
        ("cuStreamCreateWithPriority", &[2, 999]),
    ] {
        for code in codes {
            device.fail(function, 1, *code).unwrap();
            let opened = open(&device, &options()[0]);
            match opened {
                Ok(client) => {
                    // It is done without.
                    let came = run(&client);
                    came.assert_right(function);
                    client.shutdown(PATIENCE / 2);
                }
                Err(error) => assert!(error.to_string().contains(function), "{function}, {code}: {error}"),
            }
            names += 1;
            assert!(settles(&device), "{function}, {code}");
            device.reset().unwrap();
        }
    }
    assert_eq!(names, 9);
    device.release().unwrap();
}
