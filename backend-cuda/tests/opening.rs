//! What a program sees of CUDA devices: the driver that is opened, discovery, opening with settings, and what is refused.
//!
//! A process has one driver, so each test that opens another one runs in a process of its own.

#![allow(clippy::std_instead_of_core, clippy::std_instead_of_alloc, reason = "what runs here has the standard library")]

mod rig;

use rig::{claim, double};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use trunnion_backend_core::LimitOptions;
use trunnion_backend_core::driver::Driver;
use trunnion_backend_cuda::{CudaBackend, CudaOptions, NAME};
use trunnion_cuda_double::Double;
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::error::{Error, Result, SourceForm};
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::properties::{BoundsAbility, DeviceKind, DeviceProperties};

const ALONE: &str = "TRUNNION_TEST_ALONE";
const DRIVER: &str = "TRUNNION_CUDA_DRIVER";

/// Whether this process runs this one test and nothing else. Where it doesn't, a process that does is run to its end, with these
/// variables of the environment, and must succeed.
fn alone(test: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var(ALONE).is_ok() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").env_remove(DRIVER).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// Why there are no devices: the same for discovery and for opening.
fn why(options: CudaOptions) -> String {
    let backend = CudaBackend::new(options);
    let answers = [backend.enumerate().map(|_| ()), backend.open(0, &OpenSettings::default()).map(|_| ())]
        .map(Result::unwrap_err);
    assert_eq!(answers[0], answers[1]);
    match &answers[0] {
        Error::BackendUnavailable { backend: NAME, why } => why.clone(),
        other => panic!("{other:?}"),
    }
}

fn on_double() -> CudaOptions {
    CudaOptions::default().library(double().path())
}

fn settings(options: &[(&str, &str)]) -> OpenSettings {
    let options: BTreeMap<_, _> = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    OpenSettings { options, ..OpenSettings::default() }
}

fn opened(backend: &CudaBackend, index: u32, settings: &OpenSettings) -> Result<DeviceProperties> {
    backend.open(index, settings).map(|opened| opened.properties)
}

/// A library that is loaded and is no driver.
fn another_library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let files = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let is_c = |file: &&Path| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libc.so"));
    files.into_iter().find(is_c).unwrap().to_path_buf()
}

#[test]
fn a_driver_that_is_not_there_is_named() {
    if alone("a_driver_that_is_not_there_is_named", &[]) {
        let text = why(CudaOptions::default().library("/nowhere/libcuda.so.1"));
        assert!(text.contains("/nowhere/libcuda.so.1"), "{text}");
        // What failed is tried again, and another driver may be opened.
        assert!(CudaBackend::new(on_double()).enumerate().is_ok());
    }
}

#[test]
fn a_system_without_a_driver_is_told_what_is_missing() {
    if alone("a_system_without_a_driver_is_told_what_is_missing", &[]) {
        match CudaBackend::default().enumerate() {
            Ok(devices) => eprintln!("skipped: this system has {} devices", devices.len()),
            Err(Error::BackendUnavailable { backend, why }) => {
                assert_eq!(backend, NAME);
                assert!(why.contains("libcuda.so.1") || why.contains("device"), "{why}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_library_that_is_no_driver_is_refused() {
    if alone("a_library_that_is_no_driver_is_refused", &[]) {
        let text = why(CudaOptions::default().library(another_library()));
        assert!(text.contains("the driver has no cuDriverGetVersion"), "{text}");
        let text = why(CudaOptions::default().library(file!().replace("backend-cuda/", "")));
        assert!(text.contains("does not load"), "{text}");
    }
}

#[test]
fn the_environment_names_the_driver() {
    if alone("the_environment_names_the_driver", &[(DRIVER, "double")]) {
        let devices = CudaBackend::default().enumerate().unwrap();
        assert_eq!(devices.len(), 256);
        assert!(devices[3].adapter.starts_with("CUDA double"), "{}", devices[3]);
        assert_eq!(devices[3].device, DeviceId { backend: NAME, index: 3 });
    }
}

#[test]
fn a_process_has_one_driver() {
    if alone("a_process_has_one_driver", &[]) {
        let named = CudaBackend::new(CudaOptions::default().library("double"));
        assert_eq!(named.enumerate().unwrap().len(), 256);
        // By its path, and without saying which.
        assert!(CudaBackend::new(on_double()).enumerate().is_ok() && CudaBackend::default().enumerate().is_ok());
        let text = why(CudaOptions::default().library(another_library()));
        assert!(text.contains("this process uses") && text.contains("libtrunnion_cuda_double.so"), "{text}");
        assert!(named.enumerate().is_ok());
    }
}

#[test]
fn a_driver_without_devices_says_so() {
    if alone("a_driver_without_devices_says_so", &[("CUDA_VISIBLE_DEVICES", "-1")]) {
        Double::open().unwrap().set_device_count(0).unwrap();
        let text = why(on_double());
        assert!(text.contains("no device") && text.contains("`-1`"), "{text}");
    }
}

#[test]
fn a_device_is_opened_and_is_what_was_listed() {
    let device = claim();
    let backend = CudaBackend::new(on_double());
    let index = device.ordinal() as u32;
    let listed = backend.enumerate().unwrap().swap_remove(index as usize);
    let properties = opened(&backend, index, &OpenSettings::default()).unwrap();
    println!("{}", properties.info);
    assert_eq!(properties.info, listed);
    assert_eq!((listed.kind, listed.api.as_str()), (DeviceKind::DiscreteGpu, "CUDA 13.0"));
    assert_eq!(properties.features.sources, [SourceForm::CudaC, SourceForm::Ptx, SourceForm::Cubin]);
    assert_eq!(properties.features.bounds, BoundsAbility::None);
    assert_eq!(properties.target.architecture, "sm_90");
    let limits = &properties.limits;
    assert_eq!((limits.max_grid, limits.max_workgroup), ([0x7FFF_FFFF, 65_535, 65_535], [1024, 1024, 64]));
    assert_eq!((limits.max_invocations, limits.max_shared, limits.memory), (1024, 227 << 10, 1 << 30));
    device.release().unwrap();
}

#[test]
fn options_of_the_settings_come_on_top_of_the_backends_own() {
    let device = claim();
    let backend = CudaBackend::new(on_double().limits(LimitOptions {
        max_buffers: Some(5),
        memory: Some(1 << 22),
        ..LimitOptions::default()
    }));
    let settings = settings(&[("memory", "1MiB"), ("vmm", "false"), ("max_grid", "7,8,9"), ("row_pitch", "512")]);
    let limits = opened(&backend, device.ordinal() as u32, &settings).unwrap().limits;
    assert_eq!((limits.max_buffers, limits.memory, limits.max_allocation), (5, 1 << 20, 1 << 20));
    assert_eq!((limits.max_grid, limits.row_pitch), ([7, 8, 9], 512));
    // A limit is never raised.
    let raised = CudaOptions::default().limits(LimitOptions {
        max_shared: Some(u32::MAX),
        max_invocations: Some(5000),
        memory: Some(1 << 40),
        ..LimitOptions::default()
    });
    let limits = opened(&CudaBackend::new(raised), device.ordinal() as u32, &OpenSettings::default()).unwrap().limits;
    assert_eq!((limits.max_invocations, limits.max_shared, limits.memory), (1024, 227 << 10, 1 << 30));
    device.release().unwrap();
}

#[test]
fn a_bad_option_and_an_index_too_high_are_refused_before_anything_is_started() {
    let backend = CudaBackend::new(on_double());
    let error = opened(&backend, 0, &settings(&[("vmm", "none")])).unwrap_err();
    let (option, value, valid) = ("vmm".into(), "none".into(), "`true` or `false`".into());
    assert_eq!(error, Error::BadOption { backend: NAME, option, value, valid });
    let error = opened(&backend, 0, &settings(&[("vmn", "true")])).unwrap_err();
    let known = |known: &[String]| known.iter().any(|name| name == "vmm");
    assert!(
        matches!(&error, Error::UnknownOption { option, known: names, .. } if option == "vmn" && known(names)),
        "{error}"
    );
    let device = DeviceId { backend: NAME, index: 4000 };
    assert_eq!(opened(&backend, 4000, &OpenSettings::default()), Err(Error::NoDevice { device, count: 256 }));
}

#[test]
fn two_servers_of_one_device_and_a_dry_one_live_beside_each_other() {
    let device = claim();
    let (backend, index) = (CudaBackend::new(on_double()), device.ordinal() as u32);
    let first = backend.open(index, &OpenSettings::default()).unwrap();
    let second = backend.open(index, &OpenSettings::default()).unwrap();
    let dry = backend.open(index, &OpenSettings { dry_run: true, ..OpenSettings::default() }).unwrap();
    assert_eq!(first.properties, second.properties);
    assert_eq!(dry.properties.limits, first.properties.limits);
    drop((first, second, dry));
    rig::assert_clean(&device);
}

#[test]
fn all_of_a_devices_memory_can_be_had_as_pages() {
    let device = claim();
    let mut driver =
        rig::open(&device, &on_double().limits(LimitOptions { memory: Some(1 << 20), ..LimitOptions::default() }));
    assert_eq!(driver.free_memory(), Some(1 << 20));
    let page = driver.allocate(1 << 20).unwrap();
    let refusal = driver.allocate(driver.page_alignment()).unwrap_err();
    assert!(refusal.out_of_memory && refusal.message.contains("0 of 1048576 are free"), "{refusal:?}");
    driver.release(page);
    assert_eq!(driver.free_memory(), Some(1 << 20));
    drop(driver);
    rig::assert_clean(&device);
}
