//! CUDA devices as a program finds, chooses and configures them, and what becomes of it where there are none. The driver is the double, which
//! lies beside the tests.
#![cfg(all(feature = "host", feature = "cuda"))]

mod process;

use process::{Scratch, describe, in_process};
use trunnion::prelude::*;
use trunnion::{Config, Error, OpenError};
use trunnion_cuda_double::compilers::Compilers;

/// A configuration with the double as the driver.
fn double() -> Config {
    Config::new().option("cuda", "library", "double")
}

#[test]
#[allow(unsafe_code, reason = "CUDA C is vouched for")]
fn a_device_of_the_double_opens_by_index_and_runs_cuda_c() {
    let Some(compilers) = Compilers::for_test("CUDA C runs on the double") else { return };
    let config = double().option("cuda", "compiler", compilers.root.display().to_string());
    let client = trunnion::open_with(&config.backend(Device::index("cuda", 3))).unwrap();
    assert_eq!(client.device_id().to_string(), "cuda:3");
    let interface = Interface::new().read().partition(64 * 4).parameters_of::<f32>();
    let text = "extern \"C\" __global__ void saxpy(const float *x, float *y, float a, size_t x_bytes, size_t y_bytes) {
        size_t i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < min(x_bytes, y_bytes) / sizeof(float)) y[i] += a * x[i];
    }";
    // SAFETY: an element is touched where both buffers have it.
    let source = unsafe { Source::cuda_c(text) };
    let saxpy = SourceKernel::new("saxpy", interface).workgroup_size([64, 1, 1]).source(source);
    let x = Buffer::from_slice(&client, &[1.0f32; 1000]).unwrap();
    let y = Buffer::from_slice(&client, &[0.5f32; 1000]).unwrap();
    let saxpy = client.prepare(saxpy).unwrap();
    client.launch(&saxpy, Grid::cover(1000, 64).unwrap(), args![&x, &y; &2.0f32]).unwrap();
    assert_eq!(y.read().unwrap(), [2.5; 1000]);
}

#[test]
fn a_device_that_does_not_exist_is_refused_with_how_many_there_are() {
    let error = trunnion::open_with(&double().backend(Device::index("cuda", 5000))).unwrap_err();
    assert!(matches!(error, OpenError::Runtime(Error::NoDevice { count: 256, .. })), "{error}");
}

#[test]
#[ignore = "run by other tests, in a process of its own"]
fn child() {
    describe();
}

#[test]
fn without_a_driver_cuda_is_listed_as_unavailable_and_the_host_is_opened() {
    let here = Scratch::new("driver");
    // What the system finds before any driver, and cannot load.
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::write(here.0.join(name), "no library").unwrap();
    }
    let before = ("LD_LIBRARY_PATH", here.0.to_str().unwrap());
    let said = in_process(&here.0, &[before]);
    assert!(said.contains("unavailable: [BackendUnavailable") && said.contains("driver"), "{said}");
    assert!(said.contains("devices: 1\nopened: "), "{said}");
    let said = in_process(&here.0, &[before, ("TRUNNION_BACKEND", "cuda")]);
    assert!(said.contains("refused: backend cuda is not available"), "{said}");
}

#[test]
fn the_environment_names_the_driver() {
    let here = Scratch::new("named");
    let double = ("TRUNNION_CUDA_DRIVER", "double");
    let said = in_process(&here.0, &[double, ("TRUNNION_BACKEND", "cuda:7")]);
    assert!(said.contains("opened: cuda:7; 8 MiB: yes"), "{said}");
    // A GPU, which the double plays, is better than the host.
    let said = in_process(&here.0, &[double]);
    assert!(said.contains("opened: cuda:0; 8 MiB: yes"), "{said}");
    let nowhere = ("TRUNNION_CUDA_DRIVER", "/nowhere/libcuda.so.1");
    let said = in_process(&here.0, &[nowhere, ("TRUNNION_BACKEND", "cuda:0")]);
    assert!(
        said.contains("refused: backend cuda is not available") && said.contains("/nowhere/libcuda.so.1"),
        "{said}"
    );
}

#[test]
fn options_are_refused_where_they_were_read() {
    let here = Scratch::new("cuda-options");
    let double = ("TRUNNION_CUDA_DRIVER", "double");
    let device = ("TRUNNION_BACKEND", "cuda:0");
    for (variable, value, has) in [
        ("TRUNNION_CUDA_VMM", "maybe", "environment: `TRUNNION_CUDA_VMM` cannot be `maybe`; valid: `true`"),
        ("TRUNNION_CUDA_STAGNG", "true", "did you mean `TRUNNION_CUDA_STAGING`?"),
    ] {
        let said = in_process(&here.0, &[double, device, (variable, value)]);
        assert!(said.contains("refused: ") && said.contains(has), "{said}");
    }
    std::fs::write(here.0.join("trunnion.toml"), "backend = 'cuda:0'\n[cuda]\nmemory = '4MiB'\n").unwrap();
    let said = in_process(&here.0, &[double]);
    assert!(said.contains("opened: cuda:0; 8 MiB: no"), "{said}");
}
