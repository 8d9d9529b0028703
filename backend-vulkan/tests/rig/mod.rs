//! Vulkan devices for the tests of this crate: each there is, with options that force each path, checked by the validation layer.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

use trunnion_backend_core::driver::Place;
use trunnion_backend_vulkan::{VulkanBackend, VulkanDriver, VulkanOptions, VulkanPage, validation_messages};
pub use trunnion_driver_rig::{PATIENCE, bytes_of, part};
use trunnion_runtime_core::backend::Backend;
use trunnion_vulkan_shim::{require, turn};

pub type Rig = trunnion_driver_rig::Rig<VulkanDriver>;
pub type Compiled = trunnion_driver_rig::Compiled<VulkanDriver>;

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
    let _turn = turn();
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
    require(&devices.iter().map(|info| &info.adapter).collect::<Vec<_>>());
    for (info, index) in devices.iter().zip(0..) {
        eprintln!("on {} with {options}", info.adapter);
        let mut rig = Rig::new(backend.driver(index, &options).unwrap());
        rig.fewest = 256;
        test(&mut rig);
    }
    assert_eq!(validation_messages(), [""; 0]);
}

/// All of a page.
pub fn all(page: &VulkanPage) -> Place<'_, VulkanPage> {
    part(page, 0, page.size())
}
