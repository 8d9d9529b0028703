//! Launches whose counts are in device memory, which the host does not know when it encodes them.
//!
//! `vkCmdDispatchIndirect` takes counts within the device's limits only, and what a program wrote may be anything. So the counts are copied
//! to a slot of the batch that the host can read, a kernel of the driver's own copies them on within the slot, as zeros if one of them is over
//! its limit, and the dispatch takes those. When the batch is finished the host looks at what was found: counts over a limit are a failure
//! of the launch, which then ran nothing. Zeros run nothing and are no failure. Nothing waits for the host.

use crate::device::Device;
use crate::kernel::{self, Pipeline};
use alloc::format;
use alloc::sync::Arc;
use trunnion_backend_core::loss::Loss;
use trunnion_runtime_core::error::{Error, Result};
use trunnion_runtime_core::kernel::{KernelReader, Source, SourceKernel};

/// Bytes of a slot.
pub(crate) const SLOT: u64 = 32;

/// Where in a slot the counts are that were found; those that are dispatched are at its start.
pub(crate) const FOUND: u64 = 16;

/// Bytes of counts.
pub(crate) const COUNTS: u64 = 12;

const NAME: &str = "check_grid";

/// The kernel that keeps counts within the limits.
pub(crate) fn checker(device: &Arc<Device>, loss: &Loss, reader: &dyn KernelReader) -> Result<Arc<Pipeline>> {
    let (source, kernel) = source(device.properties.limits.max_grid);
    let reading = reader.read(&kernel, &source)?;
    let missing = || Error::InvalidKernel { kernel: NAME.into(), why: "this device's reader did not read it".into() };
    let parsed = reading.parsed.ok_or_else(missing)?;
    let module = parsed.downcast_ref().ok_or_else(missing)?;
    Ok(Arc::new(kernel::of_module(device, loss, NAME, module)?))
}

fn source([x, y, z]: [u32; 3]) -> (Source, SourceKernel) {
    let text = format!(
        "@group(0) @binding(0) var<storage, read_write> slot: array<u32, 8>;

@compute @workgroup_size(1) fn {NAME}() {{
    let found = vec3<u32>(slot[4], slot[5], slot[6]);
    let most = vec3<u32>({x}u, {y}u, {z}u);
    let counts = select(vec3<u32>(0u), found, all(found <= most));
    slot[0] = counts.x;
    slot[1] = counts.y;
    slot[2] = counts.z;
}}"
    );
    (Source::wgsl(text.as_str()), SourceKernel::wgsl(NAME, text))
}
