//! What a device says, changed.

use ash::vk;
use trunnion_vulkan_shim::Plan;

use crate::program::{Program, assert_clean, device, instance, shim};

/// Runs a check on the first device.
fn on_device(plan: Plan, check: impl FnOnce(&ash::Instance, vk::PhysicalDevice)) {
    let Some(shim) = shim(plan) else { return };
    unsafe {
        let instance = instance(&shim.entry()).unwrap();
        let physical = instance.enumerate_physical_devices().unwrap()[0];
        check(&instance, physical);
        instance.destroy_instance(None);
    }
    assert_clean(&shim);
}

#[test]
fn limits_and_versions_are_what_the_plan_says() {
    let plan = Plan::new()
        .limits(|limits| limits.max_storage_buffer_range = 1234)
        .device_version(vk::API_VERSION_1_1)
        .properties(|properties| properties.device_type = vk::PhysicalDeviceType::INTEGRATED_GPU);
    on_device(plan, |instance, physical| unsafe {
        let properties = instance.get_physical_device_properties(physical);
        let mut all = vk::PhysicalDeviceProperties2::default();
        instance.get_physical_device_properties2(physical, &mut all);
        for properties in [properties, all.properties] {
            assert_eq!(properties.limits.max_storage_buffer_range, 1234);
            assert_eq!(properties.api_version, vk::API_VERSION_1_1);
            assert_eq!(properties.device_type, vk::PhysicalDeviceType::INTEGRATED_GPU);
        }
    });
}

#[test]
fn the_loader_says_the_version_of_the_plan() {
    let Some(shim) = shim(Plan::new().instance_version(vk::API_VERSION_1_1)) else { return };
    let version = unsafe { shim.entry().try_enumerate_instance_version() };
    assert_eq!(version, Ok(Some(vk::API_VERSION_1_1)));
}

#[test]
fn identities_are_changed_in_every_structure_that_has_them() {
    let plan = Plan::new().properties11(|properties| {
        properties.driver_uuid = [7; 16];
        properties.max_memory_allocation_size = 4096;
    });
    on_device(plan, |instance, physical| unsafe {
        let mut all = vk::PhysicalDeviceVulkan11Properties::default();
        instance.get_physical_device_properties2(
            physical,
            &mut vk::PhysicalDeviceProperties2::default().push_next(&mut all),
        );
        let mut ids = vk::PhysicalDeviceIDProperties::default();
        let mut memory = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut asked = vk::PhysicalDeviceProperties2::default().push_next(&mut ids).push_next(&mut memory);
        instance.get_physical_device_properties2(physical, &mut asked);
        assert_eq!((all.driver_uuid, all.max_memory_allocation_size), ([7; 16], 4096));
        assert_eq!((ids.driver_uuid, memory.max_memory_allocation_size), ([7; 16], 4096));
        assert_eq!(ids.device_uuid, all.device_uuid);
    });
}

#[test]
fn a_hidden_feature_is_not_there_and_cannot_be_asked_for() {
    on_device(
        Plan::new().features12(|features| features.timeline_semaphore = vk::FALSE),
        |instance, physical| unsafe {
            let mut whole = vk::PhysicalDeviceVulkan12Features::default();
            instance.get_physical_device_features2(
                physical,
                &mut vk::PhysicalDeviceFeatures2::default().push_next(&mut whole),
            );
            let mut part = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
            instance.get_physical_device_features2(
                physical,
                &mut vk::PhysicalDeviceFeatures2::default().push_next(&mut part),
            );
            assert_eq!((whole.timeline_semaphore, part.timeline_semaphore), (vk::FALSE, vk::FALSE));
            assert!(matches!(device(instance, physical, 1), Err(vk::Result::ERROR_FEATURE_NOT_PRESENT)));
        },
    );
}

#[test]
fn a_feature_of_the_first_version_is_hidden_too() {
    on_device(
        Plan::new().features(|features| features.robust_buffer_access = vk::FALSE),
        |instance, physical| unsafe {
            assert_eq!(instance.get_physical_device_features(physical).robust_buffer_access, vk::FALSE);
            let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
            let asked = vk::PhysicalDeviceFeatures::default().robust_buffer_access(true);
            let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_features(&asked);
            assert!(matches!(
                instance.create_device(physical, &info, None),
                Err(vk::Result::ERROR_FEATURE_NOT_PRESENT)
            ));
        },
    );
}

#[test]
fn a_hidden_extension_is_not_listed_and_cannot_be_asked_for() {
    let name = ash::khr::push_descriptor::NAME;
    on_device(Plan::new().hide_extension(&name.to_string_lossy()), |instance, physical| unsafe {
        let all = instance.enumerate_device_extension_properties(physical).unwrap();
        assert!(!all.is_empty() && all.iter().all(|one| one.extension_name_as_c_str() != Ok(name)));
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let extensions = [name.as_ptr()];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues).enabled_extension_names(&extensions);
        assert!(matches!(instance.create_device(physical, &info, None), Err(vk::Result::ERROR_EXTENSION_NOT_PRESENT)));
    });
}

#[test]
fn a_hidden_layer_is_not_listed_and_cannot_be_asked_for() {
    let Some(shim) = shim(Plan::new().hide_layer("VK_LAYER_KHRONOS_validation")) else { return };
    let entry = shim.entry();
    unsafe {
        let all = entry.enumerate_instance_layer_properties().unwrap();
        assert!(all.iter().all(|layer| layer.layer_name_as_c_str() != Ok(c"VK_LAYER_KHRONOS_validation")));
        let layers = [c"VK_LAYER_KHRONOS_validation".as_ptr()];
        let info = vk::InstanceCreateInfo::default().enabled_layer_names(&layers);
        assert!(matches!(entry.create_instance(&info, None), Err(vk::Result::ERROR_LAYER_NOT_PRESENT)));
    }
    assert_clean(&shim);
}

#[test]
fn no_device_is_an_empty_list() {
    let Some(shim) = shim(Plan::new().no_device()) else { return };
    unsafe {
        let instance = instance(&shim.entry()).unwrap();
        assert!(instance.enumerate_physical_devices().unwrap().is_empty());
        instance.destroy_instance(None);
    }
    assert_clean(&shim);
}

#[test]
fn a_function_the_driver_lacks_has_no_address() {
    let Some(shim) = shim(Plan::new().missing("vkCmdDispatch").missing("vkEnumerateInstanceVersion")) else { return };
    unsafe {
        assert_eq!(shim.entry().try_enumerate_instance_version(), Ok(None));
        let program = Program::new(&shim);
        let find = program.instance.fp_v1_0().get_device_proc_addr;
        assert!(find(program.device.handle(), c"vkCmdDispatch".as_ptr()).is_none());
        assert!(find(program.device.handle(), c"vkCmdDispatchIndirect".as_ptr()).is_some());
        program.end();
    }
    assert_clean(&shim);
}
