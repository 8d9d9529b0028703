//! Whatever a loader or a driver answers while a device is looked for and opened: a reason that says what is wrong, and nothing left.

extern crate alloc;

use trunnion_backend_vulkan::ash::vk;
use trunnion_backend_vulkan::{VulkanBackend, VulkanOptions};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::properties::DeviceProperties;
use trunnion_vulkan_shim::{Plan, Shim, is_required};

/// A shim that follows a plan. Where there is no Vulkan there is none, and nothing to test.
fn shim(plan: Plan) -> Option<Shim> {
    match Shim::new(plan) {
        Ok(shim) if is_required() || VulkanBackend::default().enumerate().is_ok() => Some(shim),
        other => {
            println!("skipped: no Vulkan");
            assert!(!is_required(), "{other:?}");
            None
        }
    }
}

fn backend(shim: &Shim, options: VulkanOptions) -> VulkanBackend {
    // SAFETY: the shim hands on to the system's loader what it does not change, and lives longer than the backend.
    unsafe { VulkanBackend::with_entry(shim.entry(), options) }
}

/// Opens the first device and closes it.
fn open(shim: &Shim, options: &VulkanOptions) -> Result<DeviceProperties> {
    let backend = backend(shim, options.clone());
    backend.enumerate()?;
    backend.open(0, &OpenSettings::default()).map(|opened| opened.properties)
}

fn assert_clean(shim: &Shim) {
    assert_eq!(shim.alive(), []);
    assert_eq!(shim.complaints(), [""; 0]);
}

/// Why the devices of a plan cannot be used: the same for discovery and for opening.
fn why(plan: Plan) -> Option<String> {
    let shim = shim(plan)?;
    let error = open(&shim, &VulkanOptions::default()).unwrap_err();
    assert_clean(&shim);
    match error {
        Error::BackendUnavailable { why, .. } => Some(why),
        other => panic!("{other:?}"),
    }
}

fn assert_why(plan: Plan, parts: &[&str]) {
    if let Some(why) = why(plan) {
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    }
}

#[test]
fn a_device_that_cannot_be_used_is_named_with_the_reason() {
    let llvmpipe = || Plan::new().device_named("llvmpipe");
    let old = vk::make_api_version(0, 1, 1, 7);
    assert_why(llvmpipe().device_version(old), &["llvmpipe", "has Vulkan 1.1.7, 1.2.0 is needed"]);
    assert_why(llvmpipe().features12(|has| has.timeline_semaphore = vk::FALSE), &["llvmpipe", "timeline semaphores"]);
    assert_why(
        llvmpipe().families(|family| family.queue_flags = vk::QueueFlags::GRAPHICS),
        &["no queue that computes"],
    );
    assert_why(llvmpipe().families(|family| family.queue_count = 0), &["no queue that computes"]);
    assert_why(llvmpipe().missing("vkWaitSemaphores"), &["llvmpipe", "the driver has no vkWaitSemaphores"]);
    assert_why(Plan::new().no_device(), &["no driver has a device", "mesa-vulkan-drivers"]);
    assert_why(Plan::new().instance_version(old), &["loader has version 1.1.7, 1.2.0 is needed"]);
    assert_why(Plan::new().missing("vkGetPhysicalDeviceFeatures2"), &["instance has no vkGetPhysicalDeviceFeatures2"]);
}

#[test]
fn the_validation_layer_is_asked_for_by_package_where_it_is_not_installed() {
    let Some(shim) = shim(Plan::new().hide_layer("VK_LAYER_KHRONOS_validation")) else { return };
    let error = open(&shim, &VulkanOptions::default().validation(true)).unwrap_err();
    assert!(
        error.to_string().contains("option `validation`") && error.to_string().contains("vulkan-validationlayers"),
        "{error}"
    );
    assert_clean(&shim);
}

#[test]
fn extensions_that_are_hidden_are_done_without() {
    let names =
        ["VK_KHR_push_descriptor", "VK_EXT_memory_budget", "VK_KHR_external_memory_fd", "VK_EXT_external_memory_host"];
    let plan = names.iter().fold(Plan::new(), |plan, name| plan.hide_extension(name));
    let Some(shim) = shim(plan.hide_extension("VK_KHR_portability_enumeration")) else { return };
    let properties = open(&shim, &VulkanOptions::default()).unwrap();
    assert!(names.iter().all(|name| !properties.info.to_string().contains(name)), "{}", properties.info);
    assert_clean(&shim);
}

#[test]
fn as_many_queues_are_used_as_there_are_up_to_the_option() {
    for (there, option, used) in [(8, None, 8), (8, Some(3), 3), (2, Some(5), 2)] {
        let Some(shim) = shim(Plan::new().queues(there)) else { return };
        let options = option.map_or_else(VulkanOptions::default, |queues| VulkanOptions::default().queues(queues));
        let properties = open(&shim, &options).unwrap();
        let (_, queues) = properties.info.details.iter().find(|(name, _)| name == "queues").unwrap();
        assert_eq!(*queues, format!("{used} of family 0"));
        assert_clean(&shim);
    }
}

#[test]
fn a_driver_of_another_build_has_another_identity() {
    let identity = |plan: Plan| Some(open(&shim(plan)?, &VulkanOptions::default()).unwrap().hardware_identity());
    let Some(plain) = identity(Plan::new()) else { return };
    assert_eq!(identity(Plan::new()), Some(plain.clone()));
    assert_ne!(identity(Plan::new().properties(|said| said.driver_version += 1)), Some(plain.clone()));
    assert_ne!(identity(Plan::new().properties(|said| said.pipeline_cache_uuid[3] ^= 1)), Some(plain));
}

#[test]
fn whatever_call_fails_while_a_device_is_opened_is_named_and_nothing_is_left() {
    let options = VulkanOptions::default().validation(cfg!(target_os = "linux") && has_validation());
    let Some(plain) = shim(Plan::new()) else { return };
    open(&plain, &options).unwrap();
    assert_clean(&plain);
    // Functions that answer with a result: the others cannot fail.
    let fails = |name: &str| {
        name.starts_with("vkCreate")
            || name.starts_with("vkAllocate")
            || name.starts_with("vkBind")
            || name.starts_with("vkMap")
            || name.starts_with("vkEnumerate")
    };
    let mut tried = 0;
    for (name, calls) in plain.all_calls().into_iter().filter(|(name, _)| fails(name)) {
        for nth in 1..=calls {
            for code in [
                vk::Result::ERROR_OUT_OF_HOST_MEMORY,
                vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
                vk::Result::ERROR_INITIALIZATION_FAILED,
                vk::Result::ERROR_DEVICE_LOST,
            ] {
                let Some(shim) = shim(Plan::new().fail(name, nth, code)) else { return };
                let result = open(&shim, &options);
                assert_eq!(shim.fired().len(), 1, "{name}, call {nth}");
                let text =
                    result.map_or_else(|error| error.to_string(), |found| format!("opened {}", found.info.adapter));
                assert!(text.contains(name) || text.starts_with("opened"), "{name}, call {nth}, {code:?}: {text}");
                assert_clean(&shim);
                tried += 1;
            }
        }
    }
    println!("{tried} failures, each of another call or code");
    assert!(tried >= 40, "{tried}");
}

fn has_validation() -> bool {
    VulkanBackend::new(VulkanOptions::default().validation(true)).enumerate().is_ok()
}
