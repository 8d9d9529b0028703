//! Vulkan devices as a program finds, chooses and configures them, and what becomes of it where there are none.
#![cfg(all(feature = "host", feature = "vulkan"))]

mod process;

use process::{Scratch, describe, in_process};
use trunnion::prelude::*;
use trunnion::properties::DeviceKind;

/// The drivers whose devices these tests open, by part of their adapters' names.
const DRIVERS: [&str; 2] = ["vulkan:llvmpipe", "vulkan:swiftshader"];

/// The names of the drivers that are installed. What `TRUNNION_REQUIRE` lists has to be.
fn drivers() -> Vec<&'static str> {
    let required = std::env::var("TRUNNION_REQUIRE").unwrap_or_default();
    let installed = DRIVERS.into_iter().filter(|name| match trunnion::open(*name) {
        Ok(_) => true,
        Err(error) if required.split(',').any(|required| required == *name) => panic!("{name} is required: {error}"),
        Err(error) => {
            println!("not tested: {error}");
            false
        }
    });
    installed.collect()
}

#[test]
fn a_device_opens_by_part_of_its_adapters_name_and_runs_wgsl() {
    for name in drivers() {
        let client = trunnion::open(name).unwrap();
        let part = name.split_once(':').unwrap().1;
        assert!(client.info().adapter.to_lowercase().contains(part), "{name} opened {}", client.info());
        let by_id = trunnion::open(client.device_id()).unwrap();
        assert_eq!(by_id.service_id(), client.service_id());

        let interface = Interface::new().read().partition(64 * 4).parameters_of::<f32>();
        let saxpy = SourceKernel::new("saxpy", interface).workgroup_size([64, 1, 1]).source(Source::wgsl(
            "@group(0) @binding(0) var<storage> x: array<f32>;
             @group(0) @binding(1) var<storage, read_write> y: array<f32>;
             struct Parameters { a: f32 }
             @group(0) @binding(2) var<uniform> parameters: Parameters;
             @compute @workgroup_size(64) fn saxpy(@builtin(global_invocation_id) id: vec3u) {
                 if id.x < arrayLength(&y) { y[id.x] += parameters.a * x[id.x]; }
             }",
        ));
        let x = Buffer::from_slice(&client, &[1.0f32; 1000]).unwrap();
        let y = Buffer::from_slice(&client, &[0.5f32; 1000]).unwrap();
        let saxpy = client.prepare(saxpy).unwrap();
        client.launch(&saxpy, Grid::cover(1000, 64).unwrap(), args![&x, &y; &2.0f32]).unwrap();
        assert_eq!(y.read().unwrap(), [2.5; 1000], "{name}");
    }
}

#[test]
fn a_gpu_is_better_than_the_host_and_the_host_than_a_driver_on_the_same_processor() {
    let devices = trunnion::devices();
    let host = devices.iter().position(|device| device.device.backend.as_str() == "host").unwrap();
    for (place, device) in devices.iter().enumerate().filter(|(_, device)| device.device.backend.as_str() == "vulkan") {
        assert_eq!(place > host, device.kind == DeviceKind::Cpu, "{device}");
    }
}

#[test]
#[ignore = "run by other tests, in a process of its own"]
fn child() {
    describe();
}

#[test]
fn without_a_loader_vulkan_is_listed_as_unavailable_and_the_host_is_opened() {
    let here = Scratch::new("loader");
    // What the system finds before the loader, and cannot load.
    std::fs::write(here.0.join("libvulkan.so.1"), "no library").unwrap();
    let before = ("LD_LIBRARY_PATH", here.0.to_str().unwrap());
    let said = in_process(&here.0, &[before]);
    assert!(said.contains("unavailable: [BackendUnavailable") && said.contains("libvulkan"), "{said}");
    assert!(said.contains("devices: 1\nopened: host:0"), "{said}");
    let said = in_process(&here.0, &[before, ("TRUNNION_BACKEND", "vulkan")]);
    assert!(said.contains("refused: backend vulkan is not available") && said.contains("libvulkan"), "{said}");
}

#[test]
fn without_a_driver_the_host_is_opened() {
    let here = Scratch::new("drivers");
    let none = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"].map(|name| (name, "/nowhere.json"));
    let said = in_process(&here.0, &none);
    assert!(said.contains("devices: 1\nopened: host:0"), "{said}");
    let asked = [none[0], none[1], none[2], ("TRUNNION_BACKEND", "vulkan")];
    let said = in_process(&here.0, &asked);
    assert!(said.contains("refused: ") && said.contains("vulkan"), "{said}");
}

#[test]
fn options_are_refused_where_they_were_read() {
    let here = Scratch::new("options");
    if let Some(name) = drivers().first() {
        for (variable, value, has) in [
            (
                "TRUNNION_VULKAN_STAGING",
                "maybe",
                "environment: `TRUNNION_VULKAN_STAGING` cannot be `maybe`; valid: `true`",
            ),
            ("TRUNNION_VULKAN_STAGNG", "true", "did you mean `TRUNNION_VULKAN_STAGING`?"),
        ] {
            let said = in_process(&here.0, &[("TRUNNION_BACKEND", name), (variable, value)]);
            assert!(said.contains("refused: ") && said.contains(has), "{said}");
        }
        let file = format!("backend = '{name}'\n[vulkan]\nqueues = 1\nmax_grid = [7, 7]\n");
        std::fs::write(here.0.join("trunnion.toml"), file).unwrap();
        let said = in_process(&here.0, &[]);
        assert!(said.contains("refused: trunnion.toml:4: `vulkan.max_grid` cannot be `7,7`"), "{said}");
        std::fs::write(here.0.join("trunnion.toml"), format!("backend = '{name}'\n[vulkan]\nmemory = '4MiB'\n"))
            .unwrap();
        let said = in_process(&here.0, &[]);
        assert!(said.contains("opened: vulkan:") && said.contains("8 MiB: no"), "{said}");
    }
}
