//! What a program sees of Vulkan devices: discovery, opening with settings, and what is refused.

extern crate alloc;

use alloc::collections::BTreeMap;
use trunnion_backend_core::LimitOptions;
use trunnion_backend_core::driver::Driver;
use trunnion_backend_vulkan::{NAME, VulkanBackend, VulkanOptions, validation_messages};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::error::{Error, SourceForm};
use trunnion_runtime_core::id::DeviceId;
use trunnion_runtime_core::properties::{BoundsAbility, DeviceInfo, DeviceProperties};

/// The devices there are, among them those that must be.
fn devices(backend: &VulkanBackend) -> Vec<DeviceInfo> {
    let infos = backend.enumerate().unwrap_or_else(|why| {
        eprintln!("skipped: {why}");
        Vec::new()
    });
    trunnion_vulkan_shim::require(&infos.iter().map(|info| &info.adapter).collect::<Vec<_>>());
    infos
}

fn settings(options: &[(&str, &str)]) -> OpenSettings {
    let options: BTreeMap<_, _> = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    OpenSettings { options, ..OpenSettings::default() }
}

fn opened(backend: &VulkanBackend, index: u32, settings: &OpenSettings) -> Result<DeviceProperties, Error> {
    backend.open(index, settings).map(|opened| opened.properties)
}

#[test]
fn each_device_is_opened_and_is_what_was_listed() {
    let backend = VulkanBackend::default();
    for info in devices(&backend) {
        let properties = opened(&backend, info.device.index, &OpenSettings::default()).unwrap();
        println!("{}", properties.info);
        let found = &properties.info;
        assert_eq!(
            (found.device, &found.adapter, &found.driver, &found.api),
            (info.device, &info.adapter, &info.driver, &info.api)
        );
        assert_eq!(properties.features.sources, [SourceForm::Wgsl, SourceForm::SpirV]);
        assert_eq!(properties.features.bounds, BoundsAbility::Contained);
    }
}

#[test]
fn options_of_the_settings_come_on_top_of_the_backends_own() {
    let backend = VulkanBackend::new(VulkanOptions::default().limits(LimitOptions {
        max_buffers: Some(5),
        memory: Some(1 << 22),
        ..LimitOptions::default()
    }));
    for info in devices(&backend) {
        assert!(info.to_string().contains("max_buffers = 5, memory = 4194304"), "{info}");
        let settings = settings(&[("memory", "1MiB"), ("staging", "true"), ("validation", "true")]);
        let properties = match opened(&backend, info.device.index, &settings) {
            Ok(properties) => properties,
            Err(why) => return println!("skipped: {why}"),
        };
        assert_eq!((properties.limits.max_buffers, properties.limits.memory), (5, 1 << 20));
        assert!(!properties.features.host_visible);
        let options = properties.info.details.iter().find(|(name, _)| name == "options").unwrap();
        assert_eq!(options.1, "max_buffers = 5, memory = 1048576, staging = true, validation = true");
    }
    assert_eq!(validation_messages(), [""; 0]);
}

#[test]
fn a_bad_option_and_an_index_too_high_are_refused_before_anything_is_started() {
    let backend = VulkanBackend::default();
    let error = opened(&backend, 0, &settings(&[("queues", "none")])).unwrap_err();
    let (option, value, valid) = ("queues".into(), "none".into(), "a count of at least 1".into());
    assert_eq!(error, Error::BadOption { backend: NAME, option, value, valid });
    let error = opened(&backend, 0, &settings(&[("ques", "1")])).unwrap_err();
    let known = |known: &[String]| known.iter().any(|name| name == "queues");
    assert!(
        matches!(&error, Error::UnknownOption { option, known: names, .. } if option == "ques" && known(names)),
        "{error}"
    );
    let count = devices(&backend).len() as u32;
    if count > 0 {
        let device = DeviceId { backend: NAME, index: 4000 };
        assert_eq!(opened(&backend, 4000, &OpenSettings::default()), Err(Error::NoDevice { device, count }));
    }
}

#[test]
fn two_servers_of_one_device_and_a_dry_one_live_beside_each_other() {
    let backend = VulkanBackend::default();
    for info in devices(&backend) {
        let first = backend.open(info.device.index, &OpenSettings::default()).unwrap();
        let second = backend.open(info.device.index, &OpenSettings::default()).unwrap();
        let dry = backend.open(info.device.index, &OpenSettings { dry_run: true, ..OpenSettings::default() }).unwrap();
        assert_eq!(first.properties, second.properties);
        assert_eq!(dry.properties.limits, first.properties.limits);
    }
}

#[test]
fn all_of_a_devices_memory_can_be_had_as_pages() {
    let backend = VulkanBackend::default();
    for info in devices(&backend) {
        let mut driver = backend
            .driver(
                info.device.index,
                &VulkanOptions::default().limits(LimitOptions { memory: Some(1 << 20), ..LimitOptions::default() }),
            )
            .unwrap();
        assert_eq!(driver.free_memory(), Some(1 << 20));
        let page = driver.allocate(1 << 20).unwrap();
        let refusal = driver.allocate(driver.page_alignment()).unwrap_err();
        assert!(refusal.out_of_memory && refusal.message.contains("0 of 1048576 are free"), "{refusal:?}");
        driver.release(page);
        assert_eq!(driver.free_memory(), Some(1 << 20));
    }
}
