//! The workloads on a Vulkan device, each beside the bare API doing the same: `ash` with nothing between.
//!
//! Both sides use the first device that the backend lists. On lavapipe neither has the driver's worker threads ([`without_workers`]): waking
//! them costs more than a tiny kernel, and differs from run to run.

mod bare;
pub mod dispatch;
mod start;
mod transfer;

pub use dispatch::dispatch;
pub use start::start;
pub use transfer::transfer;

use crate::harness::Run;
use std::env;
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use trunnion_backend_vulkan::VulkanBackend;
use trunnion_kernel_wgsl::{Capabilities, Module, Parameters, Reader, SpirVOptions};
use trunnion_runtime_core::backend::{Backend, OpenSettings};
use trunnion_runtime_core::client::Client;
use trunnion_runtime_core::error::{Result as CoreResult, SourceForm};
use trunnion_runtime_core::id::{BackendName, DeviceId};
use trunnion_runtime_core::kernel::{KernelReader, Source, SourceKernel};

/// The kernel that is launched. Both sides run the same SPIR-V: what our own writer makes of this text.
const KERNEL: &str = "add";

const TEXT: &str = "
struct Parameters { by: u32 }
@group(0) @binding(0) var<storage> before: array<u32>;
@group(0) @binding(1) var<storage, read_write> after: array<u32>;
@group(0) @binding(2) var<uniform> parameters: Parameters;
@compute @workgroup_size(64)
fn add(@builtin(global_invocation_id) id: vec3u) {
    after[id.x] = before[id.x] + parameters.by;
}";

/// Numbers in each of its buffers: those of one workgroup.
const NUMBERS: usize = 64;

/// Bytes of each of its buffers.
const BYTES: usize = 4 * NUMBERS;

/// What lavapipe reads how many threads of its own it has from.
const WORKERS: &str = "LP_NUM_THREADS";

/// Keeps lavapipe from starting threads of its own, unless the caller of the program says how many.
///
/// # Safety
/// The process has no other thread.
pub unsafe fn without_workers() {
    if env::var_os(WORKERS).is_none() {
        // SAFETY: the caller's promise.
        unsafe { env::set_var(WORKERS, "0") };
    }
}

/// The device that is measured, as the backend names it, in every line from here on.
///
/// # Errors
/// Where there is no such device, and why.
pub fn adapter(run: &mut Run) -> Result<String, Box<dyn Error>> {
    let infos = VulkanBackend::default().enumerate()?;
    let first = infos.into_iter().next().ok_or("there is no Vulkan device")?;
    let workers = env::var(WORKERS).unwrap_or_else(|_| "as by default".into());
    run.note(&format!("{}, {WORKERS} {workers}", first.adapter));
    Ok(first.adapter)
}

/// A client on a device that nobody else of this process uses.
fn open() -> CoreResult<Client> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let backend = const { BackendName::new("bench-vulkan").unwrap() };
    let device = DeviceId { backend, index: NEXT.fetch_add(1, Ordering::Relaxed) };
    let opened = VulkanBackend::default().open(0, &OpenSettings::default())?;
    Client::try_init(device, opened)
}

/// The kernel as it is handed to the bare API, and how many bytes are pushed.
fn spirv() -> Result<(Vec<u32>, u32), Box<dyn Error>> {
    let reader = Reader::new(vec![SourceForm::Wgsl], Capabilities::default());
    let reading = reader.read(&SourceKernel::wgsl(KERNEL, TEXT), &Source::wgsl(TEXT))?;
    let module = reading.parsed.and_then(|parsed| parsed.downcast::<Module>().ok()).ok_or("the reader kept nothing")?;
    // What every device has.
    let made = module.spirv(&SpirVOptions { push_constants: 128, ..SpirVOptions::default() })?;
    let Parameters::PushConstants(pushed) = made.parameters else { return Err("the parameters are not pushed".into()) };
    Ok((made.words, pushed))
}
