//! Devices for the tests of this crate: each that is there, checked by the validation layer where that is installed.

use crate::backend::VulkanBackend;
use crate::device::Device;
use crate::options::VulkanOptions;
use crate::validation::validation_messages;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ash::vk;
use std::eprintln;
use trunnion_runtime_core::backend::Backend;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_vulkan_shim::{Plan, Shim, require, turn};

/// Runs a test on each device.
pub(crate) fn each(options: &VulkanOptions, test: impl Fn(&Arc<Device>)) {
    each_changed(options, |_| (), test);
}

/// Runs a test on each device, which was made to look different.
pub(crate) fn each_changed(options: &VulkanOptions, change: impl Fn(&mut Device), test: impl Fn(&Arc<Device>)) {
    let _turn = turn();
    for mut device in open(options) {
        change(Arc::get_mut(&mut device).unwrap());
        eprintln!("on {}", device.properties.info.adapter);
        test(&device);
    }
    assert_eq!(validation_messages(), [""; 0]);
}

/// Runs a test on each device as a shim shows it. Nothing that was made may be left, and nothing wrong may have been done.
pub(crate) fn each_shown(plan: impl Fn() -> Plan, options: &VulkanOptions, test: impl Fn(&Arc<Device>, &Shim)) {
    let _turn = turn();
    for real in open(options) {
        let adapter = real.properties.info.adapter.clone();
        let named = move |said: &vk::PhysicalDeviceProperties| {
            said.device_name_as_c_str().is_ok_and(|name| name.to_string_lossy() == adapter)
        };
        let Ok(shim) = Shim::new(plan().devices(named)) else { return };
        // SAFETY: the shim hands on to the system's loader what it does not change, and lives longer than the backend.
        let backend = unsafe { VulkanBackend::with_entry(shim.entry(), options.clone()) };
        test(&backend.device(0, options).unwrap(), &shim);
        drop(backend);
        assert_eq!((shim.alive(), shim.complaints()), (Vec::new(), Vec::new()));
    }
}

fn open(options: &VulkanOptions) -> Vec<Arc<Device>> {
    let devices = found(&options.clone().validation(true)).or_else(|why| {
        eprintln!("without validation: {why}");
        found(options)
    });
    let devices = devices.unwrap_or_else(|why| {
        eprintln!("skipped: {why}");
        Vec::new()
    });
    require(&devices.iter().map(|device| &device.properties.info.adapter).collect::<Vec<_>>());
    devices
}

fn found(options: &VulkanOptions) -> Result<Vec<Arc<Device>>> {
    let backend = VulkanBackend::new(options.clone());
    let count = backend.enumerate()?.len() as u32;
    (0..count).map(|index| backend.device(index, options)).collect()
}

/// Whether an error says that there is no Vulkan here.
pub(crate) fn unavailable(error: &Error) -> Option<&str> {
    match error {
        Error::BackendUnavailable { why, .. } => Some(why),
        _ => None,
    }
}

/// Whether this process runs this one test and nothing else. Where it doesn't, a process that does is run to its end, and must succeed.
pub(crate) fn alone(test: &str) -> bool {
    const ALONE: &str = "TRUNNION_TEST_ALONE";
    if std::env::var(ALONE).is_ok() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}
