//! CUDA devices: those of the double, and the first one of a real driver.
//!
//! A process has one driver. It is the double, unless `TRUNNION_CUDA_DRIVER` names another. A variant lowers limits through the options of
//! the backend; what no option does, such as losing the device or telling late what is done, only the double does.

mod double;
mod gpu;
mod lend;

use alloc::collections::BTreeMap;
use core::ops::Range;
use double::OnDouble;
use gpu::OnGpu;
use trunnion_backend_cuda::CudaResource;
use trunnion_conformance::kernels::{BROKEN, BROKEN_MACRO};
use trunnion_conformance::outside::Owner;
use trunnion_conformance::{Context, Factory, Outcome, Outside, Refusal, Variant, tests};
use trunnion_runtime_core::backend::OpenSettings;
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::Result;
use trunnion_runtime_core::handle::Handle;
use trunnion_runtime_core::server::Opened;

tests! {
    M12 bytes_nobody_wrote_are_read_on_purpose .hidden();
}

/// Says which driver a process uses; the backend reads it too.
const DRIVER: &str = "TRUNNION_CUDA_DRIVER";

/// Whether this process is for another driver than the double.
fn is_for_another() -> bool {
    std::env::var_os(DRIVER).is_some_and(|driver| !driver.is_empty() && driver != "double")
}

/// A CUDA device.
pub struct Cuda {
    name: &'static str,
    driver: Driver,
}

enum Driver {
    Double(OnDouble),
    Gpu(OnGpu),
}

impl Cuda {
    /// The double, which is loaded at once, so that whatever looks for a driver in this process finds it.
    pub fn double() -> Self {
        Self { name: "cuda:double", driver: Driver::Double(OnDouble::new()) }
    }

    /// A real device.
    pub fn gpu() -> Self {
        Self { name: "cuda:gpu", driver: Driver::Gpu(OnGpu::new()) }
    }
}

impl Factory for Cuda {
    fn name(&self) -> &str {
        self.name
    }

    fn backend(&self) -> &str {
        "cuda"
    }

    fn index(&self) -> u32 {
        match &self.driver {
            Driver::Double(double) => double.registered(),
            Driver::Gpu(_) => 0,
        }
    }

    fn available(&self) -> Result<(), String> {
        match &self.driver {
            Driver::Double(double) => double.available(),
            Driver::Gpu(gpu) => gpu.available(),
        }
    }

    fn start(&self, variant: &Variant, settings: &OpenSettings) -> Result<Opened, Refusal> {
        let mut settings = settings.clone();
        settings.options.extend(options(variant)?);
        match &self.driver {
            Driver::Double(double) => double.start(variant, settings),
            Driver::Gpu(gpu) => gpu.start(variant, &settings),
        }
    }

    trunnion_conformance::resource_type!(CudaResource);

    fn import(&self, client: &Client, memory: &Outside, range: Range<usize>, owner: Owner) -> Result<Handle> {
        lend::import(client, memory, range, owner)
    }

    fn keeps_code(&self) -> bool {
        true
    }

    fn complaints(&self) -> Vec<String> {
        match &self.driver {
            Driver::Double(double) => double.complaints(),
            Driver::Gpu(_) => Vec::new(),
        }
    }
}

/// What the backend's own options do. A device has one kind of memory, which the host never reaches.
fn options(variant: &Variant) -> Result<BTreeMap<String, String>, Refusal> {
    let mut options = variant.limits();
    if variant.separate_memory {
        options.insert("staging".to_string(), "true".to_string());
    }
    match variant.fail_compile {
        None => {}
        Some(BROKEN) => {
            options.insert("compile_options".to_string(), format!("--define-macro={BROKEN_MACRO}"));
        }
        Some(other) => return Err(Refusal::Unavailable(format!("nothing keeps the compiler from taking {other}"))),
    }
    Ok(options)
}

/// Not a test of a promise: what the double must report, so that a run without reports is known to mean something.
fn bytes_nobody_wrote_are_read_on_purpose(cx: &Context) -> Outcome {
    let client = cx.client()?;
    client.read_one(&client.empty(64)?)?;
    Ok(())
}
